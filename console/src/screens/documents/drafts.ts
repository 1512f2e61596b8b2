/** Unsaved texts of documents. They outlive the screen, so that a session that ends or a wrong click loses nothing. */
import { user } from '../../api/session.ts'

interface Draft {
  readonly body: string
  /** The revision that was edited; null for a new document. */
  readonly rev: string | null
}

const drafts = new Map<string, Draft>()
const MAX_DRAFTS = 50

function keyOf(database: string, id: string | null): string {
  return JSON.stringify([user.value?.name ?? null, database, id])
}

export function draftOf(database: string, id: string | null): Draft | undefined {
  return drafts.get(keyOf(database, id))
}

export function keepDraft(database: string, id: string | null, draft: Draft): void {
  const key = keyOf(database, id)
  drafts.delete(key)
  drafts.set(key, draft)
  const [oldest] = drafts.keys()
  if (drafts.size > MAX_DRAFTS && oldest !== undefined) drafts.delete(oldest)
}

export function dropDraft(database: string, id: string | null): void {
  drafts.delete(keyOf(database, id))
}
