/** The statement that writes a group of documents: what was decided, as the parameters of write-functions.ts. */
import { encodeAncestry } from '../../revisions/branch.ts'
import { ancestryChecksum } from '../checksum.ts'
import type { AttachmentWrite, DocWrite, PurgeWrite, RevisionWrite } from '../engine.ts'
import type { Query } from './connections.ts'
import type { Leaf } from './leaf-list.ts'
import type { WriteFacts } from './loaded-document.ts'
import { booleanArray, bytesArray, numberArray, textArray } from './parameter-arrays.ts'
import { rowBytes } from './row-bytes.ts'
import { blobSum, chunkSum, contentSum, docSum, purgeSum, storedAttachments } from './row-checksums.ts'
import { storedText } from './stored-text.ts'
import type { PlannedWrite } from './write-commits.ts'
import { DOC_VALUES, firstValues } from './write-functions.ts'
import { GROUP_VALUES } from './write-group.ts'
import type { WriteContext } from './write-note.ts'

/** A document before its write, as it was decided on. */
export interface OldDocument {
  readonly version: number
  readonly seq: number
  readonly rev: string
  readonly deleted: boolean
  readonly leaves: number
  readonly writeFacts: WriteFacts | undefined
  /** As of {@link DocState}. */
  readonly damagedLeaves?: ReadonlySet<string>
}

/** A new document, or one whose only leaf gets a successor. */
interface PlainWrite {
  /** As it is stored. */
  readonly id: string
  readonly old: OldDocument | null
  readonly place: number
  readonly revision: RevisionWrite & { readonly content: NonNullable<RevisionWrite['content']> }
  readonly body: string
  readonly size: number
  readonly attachments: string | null
  readonly ancestry: Uint8Array
  readonly checksums: Checksums
}

/** Of a document's row without what the database adds (row-checksums.ts), of its content, and of its ancestry. */
type Checksums = readonly [doc: number, content: number, ancestry: number]

/** The bytes of a chunk: those of storage/sqlite/blobs.ts. */
const CHUNK_BYTES = 256 * 1024

export class GroupWrite implements PlannedWrite {
  readonly #isCautious: boolean
  readonly #plain: PlainWrite[] = []
  readonly #branched = new BranchedWrites()
  readonly #contents = new NamedContents()
  /** Where documents stood in the feed that they leave. */
  readonly #left: number[] = []
  #seqs = 0
  #docs = 0
  #deleted = 0
  #external = 0
  #leaf = 0
  #superseded = 0
  #designs = 0
  #writes = 0
  #counts: { readonly docCount: number; readonly deletedCount: number } | null = null

  /** @param isCautious whether each document is written in the way that suits all */
  constructor(isCautious: boolean) {
    this.#isCautious = isCautious
  }

  /** The damaged leaves that it stores again, or that are none afterwards. */
  readonly restored: Leaf[] = []

  /** How many documents it writes. */
  get writes(): number {
    return this.#writes
  }

  /** How many sequence numbers it takes. */
  get updates(): number {
    return this.#seqs
  }

  /** By how much it raises settingsVersion. */
  get settingsChanges(): number {
    return this.#designs
  }

  /** The stored contents that it names. */
  get named(): readonly number[] {
    return this.#contents.named
  }

  /** A decision depends on these counts. */
  dependOn(counts: { readonly docCount: number; readonly deletedCount: number }): void {
    this.#counts = counts
  }

  /** Adds the write of a document. @param old null: it is new */
  add(id: string, old: OldDocument | null, write: DocWrite): void {
    this.#writes += 1
    const place = this.#take(old, write.sequenced || old === null)
    if (old !== null) this.#count(old.deleted, -1)
    this.#count(write.deleted, 1)
    if (write.design) this.#designs += 1
    this.#noteRestored(id, old, write)
    const revision = this.#isCautious && old !== null ? null : plainRevision(old, write)
    if (revision === null) this.#branched.add(id, old, write, place, this.#contents)
    else this.#addPlain(id, old, place, revision)
  }

