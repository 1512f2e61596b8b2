/** Purge and compaction in the engine in memory: how they change a draft. */
import type { PurgeWrite } from '../../../src/storage/engine.ts'
import { count, type State, viewOf, writeDoc } from './state.ts'

/** Applies the purge of a document that is there. */
export function purgeDoc(draft: State, owner: object, id: string, purge: PurgeWrite): void {
  const doc = draft.docs.get(id)
  if (doc === undefined) return
  const gone = new Set(purge.removed)
  const rows = new Map([...doc.rows].filter(([rev]) => !gone.has(rev)))
  if (purge.rest === null) {
    draft.docs.delete(id)
    count(draft, doc.deleted, -1)
  } else {
    draft.docs.set(id, { ...doc, rows })
    writeDoc(draft, owner, id, purge.rest)
  }
  if (purge.design) draft.designVersion += 1
  draft.purgeSeq += 1
  const noted = [...draft.purges, { seq: draft.purgeSeq, id, revs: [...purge.purged] }]
  draft.purges = noted.slice(-viewOf(draft).purgedInfosLimit)
}

/** Drops the superseded revisions of some documents. */
export function dropSuperseded(draft: State, ids: readonly string[]): void {
  for (const id of ids) {
    const doc = draft.docs.get(id)
    if (doc === undefined) continue
    for (const { supersededAt } of doc.rows.values()) {
      draft.historySince = Math.max(draft.historySince, supersededAt ?? 0)
    }
    draft.docs.set(id, { ...doc, rows: new Map([...doc.rows].filter(([, row]) => row.leaf)) })
  }
}

/** Drops blobs that no revision names any more and nobody holds. */
export function dropForsaken(draft: State, isHeld: (blob: number) => boolean): void {
  const named = new Set<number>()
  for (const doc of draft.docs.values()) {
    for (const row of doc.rows.values()) for (const { blob } of row.attachments) named.add(blob)
  }
  const isUnwanted = (blob: number) => !named.has(blob) && !draft.unnamed.has(blob) && !isHeld(blob)
  for (const blob of [...draft.blobs.keys()].filter(isUnwanted)) draft.blobs.delete(blob)
  for (const [hash, blob] of draft.blobOfHash) if (!draft.blobs.has(blob)) draft.blobOfHash.delete(hash)
}
