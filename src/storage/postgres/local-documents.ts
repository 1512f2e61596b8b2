/** `_local` documents: the tables `local_doc` and `met`. */
import { agrees, localChecksum } from '../checksum.ts'
import type { IdRange, LocalDoc, LocalUpdate, Outcome, Page, Paging, StoreView } from '../engine.ts'
import type { Query, Run } from './connections.ts'
import { VIEW_COLUMNS, type ViewRow } from './database-view.ts'
import { GroupQueue, type QueuedWrite } from './group-queue.ts'
import type { OpenDatabase } from './open-database.ts'
import { numberArray, textArray } from './parameter-arrays.ts'
import { checkedIdBytes, rowBytes } from './row-bytes.ts'
import { refuseLongKey, storedText, textOf } from './stored-text.ts'
import type { Attempt, Decided, PlannedWrite, WriteCommits } from './write-commits.ts'
import { firstValues } from './write-functions.ts'
import type { WriteContext } from './write-note.ts'

type LocalDecision = ReturnType<LocalUpdate<unknown>['decide']>

/** A local document as it was read. */
interface LoadedLocal {
  /** null also if it is damaged. */
  readonly doc: LocalDoc | null
  /** Bytes of the body as it is stored; null if there is none. */
  readonly bodyBytes: number | null
  /** 0 if there is none. */
  readonly version: number
  readonly wasChecked: boolean
}

/** A row of a page; null: it is damaged. */
interface FoundLocal {
  readonly id: string
  readonly doc: LocalDoc | null
}

interface Job extends QueuedWrite {
  readonly update: LocalUpdate<unknown>
  done(outcome: Outcome<unknown>): void
}

/** What was decided for a document of a group. */
interface Change {
  readonly id: string
  readonly version: number
  readonly write: { readonly rev: number; readonly body: string } | null | undefined
  readonly checksum: number
  readonly isNewlyChecked: boolean
  /** What the change adds to the database's bytes. */
  readonly grown: number
}

type LocalRow = readonly [id: string, rev: number, body: string, checksum: number | null]
type LocalColumns = readonly [
  id: string,
  version: number | null,
  ...rest: readonly [rev: number, body: string, checksum: number | null],
  wasChecked: boolean,
]

/** About how many bytes a write takes. */
const LOCAL_BYTES = 1024
/** Rows, and bytes of bodies, that one statement of a page reads. */
const STEP_ROWS = 500
const STEP_BYTES = 4 * 1024 * 1024

const READ = {
  name: 'read_locals',
  text:
    'SELECT l.id, l.rev, l.body, l.checksum FROM unnest($2::text[]) AS w (id) CROSS JOIN LATERAL ' +
    '(SELECT id, rev, body, checksum FROM local_doc AS k WHERE k.db = $1 AND k.id = w.id OFFSET 0) AS l',
}
/** A row for each id, also of those that are not stored. */
const LOAD = {
  name: 'load_locals',
  text: `SELECT ${VIEW_COLUMNS}, w.id, l.version, l.rev, l.body, l.checksum, m.id IS NOT NULL
    FROM database AS d CROSS JOIN unnest($2::text[]) AS w (id)
      LEFT JOIN LATERAL (SELECT * FROM local_doc AS k WHERE k.db = $1 AND k.id = w.id OFFSET 0) AS l ON true
      LEFT JOIN LATERAL (SELECT id FROM met AS k WHERE k.db = $1 AND k.id = w.id OFFSET 0) AS m ON true
    WHERE d.db = $1`,
}

export class LocalDocuments {
  readonly #database: OpenDatabase
  readonly #commits: WriteCommits
  readonly #queue: GroupQueue<Job>

  constructor(database: OpenDatabase, commits: WriteCommits) {
    this.#database = database
    this.#commits = commits
    this.#queue = new GroupQueue({ commit: (group) => this.#commit(group) })
  }

