/**
 * Hosted mode, for tenants who do not know each other (docs/hosted.md). Its {@link Policy} says which databases an account
 * owns, and limits what it stores and asks.
 */
import { isServerAdmin } from '../auth/accounts.ts'
import type { Policy, RequestLimits } from '../auth/policy.ts'
import { type Clock, systemClock } from '../changes/source.ts'
import type { Config } from '../config/config.ts'
import { documentPolicy } from '../config/settings.ts'
import { CouchError } from '../core/errors.ts'
import { addressKey } from '../core/network.ts'
import type { UserCtx } from '../core/types.ts'
import type { DatabaseProperties } from '../storage/catalog.ts'
import type { Databases } from '../threads/databases.ts'
import { NOTHING } from './account-totals.ts'
import { FeedSlots } from './feed-slots.ts'
import { Owners } from './owners.ts'
import { RateLimiters } from './rate-limiter.ts'
import { SignUpCounts } from './sign-up-counts.ts'
import { type AccountUsage, TenantAccounts } from './tenant-accounts.ts'
import { NO_OTHERS, TenantDatabases, type WorkClaims } from './tenant-databases.ts'
import { Tenants, withRefusals } from './tenants.ts'
import { UnfinishedWork } from './unfinished-work.ts'
import { UpdatesViews } from './updates-views.ts'
import { Usage } from './usage.ts'
import { maxSizeOf, WriteTurns } from './write-turns.ts'

interface HostedOptions {
  readonly config: Config
  readonly databases: Databases
  /** Revokes all device tokens of an account. @returns their number */
  deleteTokens(account: string): Promise<number>
  /** Something failed in the background; it is tried again. */
  onFault(fault: unknown): void
  /** Lets one of several nodes do what only one should do; by default there are no others. */
  readonly claims?: WorkClaims
  readonly clock?: Clock
}

export interface Hosted {
  readonly policy: Policy
  readonly owners: Owners
  readonly tenants: Tenants
  readonly databases: TenantDatabases
  readonly usage: Usage
  readonly accounts: TenantAccounts
  readonly feeds: FeedSlots
  readonly signUps: SignUpCounts
  /** The usage of the accounts with the most bytes, for metrics. */
  tenantUsage(limit: number): Promise<readonly ({ readonly account: string } & AccountUsage)[]>
  /** Continues work that the end of the server interrupted and that may take long; never rejects. */
  resume(): Promise<void>
  /** Call it before the databases are closed. */
  close(): Promise<void>
}

/** The parts of {@link Policy} that hosted mode is made of. */
interface Parts {
  readonly config: Config
  readonly owners: Owners
  readonly tenants: Tenants
  readonly databases: TenantDatabases
  readonly usage: Usage
  readonly turns: WriteTurns
  readonly updates: UpdatesViews
  readonly accounts: TenantAccounts
  readonly limiters: RateLimiters
  readonly feeds: FeedSlots
}