  /** Adds the purge of a document. */
  purge(id: string, old: OldDocument, { purged, removed, rest, design }: PurgeWrite): void {
    this.#writes += 1
    const stored = storedText(id)
    this.#branched.notePurge(id, purged)
    for (const rev of removed) if (old.damagedLeaves?.has(rev)) this.restored.push([id, rev])
    if (design) this.#designs += 1
    this.#count(old.deleted, -1)
    if (rest === null) {
      this.#left.push(old.seq)
      this.#branched.forget(stored, old)
      return
    }
    this.#count(rest.deleted, 1)
    if (rest.design) this.#designs += 1
    this.#branched.remove(stored, removed)
    this.#branched.add(id, old, rest, this.#take(old, rest.sequenced), this.#contents)
  }

  #noteRestored(id: string, old: OldDocument | null, { revisions }: DocWrite): void {
    const damaged = old?.damagedLeaves
    if (damaged === undefined || damaged.size === 0) return
    for (const { rev, content, ancestry } of revisions)
      if (damaged.has(rev) && (content !== undefined || ancestry === null)) this.restored.push([id, rev])
  }

  /** @returns how far the document's new sequence number lies above the database's; 0 if it keeps its own */
  #take(old: OldDocument | null, isSequenced: boolean): number {
    if (!isSequenced) return 0
    if (old !== null) this.#left.push(old.seq)
    this.#seqs += 1
    return this.#seqs
  }

  #count(deleted: boolean, by: number): void {
    if (deleted) this.#deleted += by
    else this.#docs += by
  }

  #addPlain(docId: string, old: OldDocument | null, place: number, revision: PlainWrite['revision']): void {
    const { rev, deleted, content } = revision
    const { body, attachments } = content
    const id = storedText(docId)
    const size = sizeOf(content)
    const stored = storedText(body)
    const ancestry = encodeAncestry(revision.ancestry ?? [])
    this.#external += size - (old?.writeFacts?.size ?? 0)
    this.#leaf += rowBytes({
      key: keyBytes(id, rev),
      ancestry: ancestry.length,
      body: Buffer.byteLength(stored),
    })
    if (old?.writeFacts !== undefined) {
      const { ancestryBytes, bodyBytes } = old.writeFacts
      const superseded = rowBytes({ key: keyBytes(id, old.rev), ancestry: 0, body: bodyBytes })
      this.#leaf -= superseded + ancestryBytes
      this.#superseded += superseded
    }
    this.#plain.push({
      id,
      old,
      place,
      revision,
      body: stored,
      size,
      attachments: this.#contents.name(docId, rev, attachments),
      ancestry,
      checksums: [
        docSum(docId, rev, deleted),
        contentSum(docId, rev, deleted, { body, attachments: attachments.length }),
        ancestryChecksum(ancestry, rev, deleted),
      ],
    })
  }

  query(context: WriteContext): Query {
    const [first] = this.#plain
    const isOne = this.#plain.length === 1 && this.#writes === 1 && this.#counts === null
    if (first !== undefined && isOne && first.attachments === null) return this.#one(context, first)
    return this.#group(context)
  }

  #one(context: WriteContext, { id, old, revision, body, size, ancestry, checksums }: PlainWrite): Query {
    return {
      name: 'store_doc',
      text: `SELECT store_doc(${firstValues(DOC_VALUES)})`,
      values: [
        ...headOf(context),
        this.#docs,
        this.#deleted,
        this.#external,
        this.#leaf,
        this.#superseded,
        this.#designs,
        id,
        old?.version ?? 0,
        old?.seq ?? 0,
        storedText(revision.rev),
        revision.deleted,
        size,
        ancestry,
        body,
        ...checksums,
      ],
    }
  }

  #group(context: WriteContext): Query {
    const plain = this.#plain
    const created = plain.filter(({ old }) => old === null).length
    const { docCount = null, deletedCount = null } = this.#counts ?? {}
    const { json, bodies } = this.#branched.parameters()
    const { contents, sums } = this.#contents.parameters()
    return {
      ...COMMIT_GROUP,
      values: [
        ...headOf(context),
        docCount,
        deletedCount,
        this.#seqs,
        this.#docs,
        this.#deleted,
        this.#external,
        this.#leaf,
        this.#superseded,
        this.#designs,
        created,
        plain.length - created,
        textArray(plain.map(({ id }) => id)),
        numberArray(plain.map(({ old }) => old?.version ?? 0)),
        numberArray(plain.map(({ place }) => place)),
        textArray(plain.map(({ revision }) => storedText(revision.rev))),
        booleanArray(plain.map(({ revision }) => revision.deleted)),
        numberArray(plain.map(({ size }) => size)),
        textArray(plain.map(({ attachments }) => attachments)),
        bytesArray(plain.map(({ ancestry }) => ancestry)),
        textArray(plain.map(({ body }) => body)),
        numberArray(this.#left),
        json,
        textArray(bodies),
        ...contents,
        ...CHECKSUM_PLACES.map((at) => numberArray(plain.map(({ checksums }) => checksums[at]))),
        ...sums,
      ],
    }
  }
}

