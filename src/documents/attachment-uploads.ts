/**
 * Uploads attachments: copies their contents from a request's body into the store, piece by piece (protocol.md 7.2,
 * 7.4; docs/decisions/0002). No document names an upload until the document is written.
 */
import { createHash, type Hash } from 'node:crypto'
import { Limiter } from '../core/concurrency.ts'
import { CouchError } from '../core/errors.ts'
import type { Settings } from '../core/types.ts'
import type { BlobUpload } from '../storage/blob-leases.ts'
import type { DatabaseStore } from '../storage/engine.ts'
import type { Body } from './database.ts'
import {
  CODING_STEP,
  type FollowingAttachment,
  gzipped,
  type IncomingAttachment,
  type IncomingContent,
  inflatedLength,
  isCompressible,
} from './incoming-attachments.ts'
import type { IncomingDoc } from './incoming-document.ts'
import { bodyBytes, readInto } from './request-body.ts'

/** Bytes copied in one step: the size of one write to the store. */
const PIECE = 1024 * 1024
/**
 * Contents of up to MAX_SMALL bytes each, and up to SMALL_TOTAL bytes per request, are stored by the document's own write:
 * one sync instead of three, and a short turn.
 */
const MAX_SMALL = 256 * 1024
const SMALL_TOTAL = 1024 * 1024

/**
 * How many pieces, each of a different upload, a thread holds at once. Each needs 1 MB of memory. A database's other
 * writes wait for one transaction with all pieces.
 */
const MAX_PIECES = 4

/**
 * Limits the pieces of the whole thread. Its waiters are requests under way, so the number of connections bounds them.
 */
const pieces = new Limiter(MAX_PIECES, Number.POSITIVE_INFINITY)
/**
 * Limits the large contents that the thread compresses at once. zlib's threads are shared by the process and have other
 * work.
 */
const compressions = new Limiter(2, Number.POSITIVE_INFINITY)
/** Reusable memory for pieces. */
const buffers: Buffer[] = []

/** Reads a piece of a body as soon as there is memory for it. The piece is valid until the promise of `use` settles. */
function atTurn(
  body: Body,
  start: number,
  end: number,
  use: (piece: Uint8Array) => Promise<void>,
): Promise<void> {
  return pieces.run(async () => {
    if ('bytes' in body) return use(bodyBytes(body, start, end))
    const memory = buffers.pop() ?? Buffer.allocUnsafeSlow(PIECE)
    try {
      await use(readInto(memory, body, start, end))
    } finally {
      buffers.push(memory)
    }
  })
}

/** An attachment whose content is received; `encoding` is that of the sent content. */
type SentAttachment = Pick<FollowingAttachment, 'name' | 'type' | 'encoding'>

type StoredBytes = Pick<IncomingContent, 'digest' | 'content'>

interface ReceivedContent {
  readonly content: IncomingContent
  /** The digest of the content as sent. */
  readonly sent: string
}

/** The byte range of a content in a request's body; `end` is not included. */
interface ByteRange {
  readonly start: number
  readonly end: number
}

/**
 * Calls `use` with uploads, and releases the uploads when the promise of `use` settles. The contents that a document
 * names by then are kept; all others are removed.
 * @param shortage returns the error for new contents; null while there is enough space
 */
export async function withUploads<T>(
  store: DatabaseStore,
  settings: Settings,
  shortage: () => CouchError | null,
  use: (staging: AttachmentUploads) => Promise<T>,
): Promise<T> {
  const staging = new AttachmentUploads(store, settings, shortage)
  try {
    return await use(staging)
  } finally {
    await staging.release()
  }
}

/** Contents that are stored before the documents that name them. */
class Stages {
  readonly #store: DatabaseStore
  readonly #shortage: () => CouchError | null
  readonly #begun: BlobUpload[] = []

  constructor(store: DatabaseStore, shortage: () => CouchError | null) {
    this.#store = store
    this.#shortage = shortage
  }

  /** @throws insufficient_storage */
  requireRoom(): void {
    const refusal = this.#shortage()
    if (refusal !== null) throw refusal
  }

  async begin(): Promise<BlobUpload> {
    const stage = await this.#store.uploadBlob()
    this.#begun.push(stage)
    return stage
  }

