/**
 * Checks everything that is stored of a database: each row with its checksum, that none is missing, the counters, and each content with
 * its digest. It works in short statements, so that any node can do it while the database is in use.
 */
import { createHash } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { isFileFault } from '../../core/errors.ts'
import { jsonObjectIn } from '../../core/json.ts'
import { CHUNK_BYTES } from '../content-upload.ts'
import { type DamagedPart, FoundDamage } from '../damage.ts'
import type { CheckPosition, CheckStep } from '../storage-engine.ts'
import { CHECKED_TABLES, type CheckedTable, type KeyPart } from './checked-rows.ts'
import type { Connections, Query } from './connections.ts'
import { isSoundSecurity } from './database-view.ts'
import type { Row } from './prepared-query.ts'
import { listedAttachments } from './row-checksums.ts'
import { readChunks } from './stored-contents.ts'
import { textOf } from './stored-text.ts'

/** Rows that one statement reads. */
const ROWS = 50
/** Contents and names of contents that one statement lists. */
const CONTENTS = 100
/** Chunks that one statement reads. */
const CHUNKS = 4
/** After each statement it pauses for as long as that took, in ms at most. */
const MAX_PAUSE_MS = 50
/** How many attachments are named that share one damaged content. */
const MAX_SHARING = 10
/** Documents that one statement counts. */
const MAX_COUNTED = 20_000

interface CheckedDatabase {
  readonly connections: Pick<Connections, 'read'>
  /** As of an open database. */
  readonly db: number
}

const COUNTERS = {
  name: 'check_counters',
  text: `SELECT d.doc_count + d.deleted_count = coalesce((SELECT sum(f.rows) FROM feed_count f WHERE f.db = $1), 0)
      AND d.update_seq >= coalesce((SELECT max(x.seq) FROM doc x WHERE x.db = $1), 0)
      AND (d.doc_count + d.deleted_count > ${MAX_COUNTED} OR (d.doc_count, d.deleted_count)
        = (SELECT count(*) FILTER (WHERE NOT x.deleted), count(*) FILTER (WHERE x.deleted) FROM doc x WHERE x.db = $1)
        AND NOT EXISTS (SELECT FROM (SELECT x.seq >> 10 AS stretch, count(*) AS rows FROM doc x WHERE x.db = $1 GROUP BY 1) AS n
          FULL JOIN (SELECT f.stretch, f.rows FROM feed_count f WHERE f.db = $1 AND f.rows <> 0) AS f USING (stretch)
          WHERE n.rows IS DISTINCT FROM f.rows)),
      d.security, d.security_checksum
    FROM database d WHERE d.db = $1`,
}
type CountersRow = readonly [areRight: boolean, security: string | null, checksum: number | null]

/** For {@link CheckStep.share}. */
const SIZE = {
  name: 'check_size',
  text: 'SELECT doc_count + deleted_count, last_blob FROM database WHERE db = $1',
}

/** The next contents that attachments name, and whether they are stored. */
const NAMED = {
  name: 'check_named_blobs',
  text: `SELECT n.blob, EXISTS (SELECT FROM blob b WHERE b.db = $1 AND b.blob = n.blob AND b.sha256 IS NOT NULL)
    FROM (SELECT DISTINCT blob FROM blob_use WHERE db = $1 AND blob > $2 ORDER BY blob LIMIT ${CONTENTS}) AS n ORDER BY n.blob`,
}
const COMPLETE = {
  name: 'check_complete_blobs',
  text: `SELECT blob FROM blob WHERE db = $1 AND blob > $2 AND sha256 IS NOT NULL ORDER BY blob LIMIT ${CONTENTS}`,
}
const ATTACHED = {
  name: 'attached_to_blob',
  text: `SELECT u.id, u.rev, coalesce(
      (SELECT d.attachments FROM doc d WHERE d.db = $1 AND d.id = u.id AND d.rev = u.rev),
      (SELECT r.attachments FROM revision r WHERE r.db = $1 AND r.id = u.id AND r.rev = u.rev), '')
    FROM blob_use u WHERE u.db = $1 AND u.blob = $2 ORDER BY u.id, u.rev LIMIT ${MAX_SHARING}`,
}

/** How far the rows of a table are checked, as the position of a check has it. */
interface RowPlace {
  /** The key of the last one that is sound. */
  readonly after: readonly KeyPart[]
  /** How many rows after that one are damaged: their keys may be, too. */
  readonly skip: number
  readonly rows: number
}