  /** As {@link DatabaseStore.readLocals}. */
  async read(ids: readonly string[]): Promise<(LocalDoc | null)[]> {
    const { db, connections } = this.#database
    const values = [db, textArray(ids.map(storedText))]
    const rows = await connections.read<LocalRow>({ ...READ, values })
    const found = new Map(rows.map((row) => [textOf(row[0]), this.#sound(row)]))
    return ids.map((id) => found.get(id) ?? null)
  }

  /** A damaged document counts as missing, and is reported, as in storage/sqlite/documents.ts. */
  #sound([id, rev, body, checksum]: LocalRow): LocalDoc | null {
    const doc = { id: textOf(id), rev, body: textOf(body) }
    if (agrees(checksum, localChecksum(doc), true)) return doc
    this.#database.damage.damagedDocument(doc.id)
    return null
  }

  /** As {@link DatabaseStore.readLocalRange}. */
  async readRange(range: IdRange, { limit, chars = Infinity }: Paging): Promise<Page<LocalDoc>> {
    const rows: LocalDoc[] = []
    let rest = range
    let left = chars
    for (;;) {
      const step = Math.min(limit - rows.length, STEP_ROWS)
      const page = await this.#readStep(rest, step, Math.min(left, STEP_BYTES))
      for (const [at, { id, doc }] of page.docs.entries()) {
        if (doc !== null) rows.push(doc)
        left -= doc?.body.length ?? 0
        const more = at + 1 < page.docs.length || page.more
        if (left <= 0 || rows.length >= limit || !more) return { rows, more, view: page.view }
        rest = { ...range, start: { id, inclusive: false } }
      }
      if (!page.more) return { rows, more: false, view: page.view }
    }
  }

  /** @returns at least one document if there is one; `more`: whether there are others */
  #readStep(
    range: IdRange,
    rows: number,
    bytes: number,
  ): Promise<{ readonly docs: readonly FoundLocal[]; readonly more: boolean; readonly view: StoreView }> {
    const { connections, views } = this.#database
    const { name, where, values } = this.#bounds(range)
    const order = range.descending ? 'DESC' : 'ASC'
    const text = `SELECT ${VIEW_COLUMNS}, l.id, l.rev, l.body, l.checksum, l.found
      FROM database AS d LEFT JOIN (
        SELECT id, rev, body, checksum, count(*) OVER () AS found, row_number() OVER (ORDER BY id ${order}) AS n,
            sum(octet_length(body)) OVER (ORDER BY id ${order}) - octet_length(body) AS before
          FROM (SELECT id, rev, body, checksum FROM local_doc WHERE ${where} ORDER BY id ${order} LIMIT $4 + 1) AS i
      ) AS l ON l.n <= $4 AND (l.before < $5 OR l.n = 1)
      WHERE d.db = $1 ORDER BY l.n`
    type Columns = readonly [
      id: string | null,
      ...rest: readonly [rev: number, body: string, checksum: number | null, found: number],
    ]
    return views.reading(
      async () => {
        const read = await connections.read<readonly [...ViewRow, ...Columns]>({
          name: `read_local_range_${name}`,
          text,
          values: [...values, rows, bytes],
        })
        return { view: viewRow(read[0]), rows: read }
      },
      (read, view) => {
        const docs = read.flatMap(([, , , , id, rev, body, checksum]) =>
          id === null ? [] : { id: textOf(id), doc: this.#sound([id, rev, body, checksum]) },
        )
        return { docs, more: docs.length > 0 && (read[0]?.[8] ?? 0) > docs.length, view }
      },
    )
  }

  /** As {@link DatabaseStore.countLocals}. */
  async count(range: IdRange): Promise<number> {
    const { name, where, values } = this.#bounds(range)
    const [row] = await this.#database.connections.read<[rows: number]>({
      name: `count_locals_${name}`,
      text: `SELECT count(*) FROM local_doc WHERE ${where}`,
      values,
    })
    return row?.[0] ?? 0
  }

  /** A range as a condition on `local_doc`. An absent bound is the empty text, or null above. */
  #bounds({ start, end, descending = false }: IdRange) {
    const [low, high] = descending ? [end, start] : [start, end]
    const above = low === undefined || low.inclusive ? '>=' : '>'
    const below = high === undefined || high.inclusive ? '<=' : '<'
    const upper = high === undefined ? '$3::text IS NULL' : `id ${below} $3`
    return {
      name: `${descending ? 'down' : 'up'}${above}${high === undefined ? '' : below}`,
      where: `db = $1 AND id ${above} $2 AND ${upper}`,
      values: [this.#database.db, storedText(low?.id ?? ''), high === undefined ? null : storedText(high.id)],
    }
  }

  /** As {@link DatabaseStore.updateLocals}. */
  async update<R>(updates: readonly LocalUpdate<R>[]): Promise<Outcome<R>[]> {
    return Promise.all(
      updates.map(
        (update) =>
          new Promise<Outcome<R>>((resolve, reject) => {
            const done = (outcome: Outcome<unknown>) => resolve(outcome as Outcome<R>)
            const failed = (error: unknown) => resolve({ error })
            try {
              this.#queue.add([{ id: update.id, bytes: LOCAL_BYTES, update, done, failed }])
            } catch (error) {
              reject(error)
            }
          }),
      ),
    )
  }

  /** Resolves when all writes are answered. */
  drained(): Promise<void> {
    return this.#queue.drained()
  }

