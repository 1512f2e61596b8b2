/** Changes many documents in batches, so that the page stays responsive. */
import type { Doc, Pouch, PouchError, StoredDoc } from '../pouch.ts'

/** Documents per request. */
const BATCH = 100
/** How often a document is tried that another edit changes at the same moment. */
const MOST_ATTEMPTS = 5

/** Receives how many documents have been looked at. */
export type Progress = (done: number) => void

/**
 * Reads each document and writes its new revision.
 * @param change returns null for a document that stays as it is
 * @throws the database's first error other than a conflict; the batches before it are written
 */
export async function changeAll(
  db: Pick<Pouch, 'allDocs' | 'bulkDocs'>,
  ids: readonly string[],
  change: (doc: StoredDoc) => Doc | null,
  progress: Progress = () => undefined,
): Promise<void> {
  for (let at = 0; at < ids.length; at += BATCH) {
    await changeBatch(db, ids.slice(at, at + BATCH), change)
    progress(Math.min(at + BATCH, ids.length))
  }
}

async function changeBatch(
  db: Pick<Pouch, 'allDocs' | 'bulkDocs'>,
  ids: readonly string[],
  change: (doc: StoredDoc) => Doc | null,
): Promise<void> {
  let keys = ids
  for (let attempt = 0; attempt < MOST_ATTEMPTS && keys.length > 0; attempt++) {
    const { rows } = await db.allDocs({ keys, include_docs: true })
    const docs = rows.flatMap(({ doc }) => (doc ? [change(doc)] : [])).filter((doc) => doc !== null)
    const answers: readonly PouchError[] = (await db.bulkDocs(docs)).map((answer) =>
      'ok' in answer ? {} : answer,
    )
    const failure = answers.find(({ status }) => status !== undefined && status !== 409)
    if (failure !== undefined) throw new Error(failure.reason ?? failure.message ?? 'It was not stored.')
    keys = docs.filter((_, at) => answers[at]?.status === 409).map(({ _id }) => _id)
  }
  if (keys.length > 0) throw new Error('Other edits came in at the same time. Try again.')
}
