/** What the engine in memory keeps of one database, and how a write changes it. */
import { CouchError } from '../../../src/core/errors.ts'
import type { SecurityObject } from '../../../src/core/types.ts'
import { isCheckpoint } from '../../../src/storage/checkpoints.ts'
import type {
  AttachmentWrite,
  DocWrite,
  IdRange,
  LocalDoc,
  PurgeInfo,
  RevisionWrite,
  StoredAttachment,
  StoredRevision,
  StoreView,
} from '../../../src/storage/engine.ts'
import { type Epochs, firstEpochs, renewEpochs } from '../../../src/storage/sequence.ts'
import type { RememberedPoint } from '../../../src/storage/token-position.ts'

export interface Row extends StoredRevision {
  /** Orders the rows of a document by when they were first stored. */
  readonly place: number
  /** In ms since 1970. */
  readonly storedAt: number
  /** Since when it is no leaf, in ms since 1970; null: it is one. */
  readonly supersededAt: number | null
  /** When its ancestry last changed while it was a leaf, in ms since 1970; null: never. */
  readonly grownAt: number | null
  readonly isKept: boolean
  readonly ancestry: readonly string[] | null
  readonly body: string | null
  readonly attachments: readonly StoredAttachment[]
}

export interface StoredDoc {
  /** The order of creation. */
  readonly num: number
  readonly id: string
  readonly seq: number
  readonly rev: string
  readonly deleted: boolean
  readonly rows: ReadonlyMap<string, Row>
}

/** A database at one moment. A committed state is never changed again; writes go to a draft of it. */
export interface State {
  partitioned: boolean
  shards: number
  updateSeq: number
  epochs: Epochs
  docCount: number
  deletedCount: number
  revsLimit: number
  purgedInfosLimit: number
  designVersion: number
  settingsVersion: number
  purgeSeq: number
  purges: readonly PurgeInfo[]
  security: SecurityObject | null
  compactedAt: number
  compactedPurge: number
  longestAncestry: number
  /** Grows with each commit. */
  writes: number
  /** The ids of `_local` documents that were checked since the database was restored; null: it was not. */
  checked: Set<string> | null
  readonly docs: Map<string, StoredDoc>
  readonly locals: Map<string, LocalDoc>
  /** By their families and parts, the oldest first. */
  readonly points: Map<string, RememberedPoint>
  /** The contents that are whole. */
  readonly blobs: Map<number, Uint8Array>
  readonly blobOfHash: Map<string, number>
  /** Those of them that no revision has named yet. */
  readonly unnamed: Set<number>
  /** The pieces of contents that are not whole yet. */
  readonly staged: Map<number, readonly Uint8Array[]>
  lastBlob: number
  lastPlace: number
  /** Of the superseded revisions that are gone, when the last of them was superseded. */
  historySince: number
}

export function emptyState(): State {
  return {
    partitioned: false,
    shards: 1,
    updateSeq: 0,
    epochs: firstEpochs(Date.now()),
    docCount: 0,
    deletedCount: 0,
    revsLimit: 1000,
    purgedInfosLimit: 1000,
    designVersion: 0,
    settingsVersion: 0,
    purgeSeq: 0,
    purges: [],
    security: null,
    compactedAt: 0,
    compactedPurge: 0,
    longestAncestry: 1000,
    writes: 0,
    checked: null,
    docs: new Map(),
    locals: new Map(),
    points: new Map(),
    blobs: new Map(),
    blobOfHash: new Map(),
    unnamed: new Set(),
    staged: new Map(),
    lastBlob: 0,
    lastPlace: 0,
    historySince: 0,
  }
}

export function draftOf(state: State): State {
  return {
    ...state,
    docs: new Map(state.docs),
    locals: new Map(state.locals),
    points: new Map(state.points),
    checked: state.checked && new Set(state.checked),
    blobs: new Map(state.blobs),
    blobOfHash: new Map(state.blobOfHash),
    unnamed: new Set(state.unnamed),
    staged: new Map(state.staged),
  }
}

export function viewOf(state: State): StoreView {
  const { updateSeq, epochs, docCount, deletedCount, revsLimit, purgedInfosLimit } = state
  const { designVersion, settingsVersion, security } = state
  const wasRestored = state.checked !== null
  return {
    ...{ updateSeq, epochs, docCount, deletedCount, revsLimit, purgedInfosLimit },
    ...{ designVersion, settingsVersion, security, wasRestored },
  }
}

/** Removes the contents of uploads that no revision names and nobody holds. */
export function dropAbandoned(draft: State, isHeld: (blob: number) => boolean): void {
  for (const blob of [...draft.staged.keys(), ...draft.unnamed]) if (!isHeld(blob)) dropUnnamed(draft, blob)
}

/** A state as it is after it was marked as restored. */
export function begunAnew(state: State): State {
  const draft = draftOf(state)
  draft.epochs = renewEpochs(state.epochs, state.updateSeq + 1, { now: Date.now(), isRestored: true })
  draft.settingsVersion += 1
  draft.checked = new Set()
  for (const [id, { body }] of draft.locals) if (isCheckpoint(body)) draft.locals.delete(id)
  return draft
}

/** Refuses a write that names contents which are not there. @throws no_attachment */
export function checkContents({ blobs }: State, { revisions }: DocWrite): void {
  for (const { name, content } of revisions.flatMap((revision) => revision.content?.attachments ?? [])) {
    if ('blob' in content && !blobs.has(content.blob)) {
      throw new CouchError('no_attachment', `The content of the attachment ${name} is not stored any more.`)
    }
  }
}

