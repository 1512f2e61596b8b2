/** Points in the feeds of other servers (token-position.ts): the table `point`. */
import { setImmediate as nextTurn } from 'node:timers/promises'
import { forgotten, MAX_REMEMBERED, type RememberedPoint, type TokenPart } from '../token-position.ts'
import type { Query, Run } from './connections.ts'
import { readView } from './database-settings.ts'
import type { OpenDatabase } from './open-database.ts'
import { numberArray, textArray } from './parameter-arrays.ts'
import { isTooLong } from './store-fault.ts'
import { storedText } from './stored-text.ts'
import type { Decided, PlannedWrite, WriteCommits } from './write-commits.ts'
import type { WriteContext } from './write-note.ts'

/** A point as it is stored; `parts` is JSON. */
interface StoredPoint {
  readonly family: string
  readonly total: number
  readonly parts: string
  readonly seq: number
}

/** Points that are read or written by one statement. */
const POINTS = 200

const COUNT = { name: 'count_points', text: 'SELECT count(*) FROM point WHERE db = $1' }
const READ_ALL = {
  name: 'read_points',
  text: 'SELECT family, total, parts, seq FROM point WHERE db = $1 ORDER BY at, family, total, parts',
}
const READ_UP_TO = {
  name: 'read_points_up_to',
  text:
    'SELECT parts, total, seq FROM point WHERE db = $1 AND family = $2 AND (total, parts) < ($3, $4) ' +
    `ORDER BY total DESC, parts DESC LIMIT ${POINTS}`,
}

export class FeedPoints {
  readonly #database: OpenDatabase
  readonly #commits: WriteCommits

  constructor(database: OpenDatabase, commits: WriteCommits) {
    this.#database = database
    this.#commits = commits
  }

  /** As {@link DatabaseStore.rememberPoints}. */
  async remember(points: readonly RememberedPoint[]): Promise<void> {
    for (let at = 0; at < points.length; at += POINTS) {
      const some = points.slice(at, at + POINTS).map((point) => ({
        family: storedText(point.family),
        total: point.total,
        parts: JSON.stringify(point.parts),
        seq: point.seq,
      }))
      await this.#add(some)
    }
  }

  /** A point whose parts do not fit into an index is left out: PostgreSQL compresses them, so it alone knows. */
  async #add(points: readonly StoredPoint[]): Promise<void> {
    try {
      await this.#commits.commit(async ({ run }): Promise<Decided> => {
        const { settingsVersion, updateSeq } = await readView(this.#database, run)
        const excess = await this.#forgotten(points, updateSeq, run)
        return { settingsVersion, write: new PointsWrite(points, excess) }
      })
    } catch (error) {
      if (!isTooLong(error)) throw error
      if (points.length > 1) for (const point of points) await this.#add([point])
    }
  }

  /** Which points must go when these are added. */
  async #forgotten(
    added: readonly StoredPoint[],
    updateSeq: number,
    run?: Run,
  ): Promise<readonly StoredPoint[]> {
    const { connections, db } = this.#database
    const read = run ?? ((query: Query) => connections.read(query))
    const [row] = await read({ ...COUNT, values: [db] })
    if ((row?.[0] as number) + added.length <= MAX_REMEMBERED) return []
    const rows = await read({ ...READ_ALL, values: [db] })
    const all = new Map<string, StoredPoint>()
    for (const [family, total, parts, seq] of rows as [string, number, string, number][]) {
      all.set(keyOf({ family, total, parts }), { family, total, parts, seq })
    }
    for (const point of added) {
      const known = all.get(keyOf(point))
      all.set(keyOf(point), { ...point, seq: Math.min(point.seq, known?.seq ?? Infinity) })
    }
    return forgotten([...all.values()], updateSeq)
  }

  /** As {@link DatabaseStore.findPoint}. */
  async find(
    family: string,
    total: number,
    passes: (point: RememberedPoint) => boolean,
  ): Promise<RememberedPoint | null> {
    const { connections, db } = this.#database
    // All parts of this total come before the next one.
    let below: readonly [total: number, parts: string] = [
      Math.min(total, Number.MAX_SAFE_INTEGER - 1) + 1,
      '',
    ]
    for (;;) {
      const rows = await connections.read<[parts: string, total: number, seq: number]>({
        ...READ_UP_TO,
        values: [db, storedText(family), ...below],
      })
      for (const [parts, itsTotal, seq] of rows) {
        const point = { family, total: itsTotal, parts: JSON.parse(parts) as TokenPart[], seq }
        if (passes(point)) return point
      }
      const last = rows.at(-1)
      if (last === undefined || rows.length < POINTS) return null
      below = [last[1], last[0]]
      await nextTurn()
    }
  }
}

function keyOf({ family, total, parts }: Omit<StoredPoint, 'seq'>): string {
  return JSON.stringify([family, total, parts])
}

/** The statement that adds points and forgets others. */
class PointsWrite implements PlannedWrite {
  readonly writes = 1
  readonly updates = 0
  readonly settingsChanges = 0
  readonly #added: readonly StoredPoint[]
  readonly #forgotten: readonly StoredPoint[]

  constructor(added: readonly StoredPoint[], excess: readonly StoredPoint[]) {
    this.#added = added
    this.#forgotten = excess
  }

  query({ db, settingsVersion, opener, token, now }: WriteContext): Query {
    const keys = (points: readonly StoredPoint[]) => [
      textArray(points.map(({ family }) => family)),
      numberArray(points.map(({ total }) => total)),
      textArray(points.map(({ parts }) => parts)),
    ]
    return {
      name: 'write_points',
      text: 'SELECT write_points($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)',
      values: [
        db,
        settingsVersion,
        opener,
        token,
        now,
        ...keys(this.#added),
        numberArray(this.#added.map(({ seq }) => seq)),
        ...keys(this.#forgotten),
      ],
    }
  }
}
