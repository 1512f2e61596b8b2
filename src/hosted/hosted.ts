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
import { FeedSlots } from './feed-slots.ts'
import { Owners } from './owners.ts'
import { RateLimiters } from './rate-limiter.ts'
import { type AccountUsage, TenantAccounts } from './tenant-accounts.ts'
import { TenantDatabases } from './tenant-databases.ts'
import { Tenants, withRefusals } from './tenants.ts'
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
  /** The usage of each account, for metrics. */
  tenantUsage(): readonly ({ readonly account: string } & AccountUsage)[]
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

/** Reads the records, and finishes what a crash interrupted, so that nobody sees it half done. */
export async function openHosted(options: HostedOptions): Promise<Hosted> {
  const { config, databases, deleteTokens, onFault, clock = systemClock } = options
  const owners = await Owners.open(databases)
  const tenants = await Tenants.open(databases, config)
  const usage = await Usage.open({ databases, owners, store: databases, clock, onFault })
  const tenantDatabases = new TenantDatabases({
    config,
    databases,
    owners,
    tenants,
    onOwned: (name) => usage.follow(name),
    onLeft: (name) => usage.leave(name),
  })
  await tenantDatabases.recover()
  usage.sweep()
  const feeds = new FeedSlots(clock)
  const limiters = new RateLimiters(clock)
  const turns = new WriteTurns({ owners, usage })
  const updates = await UpdatesViews.open({ store: databases, owners, databases, tenantDatabases })
  const accounts = new TenantAccounts({
    databases,
    owners,
    tenants,
    tenantDatabases,
    usage,
    feeds,
    deleteTokens,
  })
  const made = { config, owners, tenants, usage, turns, updates, accounts, limiters, feeds }
  return {
    policy: hostedPolicy({ ...made, databases: tenantDatabases }),
    ...{ owners, tenants, databases: tenantDatabases, usage, accounts, feeds },
    tenantUsage: () => accounts.all(),
    resume: () => accounts.resume().then(() => undefined, onFault),
    close: async () => {
      limiters.close()
      feeds.close()
      await usage.close()
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
    databasesOf: async (account, { prefix = '', after = '' }, limit) =>
      [...owners.databasesOf(account)]
        .filter((name) => name > after && name.startsWith(prefix))
        .sort()
        .slice(0, limit),
    updatesOf: (account) => updates.of(account),
    createDatabase: (name, user, owner, properties) =>
      createDatabase(parts, name, { tenant: tenantOf(user), owner }, properties),
    maxReplications: (user) => {
      const tenant = tenantOf(user)
      return tenant === null ? undefined : tenants.quotaOf(tenant).replications
    },
    maxDocumentSize: (account) => tenants.quotaOf(account).document_size,
    allowance: (database) => {
      const owner = owners.ownerOf(database)
      return owner === undefined ? undefined : usage.allowance(database, owner, tenants.quotaOf(owner))
    },
    write: async (database, length, kind, work) => {
      const owner = owners.ownerOf(database)
      if (owner === undefined) return work()
      return turns.run(owner, { database, most: maxSizeOf(length, kind) }, tenants.quotaOf(owner), work)
    },
  }
}

function requestLimits({ tenants, limiters, feeds }: Parts): RequestLimits {
  const quotaOf = (account: string | null) => (account === null ? tenants.defaults : tenants.quotaOf(account))
  return {
    limiterOf: (account, address) => {
      const rate = quotaOf(account).requests
      return { limiter: limiters.of(account ?? addressKey(address), rate), rate }
    },
    maxFeeds: (account) => quotaOf(account).feeds,
    openFeed: (account, address, end, signal) =>
      feeds.take(account ?? addressKey(address), quotaOf(account).feeds, end, signal),
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
