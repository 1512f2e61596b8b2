/** Purge and compaction in the engine in memory: how they change a draft. */
import type { PurgeWrite } from '../../../src/storage/engine.ts'
import { count, noteDesign, type Row, type State, viewOf, writeDoc } from './state.ts'

/** Applies the purge of a document that is there. */
export function purgeDoc(
  draft: State,
  by: Parameters<typeof writeDoc>[1],
  id: string,
  purge: PurgeWrite,
): void {
  const doc = draft.docs.get(id)
  if (doc === undefined) return
  const gone = new Set(purge.removed)
  const rows = new Map([...doc.rows].filter(([rev]) => !gone.has(rev)))
  if (purge.rest === null) {
    draft.docs.delete(id)
    count(draft, doc.deleted, -1)
  } else {
    draft.docs.set(id, { ...doc, rows })
    draft.historySince = Math.max(draft.historySince, by.now())
    writeDoc(draft, by, id, purge.rest)
  }
  if (purge.design) noteDesign(draft)
  draft.purgeSeq += 1
  const noted = [...draft.purges, { seq: draft.purgeSeq, id, revs: [...purge.purged] }]
  draft.purges = noted.slice(-viewOf(draft).purgedInfosLimit)
}

/** Drops the superseded revisions of some documents, or keeps them aside, and cuts the leaves' ancestries. */
export function dropSuperseded(draft: State, ids: readonly string[], keepSince: number): void {
  for (const id of ids) {
    const doc = draft.docs.get(id)
    if (doc === undefined) continue
    const rows = [...doc.rows.values()].flatMap((row) => compacted(row, keepSince, draft.revsLimit))
    const left = new Set(rows.map(({ rev }) => rev))
    for (const { rev, supersededAt } of doc.rows.values()) {
      if (!left.has(rev)) draft.historySince = Math.max(draft.historySince, supersededAt ?? 0)
    }
    draft.docs.set(id, { ...doc, rows: new Map(rows.map((row) => [row.rev, row])) })
  }
}

function compacted(row: Row, keepSince: number, revsLimit: number): Row | [] {
  if (row.leaf) return { ...row, ancestry: row.ancestry?.slice(0, revsLimit) ?? null }
  return (row.supersededAt ?? 0) > keepSince ? { ...row, isKept: true } : []
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
