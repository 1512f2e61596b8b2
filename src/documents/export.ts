/**
 * Exports a whole database as lines of a couchbackup file (https://github.com/cloudant/couchbackup). Each line is a
 * JSON array of revisions with their ancestry and the contents of their attachments. Every leaf is exported, including
 * tombstones and the losers of conflicts.
 */
import type { Limits, UserCtx } from '../core/types.ts'
import type { DatabaseStore } from '../storage/engine.ts'
import { type BulkGetRow, bulkGetResults } from './bulk-get.ts'
import { inlinePieces, type Piece, pieceChunks } from './pieces.ts'
import { requireServerAdmin } from './security.ts'
import { readContent } from './stored-content.ts'

/** How many ids are read at once, and the maximum number of documents in a line, as in couchbackup. */
const BATCH = 500
/** Characters of documents after which a line ends, so that a reader needs little memory. */
const LINE_CHARS = 1024 * 1024

/**
 * Reads the feed to its end. A document that changes meanwhile is exported again, and no document is missing.
 * @throws unauthorized before the first line
 */
export async function* exportLines(
  store: DatabaseStore,
  user: UserCtx,
  limits: Limits,
): AsyncGenerator<Uint8Array> {
  requireServerAdmin(user)
  const read = (content: Parameters<typeof readContent>[1], start: number, end: number) =>
    readContent(store, content, start, end)
  yield* pieceChunks(linePieces(store, user, limits), read)
}

async function* linePieces(store: DatabaseStore, user: UserCtx, limits: Limits): AsyncGenerator<Piece> {
  let since = 0
  for (;;) {
    const { rows } = await store.readChanges({ since }, { limit: BATCH }, ({ id, seq }) => ({ id, seq }))
    const last = rows.at(-1)
    if (last === undefined) return
    yield* batchPieces(
      store,
      user,
      limits,
      rows.map(({ id }) => id),
    )
    since = last.seq
  }
}

async function* batchPieces(
  store: DatabaseStore,
  user: UserCtx,
  limits: Limits,
  ids: readonly string[],
): AsyncGenerator<Piece> {
  const line = new Line()
  const bytes = Buffer.from(JSON.stringify({ docs: ids.map((id) => ({ id })) }))
  const options = { revs: true, attachments: true }
  for await (const { pages } of bulkGetResults(store, user, { bytes }, options, limits, 'data')) {
    for await (const rows of pages) for (const row of rows) yield* line.add(row)
  }
  yield line.end()
}

/** The length of the current line, for the separator before the next revision. */
class Line {
  #chars = 0

  /** A document purged after its id was read has no revision. */
  add(row: BulkGetRow): Piece[] {
    if ('error' in row) return []
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
