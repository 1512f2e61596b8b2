/** All that hosted mode keeps on the HTTP thread, put together: who owns what, what may be had, and who waits. */
import { type Clock, systemClock } from '../changes/source.ts'
import type { Config } from '../config/config.ts'
import type { Databases } from '../threads/databases.ts'
import { AccountKeeper, type AccountUsage } from './account-keeper.ts'
import { FeedPlaces } from './feed-places.ts'
import { Owners } from './owners.ts'
import { Lines } from './rate-limiter.ts'
import { TenantDatabases } from './tenant-databases.ts'
import { Tenants } from './tenants.ts'
import { UpdatesViews } from './updates-views.ts'
import { Usage } from './usage.ts'
import { WriteTurns } from './write-turns.ts'

interface HostedOptions {
  readonly config: Config
  readonly databases: Databases
  /** Revokes all device tokens of an account. @returns how many there were */
  deleteTokens(account: string): Promise<number>
  /** Something failed in the background, and is tried again. */
  onFault(fault: unknown): void
  readonly clock?: Clock
}

export interface Hosted {
  readonly owners: Owners
  readonly tenants: Tenants
  readonly databases: TenantDatabases
  readonly usage: Usage
  readonly turns: WriteTurns
  readonly accounts: AccountKeeper
  readonly updates: UpdatesViews
  readonly lines: Lines
  readonly feeds: FeedPlaces
  /** What each account takes, for metrics. */
  tenantUsage(): readonly ({ readonly account: string } & AccountUsage)[]
  /** Goes on with what was begun before the server ended and may take long; never rejects. */
  resume(): Promise<void>
  /** Before the databases are closed. */
  close(): Promise<void>
}

/** Reads what is on record, and finishes what a crash has interrupted, so that nobody sees it half done. */
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
  const feeds = new FeedPlaces(clock)
  const lines = new Lines(clock)
  const turns = new WriteTurns({ owners, usage })
  const updates = await UpdatesViews.open({ store: databases, owners, databases, tenantDatabases })
  const accounts = new AccountKeeper({
    databases,
    owners,
    tenants,
    tenantDatabases,
    usage,
    feeds,
    deleteTokens,
  })
  return {
    ...{ owners, tenants, databases: tenantDatabases, usage, turns, accounts, updates, lines, feeds },
    tenantUsage: () => accounts.all(),
    resume: () => accounts.resume().then(() => undefined, onFault),
    close: async () => {
      lines.close()
      feeds.close()
      await usage.close()
    },
  }
}