const CHECKSUM_PLACES = [0, 1, 2] as const
const COMMIT_GROUP = { name: 'commit_group', text: `SELECT commit_group(${firstValues(GROUP_VALUES)})` }

/** @param id as it is stored */
function keyBytes(id: string, rev: string): number {
  return Buffer.byteLength(id) + Buffer.byteLength(storedText(rev))
}

function headOf({ db, settingsVersion, opener, token, now }: WriteContext): unknown[] {
  return [db, settingsVersion, opener, token, now]
}

/** The new winner of a document that has no other leaf, before and after; null if the write is of another kind. */
function plainRevision(old: OldDocument | null, write: DocWrite): PlainWrite['revision'] | null {
  const [a, b] = write.revisions
  if (old === null) return write.revisions.length === 1 ? asWinner(a, write) : null
  const isSuccession = write.sequenced && write.revisions.length === 2 && old.leaves === 1
  if (!isSuccession || old.writeFacts?.hasAttachments !== false) return null
  const [winner, other] = a?.rev === old.rev ? [b, a] : [a, b]
  const isSuperseded = other?.rev === old.rev && other.ancestry === null && other.content === undefined
  return isSuperseded && other.deleted === old.deleted ? asWinner(winner, write) : null
}

function asWinner(revision: RevisionWrite | undefined, write: DocWrite): PlainWrite['revision'] | null {
  if (revision === undefined || revision.rev !== write.rev || revision.deleted !== write.deleted) return null
  const { content } = revision
  return content === undefined || revision.ancestry === null ? null : { ...revision, content }
}

function sizeOf({ body, attachments }: NonNullable<RevisionWrite['content']>): number {
  return attachments.reduce((sum, { length }) => sum + length, Buffer.byteLength(body))
}

/** Writes of documents with several leaves, and purges: the parameters of write_branches. */
class BranchedWrites {
  readonly #docs: object[] = []
  readonly #revisions: object[] = []
  readonly #removed: object[] = []
  readonly #forgotten: object[] = []
  readonly #purges: object[] = []
  /** The stored blobs that the write of each document names. */
  readonly #named = new Map<string, number[]>()
  readonly #touched = new Map<string, Set<string>>()
  readonly #bodies: string[] = []

  /** @param docId as it is known outside, like those of {@link #addRevision} */
  add(docId: string, old: OldDocument | null, write: DocWrite, place: number, contents: NamedContents): void {
    const { rev, deleted, revisions } = write
    const id = storedText(docId)
    const checksum = docSum(docId, rev, deleted)
    this.#docs.push({ id, version: old?.version ?? 0, place, rev: storedText(rev), deleted, checksum })
    const touched = new Set(revisions.map((revision) => revision.rev))
    if (old !== null) touched.add(old.rev)
    this.#touch(id, touched)
    for (const revision of revisions) this.#addRevision(docId, revision, contents)
  }

