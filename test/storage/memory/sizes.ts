/** What the engine in memory holds, counted anew each time. */
import type { IdRange, RangeSizes } from '../../../src/storage/engine.ts'
import type { GarbageCounts, SizePart, StoreSizes } from '../../../src/storage/upkeep.ts'
import { externalSize, idsInRange, type Row, type State, type StoredDoc } from './state.ts'

function rowsOf(state: State, which: (row: Row) => boolean): Row[] {
  return [...state.docs.values()].flatMap((doc) => [...doc.rows.values()].filter(which))
}

function bodies(rows: readonly Row[]): SizePart {
  return part(rows.map(({ body }) => Buffer.byteLength(body ?? '')))
}

function part(sizes: readonly number[]): SizePart {
  return { count: sizes.length, bytes: sizes.reduce((sum, size) => sum + size, 0) }
}

export function wearOf(state: State): GarbageCounts {
  const kept = rowsOf(state, (row) => row.isKept).map(({ supersededAt }) => supersededAt ?? 0)
  const named = new Set(rowsOf(state, ({ leaf }) => leaf).flatMap((row) => blobsOf(row)))
  const loose = [...state.blobs].filter(([blob]) => !named.has(blob)).map(([, { length }]) => length)
  return {
    writes: state.writes,
    storedBytes: externalSize(state),
    freeBytes: 0,
    supersededBytes: bodies(rowsOf(state, ({ leaf, isKept }) => !(leaf || isKept))).bytes,
    maybeUnreferencedBytes: part(loose).bytes,
    oldestRetained: kept.length === 0 ? null : Math.min(...kept),
    compactedAt: state.compactedAt,
    needsCompaction: state.purgeSeq > state.compactedPurge || state.longestAncestry > state.revsLimit,
  }
}

function blobsOf({ attachments }: Row): number[] {
  return attachments.map(({ blob }) => blob)
}

export function measured(state: State, range: IdRange): RangeSizes {
  const docs = idsInRange([...state.docs.keys()], range).map((id) => state.docs.get(id) as StoredDoc)
  const leaves = docs.flatMap(({ rows }) => [...rows.values()].filter(({ leaf }) => leaf))
  const attachments = leaves.flatMap((row) => row.attachments)
  const bytes = bodies(leaves).bytes
  const deletedCount = docs.filter(({ deleted }) => deleted).length
  return {
    docCount: docs.length - deletedCount,
    deletedCount,
    active: bytes + part(attachments.map(({ storedLength }) => storedLength)).bytes,
    external: bytes + part(attachments.map(({ length }) => length)).bytes,
  }
}

/** What is beside bodies and contents, as if each row had 100 bytes of its own. */
function restOf({ docs, locals, purges, security }: State): number {
  const bytesOf = (...texts: string[]) => texts.reduce((sum, text) => sum + Buffer.byteLength(text), 100)
  const rows = [...docs.values()].flatMap((doc) =>
    [...doc.rows.values()].map(({ rev, ancestry }) => bytesOf(doc.id, rev, ...(ancestry ?? []))),
  )
  return part([
    ...rows,
    ...[...locals.keys()].map((id) => bytesOf(id)),
    ...purges.map(({ id, revs }) => bytesOf(id, ...revs)),
    bytesOf(JSON.stringify(security)),
  ]).bytes
}

export function sizesOf(state: State): StoreSizes {
  const parts = {
    live: bodies(rowsOf(state, ({ leaf, deleted }) => leaf && !deleted)),
    tombstones: bodies(rowsOf(state, ({ leaf, deleted }) => leaf && deleted)),
    old: bodies(rowsOf(state, ({ leaf, isKept }) => !(leaf || isKept))),
    kept: bodies(rowsOf(state, ({ isKept }) => isKept)),
    attachments: part([...state.blobs.values()].map(({ length }) => length)),
    local: part([...state.locals.values()].map(({ body }) => Buffer.byteLength(body))),
    indexes: { bytes: restOf(state) },
  }
  const none = { free: null, log: null }
  return { file: Object.values(parts).reduce((sum, { bytes }) => sum + bytes, 0), ...parts, ...none }
}

/** Since when bodies of no more than these bytes were superseded, by the minute, of those that are kept. */
export function sinceWhen(state: State, bytes: number): number {
  let left = bytes
  const minuteOf = ({ supersededAt }: Row) => Math.floor((supersededAt ?? 0) / 60_000)
  const kept = rowsOf(state, ({ isKept }) => isKept).sort((a, b) => minuteOf(b) - minuteOf(a))
  for (const row of kept) {
    left -= Buffer.byteLength(row.body ?? '')
    if (left < 0) return (minuteOf(row) + 1) * 60_000 - 1
  }
  return 0
}