/** The places of the contents in a position, after those of {@link CHECKED_TABLES}. */
const NAMED_CONTENTS = CHECKED_TABLES.length
const WHOLE_CONTENTS = NAMED_CONTENTS + 1
const PLACES = WHOLE_CONTENTS + 1

/**
 * Checks some rows at least, as of {@link StorageEngine.checkDatabase}.
 * @throws as `Connections.read`
 */
export async function checkStored(
  database: CheckedDatabase,
  from: CheckPosition | null,
  ms: number,
): Promise<CheckStep> {
  const until = performance.now() + ms
  const check = new StoredCheck(database)
  if (from === null) await check.whole()
  let next: CheckPosition | null = from ?? { table: 0, above: 0 }
  do next = await check.stretch(next)
  while (next !== null && performance.now() < until)
  return { next, share: next === null ? 1 : await check.shareBefore(next), damage: check.found }
}

class StoredCheck {
  readonly #database: CheckedDatabase
  readonly #damage = new FoundDamage()

  constructor(database: CheckedDatabase) {
    this.#database = database
  }

  get found() {
    return this.#damage.found
  }

  /** What belongs to the database as a whole. */
  async whole(): Promise<void> {
    const [row] = await this.#tried(() => this.#read<CountersRow>({ ...COUNTERS, values: [this.#db] }), [])
    if (row === undefined) return
    const [areRight, security, checksum] = row
    if (!areRight) this.#damage.add({ kind: 'counters' })
    if (!isSoundSecurity(security, checksum)) this.#damage.add({ kind: 'security' })
  }

  /** Checks a stretch. @returns where the next begins; null after the last */
  async stretch({ table, above }: CheckPosition): Promise<CheckPosition | null> {
    const rows = CHECKED_TABLES[table]
    const next: number | string | null =
      rows !== undefined
        ? await this.#rows(rows, placeOf(rows, above))
        : await this.#tried(() => this.#contents(table, Number(above)), null)
    if (next !== null) return { table, above: next }
    return table + 1 < PLACES ? { table: table + 1, above: 0 } : null
  }