  #addRevision(
    docId: string,
    { rev, deleted, ancestry, content }: RevisionWrite,
    contents: NamedContents,
  ): void {
    const id = storedText(docId)
    const encoded = ancestry === null ? null : encodeAncestry(ancestry)
    const row = {
      id,
      rev: storedText(rev),
      deleted,
      n: this.#revisions.length,
      leaf: ancestry !== null,
      ancestry: encoded === null ? null : Buffer.from(encoded).toString('base64'),
      ancestry_checksum: encoded === null ? null : ancestryChecksum(encoded, rev, deleted),
    }
    if (content === undefined) {
      this.#revisions.push({ ...row, body: null })
      return
    }
    this.#bodies.push(storedText(content.body))
    for (const attachment of content.attachments) {
      if ('blob' in attachment.content) {
        this.#named.set(id, [...(this.#named.get(id) ?? []), attachment.content.blob])
      }
    }
    const attachments = contents.name(docId, rev, content.attachments)
    const counted = { body: content.body, attachments: content.attachments.length }
    this.#revisions.push({
      ...row,
      size: sizeOf(content),
      attachments,
      body: this.#bodies.length,
      content_checksum: contentSum(docId, rev, deleted, counted),
    })
  }

  remove(id: string, revs: readonly string[]): void {
    this.#touch(id, new Set(revs))
    for (const rev of new Set(revs)) this.#removed.push({ id, rev: storedText(rev) })
  }

  forget(id: string, { version }: OldDocument): void {
    this.#forgotten.push({ id, version })
  }

  /** @param docId as it is known outside */
  notePurge(docId: string, purged: readonly string[]): void {
    const revs = JSON.stringify(purged)
    const checksum = purgeSum(docId, revs)
    this.#purges.push({ n: this.#purges.length + 1, id: storedText(docId), revs, checksum })
  }

  #touch(id: string, revs: ReadonlySet<string>): void {
    this.#touched.set(id, new Set([...(this.#touched.get(id) ?? []), ...revs]))
  }

  parameters(): { readonly json: string | null; readonly bodies: readonly string[] } {
    const isEmpty = this.#docs.length === 0 && this.#forgotten.length === 0
    const touched = [...this.#touched].flatMap(([id, revs]) =>
      [...revs].map((rev) => ({ id, rev: storedText(rev) })),
    )
    const lists = {
      docs: this.#docs,
      revisions: this.#revisions,
      removed: this.#removed,
      forgotten: this.#forgotten,
      purges: this.#purges,
      touched,
      named: Object.fromEntries(this.#named),
    }
    return { json: isEmpty ? null : JSON.stringify(lists), bodies: this.#bodies }
  }
}

/** The contents of attachments that a group names: stored ones by their blobs, and new ones by their places. */
class NamedContents {
  readonly #named = new Set<number>()
  readonly #uses: { readonly id: string; readonly rev: string; readonly blob: number }[] = []
  readonly #made: { readonly sha256: Uint8Array; readonly bytes: Uint8Array; readonly digest: string }[] = []

  get named(): readonly number[] {
    return [...this.#named].sort((a, b) => a - b)
  }

  /** @returns the list of attachments as it is stored; null if there are none */
  name(id: string, rev: string, attachments: readonly AttachmentWrite[]): string | null {
    const named = attachments.map((attachment) => {
      const blob = this.#blobOf(attachment)
      this.#uses.push({ id: storedText(id), rev: storedText(rev), blob })
      return { ...attachment, blob }
    })
    return storedAttachments(id, rev, named)
  }

  /** The blob, or the negative place of a new content, from -1. */
  #blobOf({ content, digest }: AttachmentWrite): number {
    if ('blob' in content) {
      this.#named.add(content.blob)
      return content.blob
    }
    this.#made.push({ ...content, digest })
    return -this.#made.length
  }

  /** `sums`: their checksums without their blobs. */
  parameters(): { readonly contents: unknown[]; readonly sums: unknown[] } {
    const chunks = this.#made.flatMap(({ bytes }, n) =>
      Array.from({ length: Math.ceil(bytes.length / CHUNK_BYTES) }, (_, position) => ({
        of: n + 1,
        position,
        data: bytes.subarray(position * CHUNK_BYTES, (position + 1) * CHUNK_BYTES),
      })),
    )
    const contents = [
      numberArray(this.named),
      textArray(this.#uses.map(({ id }) => id)),
      textArray(this.#uses.map(({ rev }) => rev)),
      numberArray(this.#uses.map(({ blob }) => blob)),
      bytesArray(this.#made.map(({ sha256 }) => sha256)),
      textArray(this.#made.map(({ digest }) => digest)),
      numberArray(this.#made.map(({ bytes }) => bytes.length)),
      numberArray(chunks.map(({ of }) => of)),
      numberArray(chunks.map(({ position }) => position)),
      bytesArray(chunks.map(({ data }) => data)),
    ]
    const sums = [
      this.#made.map(({ bytes, ...content }) => blobSum({ ...content, length: bytes.length })),
      chunks.map(({ position, data }) => chunkSum(position, data)),
    ]
    return { contents, sums: sums.map(numberArray) }
  }
}