  /** Stores a range of a body. */
  async store(body: Body, start: number, end: number): Promise<StoredBytes> {
    const stage = await this.begin()
    for (let at = start; at < end; at += PIECE) {
      await atTurn(body, at, Math.min(at + PIECE, end), (piece) => {
        this.requireRoom()
        return stage.append(piece)
      })
    }
    return finished(stage)
  }

  /** Removes what no document names. */
  async release(): Promise<void> {
    for (const stage of this.#begun.splice(0)) await stage.release()
  }
}

type Edit = { readonly doc: Pick<IncomingDoc, 'attachments'> }

/**
 * Stores contents that documents have inside before the documents, piece by piece, as far as they are too large for the documents'
 * own write: the largest ones first.
 * @param use gets the edits, whose large contents are uploads; what no document names when its promise settles is removed
 * @throws insufficient_storage; and as the store and `use`
 */
export async function withStagedContents<E extends Edit, T>(
  store: DatabaseStore,
  edits: readonly E[],
  shortage: () => CouchError | null,
  use: (edits: readonly E[]) => Promise<T>,
): Promise<T> {
  const inline = edits.flatMap(({ doc }) => doc.attachments.flatMap(inlineBytes))
  let left = inlineLength(edits)
  const stages = new Stages(store, shortage)
  const stored = new Map<Uint8Array, StoredBytes>()
  try {
    stages.requireRoom()
    for (const bytes of inline.toSorted((a, b) => b.length - a.length)) {
      if (left <= SMALL_TOTAL) break
      stored.set(bytes, await stages.store({ bytes }, 0, bytes.length))
      left -= bytes.length
    }
    return await use(edits.map((edit) => withContents(edit, stored)))
  } finally {
    await stages.release()
  }
}

/** Whether the contents that documents have inside are too large for the documents' own write. */
export function haveLargeContents(edits: readonly Edit[]): boolean {
  return inlineLength(edits) > SMALL_TOTAL
}

/** The bytes of contents that documents have inside. */
export function inlineLength(edits: readonly Edit[]): number {
  let length = 0
  for (const { doc } of edits)
    for (const { content } of doc.attachments)
      if (content !== null && 'bytes' in content.content) length += content.storedLength
  return length
}

function inlineBytes({ content }: IncomingAttachment): Uint8Array[] {
  return content !== null && 'bytes' in content.content ? [content.content.bytes] : []
}

function withContents<E extends Edit>(edit: E, stored: ReadonlyMap<Uint8Array, StoredBytes>): E {
  const attachments = edit.doc.attachments.map((attachment) => {
    const [bytes] = inlineBytes(attachment)
    const found = bytes && stored.get(bytes)
    return found
      ? { ...attachment, content: { ...(attachment.content as IncomingContent), ...found } }
      : attachment
  })
  return { ...edit, doc: { ...edit.doc, attachments } }
}

/** The attachment uploads of one request. */
export class AttachmentUploads {
  readonly #settings: Settings
  readonly #stages: Stages
  #held = 0

  constructor(store: DatabaseStore, settings: Settings, shortage: () => CouchError | null) {
    this.#settings = settings
    this.#stages = new Stages(store, shortage)
  }

  /**
   * Receives one content. The content is stored as gzip if the configuration compresses its type.
   * @throws hosted_attachment, insufficient_storage before anything is read; attachment_too_large, gzip_body; and as
   * the store
   */
  async receive(body: Body, range: ByteRange, attachment: SentAttachment): Promise<IncomingContent> {
    return (await this.#receive(body, range, attachment)).content
  }

  async #receive(
    body: Body,
    { start, end }: ByteRange,
    { name, type, encoding }: SentAttachment,
  ): Promise<ReceivedContent> {
    const { limits, rules } = this.#settings
    if (!rules.policy.attachments) throw new CouchError('hosted_attachment')
    this.#stages.requireRoom()
    const sentLength = end - start
    const limit = limits.maxAttachmentSize
    if (sentLength > limit) throw new CouchError('attachment_too_large', name)
    if (encoding === null && isCompressible(type, rules.compression)) {
      return this.#compress(body, { start, end }, rules.compression.level)
    }
    if (encoding === 'gzip' && sentLength === 0) throw new CouchError('gzip_body')
    const length =
      encoding === null ? sentLength : await inflatedLength(codedPieces(body, { start, end }), name, limit)
    const content = {
      length,
      encoding,
      storedLength: sentLength,
      ...(await this.#storeRange(body, start, end)),
    }
    return { content, sent: content.digest }
  }

  #storeRange(body: Body, start: number, end: number): Promise<StoredBytes> | StoredBytes {
    return this.#fits(end - start)
      ? this.#holdInMemory(bodyBytes(body, start, end))
      : this.#stages.store(body, start, end)
  }

