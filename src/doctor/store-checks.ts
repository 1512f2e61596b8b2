/** Judges a PostgreSQL as the store of a server, in the form of the doctor's findings. */
import { freeConnections, refusalOf, type StoreFacts, usableConnections } from '../storage/store-facts.ts'
import { type Cure, type Finding, fine, note, wrong } from './finding.ts'

/** The names of all findings, in the order of the output. */
type StoreFindingName =
  | 'version'
  | 'rights'
  | 'durability'
  | 'checksums'
  | 'transactions'
  | 'idle'
  | 'connections'
  | 'clock'
  | 'round trip'
  | 'snapshots'
  | 'autovacuum'
  | 'sharding'

export type StoreFinding = Finding<StoreFindingName>

/** Nodes compare times of claims, which allow for a difference of 10 s (threads/claims.ts). */
const MAX_CLOCK_MS = 5000
const NOTED_CLOCK_MS = 1000
/** A save waits for two round trips. */
const SLOW_TRIP_MS = 5

const sql = (line: string): readonly Cure[] => [{ place: 'PostgreSQL', line }]
const change = (setting: string, value: string) =>
  sql(`ALTER SYSTEM SET ${setting} = ${value}; SELECT pg_reload_conf();`)

/** @param perNode connections that a node may open */
export function storeFindings(facts: StoreFacts, perNode: number): StoreFinding[] {
  const refusal = refusalOf(facts, 0)
  if (refusal !== null) return [wrong('version', refusal)]
  return [
    fine('version', `PostgreSQL ${facts.versionText}, encoding UTF8, collation "C".`),
    rights(facts),
    durability(facts),
    checksums(facts),
    transactions(facts),
    idle(facts),
    connections(facts, perNode),
    clock(facts),
    roundTrip(facts),
    snapshots(facts),
    facts.autovacuum
      ? fine('autovacuum', 'Autovacuum is on.')
      : wrong(
          'autovacuum',
          'Autovacuum is off, so tables grow with every write.',
          change('autovacuum', 'on'),
        ),
    facts.citus === null
      ? fine('sharding', 'One PostgreSQL, without Citus.')
      : fine('sharding', `Citus ${facts.citus}. settee postgres distribute distributes the tables.`),
  ]
}

function rights({ seesOthers }: StoreFacts): StoreFinding {
  return seesOthers
    ? fine('rights', 'The account may make the schema settee, and sees what other accounts do.')
    : note(
        'rights',
        'The account does not see what other accounts do, so old transactions of theirs are not found here.',
        sql('GRANT pg_read_all_stats TO ACCOUNT;'),
      )
}

function durability({ durability }: StoreFacts): StoreFinding {
  const { fsync, fullPageWrites, synchronousCommit } = durability
  if (fsync !== 'on')
    return wrong('durability', 'fsync is off: a power cut can damage the whole store.', change('fsync', 'on'))
  if (synchronousCommit === 'off')
    return wrong(
      'durability',
      'synchronous_commit is off: saves that were acknowledged can be lost in a crash.',
      change('synchronous_commit', 'on'),
    )
  if (fullPageWrites !== 'on')
    return note(
      'durability',
      'full_page_writes is off, which is safe only on file systems that write pages whole, such as ZFS.',
      change('full_page_writes', 'on'),
    )
  return fine('durability', `fsync and full_page_writes are on, synchronous_commit is ${synchronousCommit}.`)
}

function checksums({ hasChecksums }: StoreFacts): StoreFinding {
  if (hasChecksums)
    return fine('checksums', 'data_checksums is on: PostgreSQL notices damaged pages as it reads them.')
  return note(
    'checksums',
    'data_checksums is off: PostgreSQL does not notice a page that its disk has damaged.',
    [{ place: 'PostgreSQL', line: 'pg_checksums --enable, while it is stopped' }],
  )
}

function transactions({ transactions: { isolation, isReadOnly } }: StoreFacts): StoreFinding {
  if (isReadOnly)
    return wrong(
      'transactions',
      'default_transaction_read_only is on for the account, the database or the server: nothing can be saved.',
      sql('ALTER ROLE ACCOUNT SET default_transaction_read_only = off;'),
    )
  const isUsual = isolation === 'read committed'
  const text = isUsual ? '.' : `, since settee asks for that; the account's default is ${isolation}.`
  return fine('transactions', `Transactions are read committed${text}`)
}

function idle({ idleTimeoutMs }: StoreFacts): StoreFinding {
  if (idleTimeoutMs > 0)
    return fine('idle', `Idle transactions of all clients end after ${idleTimeoutMs / 1000} s.`)
  return note(
    'idle',
    "settee ends its own idle transactions, but another client's can last for ever, and keep old rows.",
    change('idle_in_transaction_session_timeout', "'60s'"),
  )
}

function connections(facts: StoreFacts, perNode: number): StoreFinding {
  const { max, reserved, used, settee } = facts.connections
  const free = freeConnections(facts)
  const usable = usableConnections(facts)
  const limited = facts.limit === null ? '' : `, limit of the account or database ${facts.limit}`
  const figures = `max_connections ${max}, reserved ${reserved}, used ${used}, of which settee has ${settee}${limited}`
  const cure: readonly Cure[] = [
    ...sql(`ALTER SYSTEM SET max_connections = ${max + 2 * perNode};  -- and a restart`),
    { place: 'settee', line: 'a smaller settee/store_connections on each node' },
  ]
  const text = (verdict: string) => `${verdict}: ${figures}; a node needs up to ${perNode}.`
  if (perNode > usable) return wrong('connections', text('Not enough for one node'), cure)
  if (perNode > free) return note('connections', text('No room for one more node'), cure)
  const nodes = Math.floor(free / perNode)
  return fine('connections', text(`Room for ${nodes} more ${nodes === 1 ? 'node' : 'nodes'}`))
}

function clock({ clockAheadMs }: StoreFacts): StoreFinding {
  const size = Math.abs(clockAheadMs)
  const text = `The clock of PostgreSQL is ${(size / 1000).toFixed(1)} s ${clockAheadMs > 0 ? 'ahead of' : 'behind'} this machine's`
  const cure: readonly Cure[] = [{ place: 'both machines', line: 'an NTP service, such as chrony' }]
  if (size > MAX_CLOCK_MS)
    return wrong('clock', `${text}: two nodes may do the work that one of them should do.`, cure)
  if (size > NOTED_CLOCK_MS) return note('clock', `${text}.`, cure)
  return fine('clock', "The clock of PostgreSQL agrees with this machine's.")
}

function roundTrip({ roundTripMs }: StoreFacts): StoreFinding {
  const text = `A round trip takes ${roundTripMs.toFixed(2)} ms, and a save waits for two.`
  if (roundTripMs <= SLOW_TRIP_MS) return fine('round trip', text)
  return note('round trip', text, [{ place: 'settee', line: 'nodes in the data centre of PostgreSQL' }])
}

function snapshots({ old }: StoreFacts): StoreFinding {
  if (old.length === 0) return fine('snapshots', 'No transaction or snapshot is older than two minutes.')
  const shown = old.map(({ what, seconds }) =>
    seconds === null ? what : `${what}, ${Math.round(seconds / 60)} min`,
  )
  return wrong(
    'snapshots',
    `PostgreSQL must keep every row that was overwritten since, which makes saves slow: ${shown.join('; ')}.`,
    sql('SELECT pg_terminate_backend(PID); ROLLBACK PREPARED ...; SELECT pg_drop_replication_slot(NAME);'),
  )
}
