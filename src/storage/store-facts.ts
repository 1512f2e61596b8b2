/** Facts about a PostgreSQL as a store of databases, and which of them keep a node from starting. */

/** The oldest version that settee supports, as `server_version_num`. */
const MIN_VERSION = 150_000

export interface StoreFacts {
  /** `server_version_num`, such as 150005. */
  readonly version: number
  readonly versionText: string
  /** The encoding of the database, such as `UTF8`. */
  readonly encoding: string
  readonly hasCollationC: boolean
  /** Whether it is a standby, which takes no writes. */
  readonly isStandby: boolean
  /** Whether the account may make settee's schema, or has one. */
  readonly mayCreate: boolean
  /** Whether the account sees what others do; else their transactions are not among {@link StoreFacts.old}. */
  readonly seesOthers: boolean
  /** The version of the extension Citus; null if it is not there. */
  readonly citus: string | null
  /** The smallest limit of connections of the account and of the database; null if neither has one. */
  readonly limit: number | null
  /** Settings of these names. */
  readonly durability: {
    readonly fsync: string
    readonly fullPageWrites: string
    readonly synchronousCommit: string
  }
  /** Whether pages of its files have checksums, so that damaged ones are noticed when they are read. */
  readonly hasChecksums: boolean
  /** What the account's transactions are by default. */
  readonly transactions: {
    /** Such as `read committed`. */
    readonly isolation: string
    readonly isReadOnly: boolean
  }
  /** After how many ms PostgreSQL ends an idle transaction; 0: never. */
  readonly idleTimeoutMs: number
  readonly autovacuum: boolean
  readonly connections: {
    readonly max: number
    /** For superusers and monitoring. */
    readonly reserved: number
    /** Open ones, without the one that asks. */
    readonly used: number
    /** Those of settee among them. */
    readonly settee: number
  }
  /** Whether the account may read what tells a restored or failed-over PostgreSQL from the one before. */
  readonly hasTimeline: boolean
  /** By how many ms its clock is ahead of this machine's, beyond what a round trip explains. */
  readonly clockAheadMs: number
  readonly roundTripMs: number
  /** Transactions and snapshots that are older than minutes, the oldest first, a few at most. */
  readonly old: readonly { readonly what: string; readonly seconds: number | null }[]
}

type Connections = Pick<StoreFacts, 'connections' | 'limit'>

/** Connections that settee can have in all. */
export function usableConnections({ connections, limit }: Connections): number {
  return Math.min(connections.max - connections.reserved, limit ?? Number.POSITIVE_INFINITY)
}

/** Connections that are free now. */
export function freeConnections(facts: Connections): number {
  const { used, settee } = facts.connections
  const ofAll = facts.connections.max - facts.connections.reserved - used
  // A limit of the account or database counts settee's own, as far as this can know.
  return Math.max(0, Math.min(ofAll, (facts.limit ?? Number.POSITIVE_INFINITY) - settee))
}

/** @returns why no node can use it, in one sentence; null if one can */
export function refusalOf(facts: StoreFacts, perNode: number): string | null {
  if (facts.version < MIN_VERSION)
    return `It is PostgreSQL ${facts.versionText}, and settee needs version 15 or later.`
  if (facts.encoding !== 'UTF8')
    return `Its database has the encoding ${facts.encoding} instead of UTF8: CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0.`
  if (!facts.hasCollationC) return 'It has no collation "C", by which settee sorts.'
  if (facts.isStandby) return 'It is a standby, which takes no writes: name the primary.'
  if (!facts.mayCreate)
    return 'The account may not make the schema settee: GRANT CREATE ON DATABASE ... TO ...'
  if (!facts.hasTimeline)
    return 'The account may not call pg_control_system() and pg_walfile_name(), by which settee notices a restore.'
  const usable = usableConnections(facts)
  if (perNode <= usable) return null
  return (
    `It has ${usable} connections for settee, and this node alone needs up to ${perNode}: raise max_connections, or lower ` +
    'settee/store_connections.'
  )
}

/** @returns what the operator should know at the start of a node; null if nothing */
export function warningOf(facts: StoreFacts, perNode: number): string | null {
  const free = freeConnections(facts)
  if (perNode <= free) return null
  const { max, reserved, used, settee } = facts.connections
  return (
    `PostgreSQL has ${free} free connections, and this node needs up to ${perNode} (max_connections ${max}, reserved ${reserved}, ` +
    `used ${used}, of which settee's nodes have ${settee}): raise max_connections, or lower settee/store_connections`
  )
}
