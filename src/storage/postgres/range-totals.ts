/** Counts, skips and measures the documents of a range of ids, by short statements on stretches of it. */
import type { IdRange, RangeSizes } from '../engine.ts'
import type { Query } from './connections.ts'
import { numbered } from './document-statements.ts'
import { after, idCondition } from './id-conditions.ts'
import type { OpenDatabase } from './open-database.ts'
import type { Row } from './prepared-query.ts'
import { attachmentNumber, textOf } from './stored-text.ts'

/** Documents that one statement counts, in indexes alone, in about 2 ms. */
export const MAX_STRETCH = 10_000
/** The fewest, so that a skip of a few documents passes many deleted ones with few statements. */
const FEWEST = 100
/** Documents that one statement measures, whose rows it reads. */
const MEASURED = 1000

export class RangeTotals {
  readonly #database: Pick<OpenDatabase, 'connections' | 'db'>

  constructor(database: Pick<OpenDatabase, 'connections' | 'db'>) {
    this.#database = database
  }

  /** As {@link DatabaseStore.countRange}. */
  async count(range: IdRange): Promise<number> {
    let total = 0
    for (let rest: IdRange | null = range; rest !== null; ) {
      const { live, last } = await this.#countStretch(rest, MAX_STRETCH)
      total += live
      rest = last === null ? null : after(range, last)
    }
    return total
  }

  /** As {@link DatabaseStore.skipRange}. */
  async skip(range: IdRange, documents: number): Promise<IdRange | null> {
    let rest = range
    for (let left = documents; left > 0; ) {
      const { live, last } = await this.#countStretch(rest, Math.min(Math.max(left, FEWEST), MAX_STRETCH))
      if (live > left || (live === left && last === null)) {
        const id = await this.#liveIdAt(rest, left)
        if (id !== null) return after(range, id)
      }
      if (last === null) return null
      left -= live
      rest = after(range, last)
    }
    return rest
  }

  /** As {@link DatabaseStore.measureRange}. */
  async measure(range: IdRange): Promise<RangeSizes> {
    const sizes = { docCount: 0, deletedCount: 0, active: 0, external: 0 }
    for (let rest: IdRange | null = range; rest !== null; ) {
      const [row] = await this.#read(MEASURE, rest, { limit: MEASURED })
      const [rows, deleted, external, active, last] = row as readonly [
        number,
        number,
        number,
        number,
        string | null,
      ]
      sizes.docCount += rows - deleted
      sizes.deletedCount += deleted
      sizes.external += external
      sizes.active += active
      rest = rows < MEASURED || last === null ? null : after(range, textOf(last))
    }
    return sizes
  }

  /** The first documents of a range, deleted ones included; the range itself if it has fewer. */
  async stretchOf(range: IdRange, documents: number): Promise<IdRange> {
    const [row] = await this.#read(PLACE, range, { skipped: documents - 1 })
    return row === undefined ? range : { ...range, end: { id: textOf(row[0] as string), inclusive: true } }
  }

  /** Whether a range has a live document. */
  async hasLive(range: IdRange): Promise<boolean> {
    for (let rest = range; ; ) {
      const stretch = await this.stretchOf(rest, MAX_STRETCH)
      if ((await this.#liveIdAt(stretch, 1)) !== null) return true
      if (stretch === rest) return false
      rest = after(range, stretch.end?.id as string)
    }
  }

  /** Counts the live ones among the first documents of a range. @returns `last`: the id of the last; null at its end */
  async #countStretch(
    range: IdRange,
    limit: number,
  ): Promise<{ readonly live: number; readonly last: string | null }> {
    const [row] = await this.#read(COUNT, range, { limit })
    const [rows, last, deleted] = row as readonly [number, string | null, number]
    return { live: rows - deleted, last: rows < limit || last === null ? null : textOf(last) }
  }

  /** The id of the live document at a place of a range, from 1; null beyond its end. */
  async #liveIdAt(range: IdRange, place: number): Promise<string | null> {
    const [row] = await this.#read(LIVE_PLACE, range, { skipped: place - 1 })
    return row === undefined ? null : textOf(row[0] as string)
  }

  #read(template: Template, range: IdRange, values: Readonly<Record<string, unknown>>): Promise<Row[]> {
    const condition = idCondition(range)
    const query = queryOf(template, condition, { db: this.#database.db, ...condition.values, ...values })
    return this.#database.connections.read(query)
  }
}

/** A statement on a range. */
interface Template {
  readonly name: string
  text(condition: ReturnType<typeof idCondition>): string
}

const COUNT: Template = {
  name: 'count_ids',
  text: ({ where, order }) => {
    const [last, beyond] = order.endsWith('DESC') ? ['min', '>='] : ['max', '<=']
    return (
      `WITH s AS MATERIALIZED (SELECT count(*) AS n, ${last}(y.id) AS last FROM (` +
      `SELECT x.id FROM doc x WHERE ${where} ORDER BY ${order} LIMIT {limit}) y) ` +
      `SELECT s.n, s.last, (SELECT count(*) FROM doc x WHERE ${where} AND x.deleted AND x.id ${beyond} s.last) FROM s`
    )
  },
}

const PLACE: Template = {
  name: 'id_at',
  text: ({ where, order }) =>
    `SELECT x.id FROM doc x WHERE ${where} ORDER BY ${order} OFFSET {skipped} LIMIT 1`,
}

const LIVE_PLACE: Template = {
  name: 'live_id_at',
  text: ({ where, order }) =>
    `SELECT x.id FROM doc x WHERE ${where} AND NOT x.deleted ORDER BY ${order} OFFSET {skipped} LIMIT 1`,
}

/** The stored bytes of the attachments of a row. */
const STORED = (table: string) =>
  `CASE WHEN ${table}.attachments IS NULL THEN 0 ELSE (SELECT coalesce(sum(${attachmentNumber('a.value', 'storedLength')}), 0) ` +
  `FROM json_array_elements(listed_attachments(${table}.attachments)) a) END`

const MEASURE: Template = {
  name: 'measure_ids',
  text: ({ where, order }) => {
    const last = order.endsWith('DESC') ? 'min' : 'max'
    const leaves = (sum: string) =>
      `(SELECT sum(${sum}) FROM revision r WHERE r.db = {db} AND r.id = x.id AND r.leaf)`
    return (
      `SELECT count(*), count(*) FILTER (WHERE y.deleted), coalesce(sum(y.external), 0)::bigint, ` +
      `coalesce(sum(y.active), 0)::bigint, ${last}(y.id) FROM (SELECT x.id, x.deleted, ` +
      `x.size + CASE WHEN x.leaves > 1 THEN ${leaves('r.size')} ELSE 0 END AS external, ` +
      `octet_length(x.body) + ${STORED('x')} + ` +
      `CASE WHEN x.leaves > 1 THEN ${leaves(`octet_length(r.body) + ${STORED('r')}`)} ELSE 0 END AS active ` +
      `FROM doc x WHERE ${where} ORDER BY ${order} LIMIT {limit}) y`
    )
  },
}

const texts = new Map<string, { readonly text: string; readonly names: readonly string[] }>()

function queryOf(
  template: Template,
  condition: ReturnType<typeof idCondition>,
  values: Readonly<Record<string, unknown>>,
): Query {
  const name = `${template.name}_${condition.name}`
  let statement = texts.get(name)
  if (statement === undefined) {
    statement = numbered(template.text(condition))
    texts.set(name, statement)
  }
  return { name, text: statement.text, values: statement.names.map((each) => values[each]) }
}