  async #rows(table: CheckedTable, place: RowPlace): Promise<string | null> {
    const { after, skip } = place
    const page = (limit: number) => this.#read(table.read(this.#db, after, skip, limit))
    let rows = await this.#ofDisk(() => page(ROWS))
    // One row of them cannot be read, perhaps.
    rows ??= await this.#ofDisk(() => page(1))
    rows ??= await this.#tried(() => this.#unreadable(table, place), [])
    if (rows.length === 0) return null
    const next = this.#checked(table, place, rows)
    return rows.at(-1)?.at(-1) === true ? null : JSON.stringify(next)
  }

  /** @returns the key of the row at a place */
  async #unreadable(table: CheckedTable, { after, skip }: RowPlace): Promise<Row[]> {
    const keys = await this.#read(table.readKeys(this.#db, after, skip))
    for (const key of keys) this.#damage.add(table.unreadable(key as readonly KeyPart[]))
    return keys.map(() => UNREADABLE)
  }

  #checked(table: CheckedTable, { after, skip, rows: before }: RowPlace, rows: readonly Row[]): RowPlace {
    let sound = -1
    for (const [at, row] of rows.entries()) {
      const faults = row === UNREADABLE ? null : faultsOf(table, row)
      if (faults?.length === 0) sound = at
      for (const part of faults ?? []) this.#damage.add(part)
    }
    const done = before + rows.length
    if (sound < 0) return { after, skip: skip + rows.length, rows: done }
    const key = (rows[sound] as Row).slice(0, table.first.length) as readonly KeyPart[]
    return { after: key, skip: rows.length - 1 - sound, rows: done }
  }

  /** @param above the last content that is done @returns the last one that is done now; null at the end */
  async #contents(table: number, above: number): Promise<number | null> {
    const values = [this.#db, above]
    if (table === NAMED_CONTENTS) {
      const named = await this.#read<readonly [number, boolean]>({ ...NAMED, values })
      for (const [blob, isStored] of named) if (!isStored) await this.#damagedContent(blob)
      return lastOf(named)
    }
    const found = await this.#read<readonly [number]>({ ...COMPLETE, values })
    for (const [blob] of found) if (!(await this.#isWhole(blob))) await this.#damagedContent(blob)
    return lastOf(found)
  }

  /** Compares a content with its digest. @returns true also if it was removed meanwhile */
  async #isWhole(blob: number): Promise<boolean> {
    const hash = createHash('sha256')
    let bytes = 0
    for (let first = 0; ; first += CHUNKS) {
      const database = {
        connections: { read: <R extends Row>(query: Query) => this.#read<R>(query) },
        db: this.#db,
      }
      const read = await this.#ofDisk(async () => [await readChunks(database, blob, first, CHUNKS)] as const)
      if (read === null) return false
      if (read[0] === null) return true
      const { chunks, length, sha256, isSound } = read[0]
      for (const chunk of chunks.slice(0, Math.ceil(length / CHUNK_BYTES) - first)) {
        if (chunk === null) return false
        hash.update(chunk)
        bytes += chunk.length
      }
      if ((first + CHUNKS) * CHUNK_BYTES >= length)
        return isSound && bytes === length && hash.digest().equals(sha256)
    }
  }

  async #damagedContent(blob: number): Promise<void> {
    const found = await this.#read<readonly [id: string, rev: string, list: string]>({
      ...ATTACHED,
      values: [this.#db, blob],
    })
    for (const [id, rev, list] of found)
      for (const name of namesOf(list, blob))
        this.#damage.add({ kind: 'attachment', id: textOf(id), rev: textOf(rev), name })
  }

  /** About how much lies before a position, 0 to 1. */
  async shareBefore({ table, above }: CheckPosition): Promise<number> {
    const [row] = await this.#read<readonly [docs: number, lastBlob: number]>({
      ...SIZE,
      values: [this.#db],
    })
    const [docs, lastBlob] = row ?? [0, 0]
    const rows = CHECKED_TABLES[table]
    const done = rows === undefined ? Number(above) : placeOf(rows, above).rows
    const expected = rows === undefined ? lastBlob : Math.max(rows.rowsOf(docs), done)
    return (table + Math.min(done / Math.max(expected, 1), 1)) / PLACES
  }

  get #db(): number {
    return this.#database.db
  }

  async #read<R extends Row>(query: Query): Promise<R[]> {
    const began = performance.now()
    const rows = await this.#database.connections.read<R>(query)
    await sleep(Math.min(performance.now() - began, MAX_PAUSE_MS))
    return rows
  }

  /** @returns null if the disk or PostgreSQL's pages have a fault */
  async #ofDisk<R>(read: () => Promise<R>): Promise<R | null> {
    try {
      return await read()
    } catch (error) {
      if (isFileFault(error)) return null
      throw error
    }
  }

  /** As {@link #ofDisk}, where the fault hides what it belongs to. */
  async #tried<R>(read: () => Promise<R>, otherwise: R): Promise<R> {
    const found = await this.#ofDisk(async () => ({ read: await read() }))
    if (found === null) this.#damage.add({ kind: 'file' })
    return found === null ? otherwise : found.read
  }
}

/** @returns null if no others follow; those that are added meanwhile are not waited for */
function lastOf(page: readonly (readonly [blob: number, ...rest: unknown[]])[]): number | null {
  return page.length < CONTENTS ? null : (page.at(-1)?.[0] ?? null)
}

/** In the place of a row that cannot be read. */
const UNREADABLE: Row = []

/** A damaged row may have what no function expects. */
function faultsOf(table: CheckedTable, row: Row): readonly DamagedPart[] {
  try {
    return table.faults(row)
  } catch {
    return [table.unreadable(row.slice(0, table.first.length) as readonly KeyPart[])]
  }
}

/** @param above of a position; a number at the beginning of the table */
function placeOf({ first }: CheckedTable, above: CheckPosition['above']): RowPlace {
  const known = typeof above === 'string' ? jsonObjectIn(above) : null
  return known === null ? { after: first, skip: 0, rows: 0 } : (known as unknown as RowPlace)
}

/** The names that a stored list has for a content; null if it does not say. */
function namesOf(list: string, blob: number): readonly (string | null)[] {
  try {
    const names = listedAttachments(list)
      .filter((each) => each.blob === blob)
      .map(({ name }) => name)
    return names.length === 0 ? [null] : names
  } catch {
    return [null]
  }
}