/** Applies one document's write to a draft. Nothing in here fails half way. */
export function writeDoc(
  draft: State,
  { now, takeSeq = nextSeq }: { now(): number; takeSeq?: (draft: State) => number },
  id: string,
  write: DocWrite,
): void {
  const before = draft.docs.get(id)
  const rows = new Map(before?.rows)
  // One time for all: what supersedes a version is stored when that ceases to be a leaf.
  const at = now()
  for (const change of write.revisions) {
    rows.set(change.rev, writeRow(draft, rows.get(change.rev), change, at))
  }
  const seq = write.sequenced || before === undefined ? takeSeq(draft) : before.seq
  const num = before?.num ?? ++draft.lastPlace
  draft.docs.set(id, { num, id, seq, rev: write.rev, deleted: write.deleted, rows })
  if (write.design) noteDesign(draft)
  if (before !== undefined) count(draft, before.deleted, -1)
  count(draft, write.deleted, 1)
}

/** Notes that a design document was written or purged. */
export function noteDesign(draft: State): void {
  draft.designVersion += 1
  draft.settingsVersion += 1
}

/** Counts a document in, or out. */
export function count(draft: State, deleted: boolean, by: number): void {
  if (deleted) draft.deletedCount += by
  else draft.docCount += by
}

function nextSeq(draft: State): number {
  draft.updateSeq += 1
  return draft.updateSeq
}

function writeRow(draft: State, before: Row | undefined, change: RevisionWrite, at: number): Row {
  const { rev, deleted, ancestry, content } = change
  if (content === undefined && (before === undefined || before.isKept))
    throw new RangeError(`The revision ${rev} is not stored and brings no content.`)
  const body = content?.body ?? before?.body ?? null
  const attachments = content?.attachments.map((attachment) => storeAttachment(draft, attachment))
  const kept = attachments ?? before?.attachments ?? []
  const leaf = ancestry !== null
  const wasSuperseded = before !== undefined && !before.leaf
  const supersededAt = leaf ? null : wasSuperseded ? before.supersededAt : at
  if (before === undefined) draft.lastPlace += 1
  const isRevived = leaf && wasSuperseded
  if (isRevived) draft.historySince = Math.max(draft.historySince, before.supersededAt ?? 0)
  const place = before?.place ?? draft.lastPlace
  const storedAt = before === undefined || isRevived ? at : before.storedAt
  const grownAt = leaf && before?.leaf ? at : (before?.grownAt ?? null)
  const times = { place, storedAt, supersededAt, grownAt }
  return { rev, deleted, leaf, ...times, isKept: false, ancestry, body, attachments: kept }
}

function storeAttachment(draft: State, { content, ...facts }: AttachmentWrite): StoredAttachment {
  const blob = 'blob' in content ? content.blob : storeBytes(draft, content.sha256, content.bytes)
  draft.unnamed.delete(blob)
  return { ...facts, blob }
}

/** The blob of a content, which is stored now, under `blob` if that is given, unless it is already. */
export function storeBytes(draft: State, sha256: Uint8Array, bytes: Uint8Array, blob?: number): number {
  const hash = Buffer.from(sha256).toString('hex')
  const known = draft.blobOfHash.get(hash)
  if (known !== undefined) return known
  if (blob === undefined) draft.lastBlob += 1
  const made = blob ?? draft.lastBlob
  draft.blobs.set(made, Uint8Array.from(bytes))
  draft.blobOfHash.set(hash, made)
  return made
}

/** Forgets a content that no revision has named, whole or not; others stay. */
export function dropUnnamed(draft: State, blob: number): void {
  draft.staged.delete(blob)
  if (!draft.unnamed.delete(blob)) return
  draft.blobs.delete(blob)
  for (const [hash, other] of draft.blobOfHash) if (other === blob) draft.blobOfHash.delete(hash)
}

/** Bytes of the leaves' bodies and attachments. */
export function externalSize(state: State): number {
  let size = 0
  for (const doc of state.docs.values()) {
    for (const row of doc.rows.values()) {
      if (!row.leaf) continue
      size += Buffer.byteLength(row.body ?? '')
      for (const attachment of row.attachments) size += attachment.length
    }
  }
  return size
}

/** The order of ids and names: by their bytes of UTF-8. */
export function compareBytes(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b))
}

/** The ids that a range holds, in the direction of reading. */
export function idsInRange(ids: Iterable<string>, range: IdRange): string[] {
  const direction = range.descending === true ? -1 : 1
  const after = (
    { id, inclusive }: { id: string; inclusive: boolean },
    other: string,
    side: number,
  ): boolean => {
    const order = compareBytes(other, id) * direction * side
    return inclusive ? order >= 0 : order > 0
  }
  return [...ids]
    .filter((id) => range.start === undefined || after(range.start, id, 1))
    .filter((id) => range.end === undefined || after(range.end, id, -1))
    .sort((a, b) => compareBytes(a, b) * direction)
}

/** The documents that stand in the feed above a place, in its order. */
export function feedAbove(state: State, seq: number): StoredDoc[] {
  return [...state.docs.values()].filter((doc) => doc.seq > seq).sort((a, b) => a.seq - b.seq)
}