  #fits(bytes: number): boolean {
    return bytes <= MAX_SMALL && this.#held + bytes <= SMALL_TOTAL
  }

  #holdInMemory(bytes: Uint8Array): StoredBytes {
    this.#held += bytes.length
    const sha256 = createHash('sha256').update(bytes).digest()
    const digest = `md5-${createHash('md5').update(bytes).digest('base64')}`
    return { digest, content: { bytes, sha256 } }
  }

  /**
   * As in CouchDB (couch_att), the client's digest covers the content as sent; the stored digest covers the gzip data.
   */
  async #compress(body: Body, range: ByteRange, level: number): Promise<ReceivedContent> {
    const length = range.end - range.start
    const md5 = createHash('md5')
    const work = () => this.#gather(gzipped(hashed(codedPieces(body, range), md5), level))
    const kept = await (length > PIECE ? compressions.run(work) : work())
    return { content: { length, encoding: 'gzip', ...kept }, sent: `md5-${md5.digest('base64')}` }
  }

  /** Receives content whose length is unknown until its end. */
  async #gather(
    chunks: AsyncIterable<Uint8Array>,
  ): Promise<StoredBytes & Pick<IncomingContent, 'storedLength'>> {
    let gathered: Uint8Array[] = []
    let waiting = 0
    let storedLength = 0
    let stage: BlobUpload | null = null
    const flush = async (to: BlobUpload) => {
      const piece = Buffer.concat(gathered)
      gathered = []
      waiting = 0
      await pieces.run(() => {
        this.#stages.requireRoom()
        return to.append(piece)
      })
    }
    for await (const chunk of chunks) {
      gathered.push(chunk)
      waiting += chunk.length
      storedLength += chunk.length
      if (waiting < PIECE - CODING_STEP) continue
      stage ??= await this.#stages.begin()
      await flush(stage)
    }
    if (stage === null && this.#fits(waiting))
      return { storedLength, ...this.#holdInMemory(Buffer.concat(gathered)) }
    stage ??= await this.#stages.begin()
    if (waiting > 0) await flush(stage)
    return { storedLength, ...(await finished(stage)) }
  }

  /**
   * Receives the content of an attachment that follows its document.
   * @throws bad_request; md5_mismatch for a digest other than the document's
   */
  async receiveFollowing(
    body: Body,
    range: ByteRange,
    attachment: FollowingAttachment,
  ): Promise<IncomingAttachment> {
    const { name, type, revpos, digest } = attachment
    const { content, sent } = await this.#receive(body, range, attachment)
    if (digest !== undefined && !sameDigest(digest, sent)) throw new CouchError('md5_mismatch')
    return { name, type, revpos, content }
  }

  /** Releases all uploads. */
  release(): Promise<void> {
    return this.#stages.release()
  }
}

async function finished(stage: BlobUpload): Promise<StoredBytes> {
  const { digest, blob } = await stage.finish()
  return { digest, content: { blob } }
}

function* hashed(pieces: Iterable<Uint8Array>, hash: Hash): Generator<Uint8Array> {
  for (const piece of pieces) {
    hash.update(piece)
    yield piece
  }
}

function sameDigest(one: string, other: string): boolean {
  const bytes = (digest: string) => Buffer.from(digest.slice('md5-'.length), 'base64')
  return bytes(one).equals(bytes(other))
}

/** Yields pieces in fresh memory, since zlib reads them on its own thread. */
function* codedPieces(body: Body, { start, end }: ByteRange): Generator<Uint8Array> {
  for (let at = start; at < end; at += CODING_STEP) {
    yield bodyBytes(body, at, Math.min(at + CODING_STEP, end))
  }
}
