/** The grammars of `settee postgres check` and `settee postgres distribute`. */
import { checkNone, DATA, DATA_HELP, grammar, JSON_OUT, UsageError, type Values } from './grammar.ts'

interface StoreCommand {
  /** The address of the store; undefined: that of the settings. */
  readonly store: string | undefined
  /** The folder given with --data. */
  readonly data: string | undefined
}

/** Checks a PostgreSQL as a store. */
interface PostgresCheckCommand extends StoreCommand {
  readonly name: 'check'
  readonly json: boolean
}

/** Distributes the tables of a store with Citus. */
interface PostgresDistributeCommand extends StoreCommand {
  readonly name: 'distribute'
  /** null: as many as Citus has by default. */
  readonly shards: number | null
}

export type PostgresCommand = PostgresCheckCommand | PostgresDistributeCommand

const STORE = { ...DATA, store: { type: 'string' } } as const
const STORE_HELP = `  --store <address>    postgres://user@host/database, without the password (default: settee/store of
                       the settings)
${DATA_HELP}`

export const POSTGRES_CHECK = grammar({
  name: 'postgres check',
  usage: '[--store <address>] [--data <folder>] [--json]',
  about: 'check a PostgreSQL as the store of a server',
  details: `Checks the PostgreSQL that several nodes share (docs/scaling.md): version, durability, connections,
clocks, old transactions, and how far away it is. Changes nothing. The exit code is 0 when nothing is
wrong:
${STORE_HELP}  --json               print JSON
`,
  options: { ...STORE, ...JSON_OUT },
  read: (words, values: Values<typeof STORE & typeof JSON_OUT>): PostgresCommand => {
    checkNone(words)
    return { name: 'check', store: values.store, data: values.data, json: values.json ?? false }
  },
})

const SHARDS = { shards: { type: 'string' } } as const
const MAX_SHARDS = 64_000

export const POSTGRES_DISTRIBUTE = grammar({
  name: 'postgres distribute',
  usage: '[--store <address>] [--data <folder>] [--shards <number>]',
  about: 'distribute the tables of a store with Citus',
  details: `Distributes the tables of a store, by databases, over the servers of its Citus, once and for all:
${STORE_HELP}  --shards <number>    parts of each table (default: citus.shard_count)
`,
  options: { ...STORE, ...SHARDS },
  read: (words, values: Values<typeof STORE & typeof SHARDS>): PostgresCommand => {
    checkNone(words)
    const { store, data, shards } = values
    if (
      shards !== undefined &&
      (!/^\d{1,5}$/.test(shards) || Number(shards) < 1 || Number(shards) > MAX_SHARDS)
    )
      throw new UsageError(`--shards must be a whole number from 1 to ${MAX_SHARDS}, not "${shards}".`)
    return { name: 'distribute', store, data, shards: shards === undefined ? null : Number(shards) }
  },
})
