/** Lists the documents in conflict, for people who want to settle them; docs/settee-api.md. */
import { CouchError } from '../core/errors.ts'
import { Yielder } from '../core/event-loop.ts'
import type { UserCtx } from '../core/types.ts'
import { conflicts as losingLeaves } from '../revisions/branch.ts'
import type { DatabaseStore, DocState, ForkedPage } from '../storage/engine.ts'
import type { ConflictsPage } from './database.ts'
import { requireMember } from './security.ts'

/** Documents that one request searches before it answers with what it has found, and a bookmark. */
const MAX_SEARCHED = 200_000
/** Conflicting revisions shown of one document. */
const SHOWN = 100
/** Characters of revisions after which an answer ends: a replicating client may choose ids of 512 characters. */
const MAX_CHARS = 1_048_576
/** Characters of the revisions of one document at most. */
const MAX_ROW_CHARS = SHOWN * 520
/** Bodies are not read: `chars` is there so that the time also ends a page ({@link Paging.chars}). */
const PAGE = { chars: 1024, readSet: { branches: true } }
const BOOKMARK = /^\d{1,15}$/

/** The JSON of {@link Database.conflicts}. */
export async function conflictList(
  store: DatabaseStore,
  user: UserCtx,
  { limit, bookmark }: ConflictsPage,
): Promise<Uint8Array> {
  const rows: object[] = []
  const yielder = new Yielder()
  let next: number | null = placeOf(bookmark)
  let searched = 0
  let chars = 0
  while (next !== null && rows.length < limit && searched < MAX_SEARCHED && chars < MAX_CHARS) {
    const fitting = Math.ceil((MAX_CHARS - chars) / MAX_ROW_CHARS)
    const paging = { ...PAGE, limit: Math.min(limit - rows.length, fitting) }
    const page: ForkedPage<ConflictRow | null> = await store.readForked(next, paging, (doc, view) => {
      requireMember(user, view.security)
      return rowOf(doc)
    })
    requireMember(user, page.view.security)
    for (const row of page.rows) {
      if (row === null) continue
      rows.push(row)
      chars += row.conflicts.reduce((sum, rev) => sum + rev.length, 0)
    }
    searched += page.searched
    next = page.next
    await yielder.yieldIfDue()
  }
  const answer = { rows, bookmark: next === null ? null : String(next), searched }
  return Buffer.from(`${JSON.stringify(answer)}\n`)
}

function placeOf(bookmark: string | undefined): number {
  if (bookmark === undefined) return 0
  if (!BOOKMARK.test(bookmark)) throw new CouchError('bad_request', 'The bookmark is invalid.')
  return Number(bookmark)
}

interface ConflictRow {
  readonly id: string
  readonly rev: string
  readonly leaves: number
  readonly conflicts: readonly string[]
}

/** @returns null for a document with no more than one live leaf */
function rowOf(doc: DocState): ConflictRow | null {
  if (doc.deleted) return null
  const conflicts = losingLeaves(doc.branches, doc.rev)
  if (conflicts.length === 0) return null
  return { id: doc.id, rev: doc.rev, leaves: conflicts.length + 1, conflicts: conflicts.slice(0, SHOWN) }
}
