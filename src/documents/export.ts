/**
 * Exports a whole database as lines of a couchbackup file (https://github.com/cloudant/couchbackup). Each line is a
 * JSON array of revisions with their ancestry and the contents of their attachments. Every leaf is exported, including
 * tombstones and the losers of conflicts.
 */
import { CouchError, isDamage } from '../core/errors.ts'
import type { Limits, UserCtx } from '../core/types.ts'
import type { DatabaseStore } from '../storage/engine.ts'
import { bulkGetResults } from './bulk-get.ts'
import { inlinePieces, type Piece, pieceChunks } from './pieces.ts'
import type { RenderedDocument } from './render.ts'
import { requireServerAdmin } from './security.ts'
import { readContent } from './stored-content.ts'

/** How many ids are read at once, and the maximum number of documents in a line, as in couchbackup. */
const BATCH = 500
/** Characters of documents after which a line ends, so that a reader needs little memory. */
const LINE_CHARS = 1024 * 1024

/** How many damaged revisions are named. */
const MAX_NAMED = 20

/**
 * Reads the feed to its end. A document that changes meanwhile is exported again, and no document is missing.
 * @throws unauthorized before the first line; incomplete_export after the last line, if something damaged is left out
 */
export async function* exportLines(
  store: DatabaseStore,
  user: UserCtx,
  limits: Limits,
): AsyncGenerator<Uint8Array> {
  requireServerAdmin(user)
  const read = (content: Parameters<typeof readContent>[1], start: number, end: number) =>
    readContent(store, content, start, end)
  const gaps = new Gaps()
  yield* pieceChunks(linePieces(store, user, limits, gaps), read)
  gaps.refuseAny()
}

async function* linePieces(
  store: DatabaseStore,
  user: UserCtx,
  limits: Limits,
  gaps: Gaps,
): AsyncGenerator<Piece> {
  for (let since = 0; ; ) {
    const page = await store.readChanges({ since }, { limit: BATCH }, ({ id, seq }) => ({ id, seq }))
    gaps.addUnnamed(page.damaged ?? 0)
    const last = page.rows.at(-1)
    if (last === undefined) return
    const ids = page.rows.map(({ id }) => id)
    yield* batchPieces(store, user, limits, ids, gaps)
    // Another page would count damaged rows at the end again.
    if (!page.more) return
    since = last.seq
  }
}

async function* batchPieces(
  store: DatabaseStore,
  user: UserCtx,
  limits: Limits,
  ids: readonly string[],
  gaps: Gaps,
): AsyncGenerator<Piece> {
  const line = new Line()
  const bytes = Buffer.from(JSON.stringify({ docs: ids.map((id) => ({ id })) }))
  const options = { revs: true, attachments: true }
  for await (const { id, pages } of bulkGetResults(store, user, { bytes }, options, limits, 'data')) {
    for await (const rows of pages) {
      for (const row of rows) {
        if ('error' in row) gaps.add(row.error as GapRow)
        else if (await areReadable(store, row.contents)) yield* line.add(row)
        else gaps.add({ id: String(id), rev: row.rev, error: DAMAGED })
      }
    }
  }
  yield line.end()
}

/** Reads contents before the revision's line begins, since a line that breaks off would break the file. */
async function areReadable(store: DatabaseStore, contents: RenderedDocument['contents']): Promise<boolean> {
  try {
    for (const content of contents)
      for await (const _step of readContent(store, content, 0, content.storedLength));
    return true
  } catch (error) {
    if (isDamage(error)) return false
    throw error
  }
}

const DAMAGED = new CouchError('damaged_document').error

interface GapRow {
  readonly id: string
  readonly rev: string
  /** Of the answer. */
  readonly error: string
}

/** The damaged revisions that an export lacks. */
class Gaps {
  #count = 0
  readonly #names: string[] = []

  /** @param row a revision that cannot be read, or one that was purged after its id was read */
  add({ id, rev, error }: GapRow): void {
    if (error !== DAMAGED) return
    this.#count += 1
    if (this.#names.length < MAX_NAMED) this.#names.push(`${id} (${rev})`)
  }

  addUnnamed(count: number): void {
    this.#count += count
  }

  /** @throws incomplete_export if there are any */
  refuseAny(): void {
    if (this.#count === 0) return
    const revisions = this.#count === 1 ? '1 revision' : `${this.#count} revisions`
    const names = this.#names.length === 0 ? '' : `: ${this.#names.join(', ')}`
    throw new CouchError(
      'incomplete_export',
      `The export lacks ${revisions}, which the disk has damaged${names}. It has everything else.`,
    )
  }
}

/** The length of the current line, for the separator before the next revision. */
class Line {
  #chars = 0

  add(row: RenderedDocument): Piece[] {
    const before = this.#chars === 0 ? '[' : this.#chars > LINE_CHARS ? ']\n[' : ','
    if (this.#chars > LINE_CHARS) this.#chars = 0
    for (const text of row.texts) this.#chars += text.length
    for (const { length } of row.contents) this.#chars += length
    return [before, ...inlinePieces(row)]
  }

  end(): Piece {
    return this.#chars === 0 ? '' : ']\n'
  }
}