  async #commit(group: readonly Job[]): Promise<void> {
    let outcomes: readonly Outcome<unknown>[] = []
    await this.#commits.commit(async ({ run }: Attempt): Promise<Decided> => {
      const { loaded, view } = await this.#load(group, run)
      const changes: Change[] = []
      outcomes = group.map(({ update }, at) => this.#decide(update, loaded[at] as LoadedLocal, view, changes))
      const write = changes.length === 0 ? null : new LocalWrite(changes)
      return { settingsVersion: view.settingsVersion, write }
    })
    for (const [at, job] of group.entries()) job.done(outcomes[at] as Outcome<unknown>)
  }

  #load(
    group: readonly Job[],
    run?: Run,
  ): Promise<{ readonly loaded: LoadedLocal[]; readonly view: StoreView }> {
    const { connections, views, db } = this.#database
    const query: Query = { ...LOAD, values: [db, textArray(group.map(({ id }) => storedText(id)))] }
    return views.reading(
      async () => {
        const read = run ?? ((query) => connections.read(query))
        const rows = await read<readonly [...ViewRow, ...LocalColumns]>(query)
        return { view: viewRow(rows[0]), rows }
      },
      (rows, view) => {
        const found = new Map(
          rows.map(([, , , , stored, version, rev, body, checksum, wasChecked]) => {
            const doc = version === null ? null : this.#sound([stored, rev, body, checksum])
            const bodyBytes = version === null ? null : Buffer.byteLength(body)
            return [textOf(stored), { doc, bodyBytes, version: version ?? 0, wasChecked }]
          }),
        )
        return { loaded: group.map(({ id }) => found.get(id) as LoadedLocal), view }
      },
    )
  }

  #decide(
    { id, decide }: LocalUpdate<unknown>,
    { doc, bodyBytes, version, wasChecked }: LoadedLocal,
    view: StoreView,
    changes: Change[],
  ): Outcome<unknown> {
    let decision: LocalDecision
    try {
      refuseLongKey(id)
      decision = decide(doc, view, view.wasRestored && wasChecked)
    } catch (error) {
      return { error }
    }
    const { result, write, checked = false } = decision
    const isNewlyChecked = checked && view.wasRestored && !wasChecked
    if (write !== undefined || isNewlyChecked) {
      const stored = storedText(id)
      const grown =
        (write === undefined ? 0 : localBytes(stored, newBytes(write)) - localBytes(stored, bodyBytes)) +
        (isNewlyChecked ? checkedIdBytes(stored) : 0)
      const checksum = write == null ? 0 : localChecksum({ id, ...write })
      changes.push({ id: stored, version, write, checksum, isNewlyChecked, grown })
    }
    return { result }
  }
}

/** The statement that writes a group. */
class LocalWrite implements PlannedWrite {
  readonly updates = 0
  readonly settingsChanges = 0
  readonly writes: number
  readonly #changes: readonly Change[]

  constructor(changes: readonly Change[]) {
    this.#changes = changes
    this.writes = changes.length
  }

  query({ db, settingsVersion, opener, token, now }: WriteContext): Query {
    const changes = this.#changes
    return {
      name: 'store_locals',
      text: `SELECT store_locals(${firstValues(12)})`,
      values: [
        db,
        settingsVersion,
        opener,
        token,
        now,
        textArray(changes.map(({ id }) => id)),
        numberArray(changes.map(({ version }) => version)),
        numberArray(changes.map(({ write }) => (write === undefined ? KEEP : (write?.rev ?? REMOVE)))),
        textArray(changes.map(({ write }) => (write == null ? null : storedText(write.body)))),
        textArray(changes.flatMap(({ id, isNewlyChecked }) => (isNewlyChecked ? id : []))),
        changes.reduce((sum, { grown }) => sum + grown, 0),
        numberArray(changes.map(({ checksum }) => checksum)),
      ],
    }
  }
}

function newBytes(write: { readonly body: string } | null): number | null {
  return write === null ? null : Buffer.byteLength(storedText(write.body))
}

/** @param id as it is stored @param body bytes of the body; null if there is no document @returns the bytes of its row */
function localBytes(id: string, body: number | null): number {
  return body === null ? 0 : rowBytes({ key: Buffer.byteLength(id), ancestry: 0, body })
}

/** In the place of a revision: the document stays as it is, or is removed. */
const KEEP = -1
const REMOVE = -2

function viewRow(row: readonly [...ViewRow, ...(readonly unknown[])] | undefined): ViewRow | null {
  return row === undefined ? null : [row[0], row[1], row[2], row[3]]
}
