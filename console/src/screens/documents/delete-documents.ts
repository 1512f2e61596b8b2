import { ask, pathOf } from '../../api/client.ts'
import { Failure } from '../../api/failure.ts'
import { confirm } from '../../parts/confirm.tsx'
import { say } from '../../parts/toast.tsx'
import { en } from '../../strings/en.ts'
import type { IdRow } from './id-rows.ts'

const { documents: texts } = en

interface BulkRow {
  readonly id: string
  readonly error?: string
  readonly reason?: string
}

/** Ids that a question lists. */
const LISTED = 5

/**
 * Asks, and deletes the documents with their present revisions.
 * @param onDone called when at least one has been deleted
 */
export function askToDelete(database: string, rows: readonly IdRow[], onDone: () => void): void {
  const ids = rows.slice(0, LISTED).map(({ id }) => id)
  const isDesign = rows.some(({ id }) => id.startsWith('_design/'))
  confirm({
    title: texts.deleteTitle(rows.length),
    effects: [
      texts.deleteEffect(rows.length, ids, rows.length - ids.length),
      ...(isDesign ? [texts.deleteDesignEffect] : []),
      texts.deleteDevices,
    ],
    undo: texts.deleteUndo,
    act: texts.deleteAct(rows.length),
    run: async () => {
      const refused = await deleteAll(database, rows)
      if (refused.length < rows.length) onDone()
      const [first] = refused
      if (first !== undefined) {
        const reason = texts.notDeleted(
          refused.length,
          rows.length,
          first.id,
          first.reason ?? first.error ?? '',
        )
        throw new Failure(0, first.error ?? 'error', reason, null)
      }
      say(texts.deleted(rows.length))
    },
  })
}

async function deleteAll(database: string, rows: readonly IdRow[]): Promise<readonly BulkRow[]> {
  const docs = rows.map(({ id, rev }) => ({ _id: id, _rev: rev, _deleted: true }))
  const answers = await ask<readonly BulkRow[]>(pathOf(database, '_bulk_docs'), { json: { docs } })
  return answers.filter(({ error }) => error !== undefined)
}