/** Finishes what a crash interrupted, so that nobody sees it half done. What a start reads does not grow with the accounts. */
export async function openHosted(options: HostedOptions): Promise<Hosted> {
  const { config, databases, deleteTokens, onFault, claims = NO_OTHERS, clock = systemClock } = options
  const owners = new Owners(databases)
  const tenants = new Tenants(databases, config)
  const usage = new Usage({ databases, owners, records: databases, clock, onFault })
  const tenantDatabases = new TenantDatabases({
    config,
    databases,
    owners,
    tenants,
    claims,
    onChange: (name) => usage.changed(name),
  })
  await tenantDatabases.recover()
  const feeds = new FeedSlots(clock)
  const limiters = new RateLimiters(clock)
  const turns = new WriteTurns(usage)
  databases.limitGrowth(async (database, bytes, step) => {
    const owner = await owners.ownerOf(database)
    if (owner === undefined) return step(null)
    const quota = await tenants.quotaOf(owner)
    const most = { ...NOTHING, bytes }
    await turns.run(owner, { database, most }, quota, async () =>
      step(await usage.refusalOfGrowth(owner, bytes, quota)),
    )
  })
  const updates = await UpdatesViews.open({ records: databases, owners, databases, tenantDatabases })
  const accounts = new TenantAccounts({
    databases,
    records: databases,
    owners,
    tenants,
    tenantDatabases,
    usage,
    feeds,
    claims,
    deleteTokens,
  })
  const signUps = new SignUpCounts(databases)
  const watch = new UnfinishedWork({ databases, tenantDatabases, accounts, signUps, clock, onFault })
  const made = { config, owners, tenants, usage, turns, updates, accounts, limiters, feeds }
  return {
    policy: hostedPolicy({ ...made, databases: tenantDatabases }),
    owners,
    tenants,
    databases: tenantDatabases,
    usage,
    accounts,
    feeds,
    signUps,
    tenantUsage: (limit) => accounts.largest(limit),
    resume: () => watch.resume(),
    close: async () => {
      limiters.close()
      feeds.close()
      await watch.close()
      await usage.close()
      tenants.close()
      owners.close()
    },
  }
}

function hostedPolicy(parts: Parts): Policy {
  const { config, owners, tenants, databases, usage, turns, updates } = parts
  const tenantOf = (user: UserCtx): string | null =>
    user.name === null || isServerAdmin(user) || tenants.isAdmin(user.name) ? null : user.name
  return {
    documents: documentPolicy(config),
    databases,
    limits: requestLimits(parts),
    accountsOnly: true,
    accounts: (accounts) => withRefusals(accounts, tenants),
    refusalOf: (account) => tenants.refusalOf(account),
    tenantOf,
    ownerOf: (database) => owners.ownerOf(database),
    databasesOf: (account, range, limit) => owners.databasesOf(account, range, limit),
    updatesOf: (account) => updates.of(account),
    createDatabase: (name, user, owner, properties) =>
      createDatabase(parts, name, { tenant: tenantOf(user), owner }, properties),
    maxReplications: async (user) => {
      const tenant = tenantOf(user)
      return tenant === null ? undefined : (await tenants.quotaOf(tenant)).replications
    },
    maxDocumentSize: async (account) => (await tenants.quotaOf(account)).document_size,
    allowance: async (database) => {
      const owner = await owners.ownerOf(database)
      return owner === undefined ? undefined : usage.allowance(database, owner, await tenants.quotaOf(owner))
    },
    write: async (database, length, kind, work) => {
      const owner = await owners.ownerOf(database)
      if (owner === undefined) return work()
      const quota = await tenants.quotaOf(owner)
      return turns.run(owner, { database, most: maxSizeOf(length, kind) }, quota, work)
    },
  }
}

function requestLimits({ tenants, limiters, feeds }: Parts): RequestLimits {
  const quotaOf = (account: string | null) => (account === null ? tenants.defaults : tenants.quotaOf(account))
  return {
    limiterOf: async (account, address) => {
      const rate = (await quotaOf(account)).requests
      return { limiter: limiters.of(account ?? addressKey(address), rate), rate }
    },
    maxFeeds: async (account) => (await quotaOf(account)).feeds,
    openFeed: async (account, address, end, signal) =>
      feeds.take(account ?? addressKey(address), (await quotaOf(account)).feeds, end, signal),
  }
}

/** A new database belongs to the tenant who makes it. If an admin makes it, it belongs to `owner`, or to nobody. */
async function createDatabase(
  { accounts, databases }: Parts,
  name: string,
  { tenant, owner }: { readonly tenant: string | null; readonly owner: string | undefined },
  properties?: DatabaseProperties,
): Promise<void> {
  if (tenant === null) {
    if (owner !== undefined) await accounts.checkExists(owner)
    return databases.create(name, owner ?? null, properties)
  }
  if (owner === undefined || owner === tenant) return databases.createOwn(name, tenant, properties)
  throw new CouchError('forbidden', 'Only server admins can make databases for other accounts.')
}
