/**
 * Uploads of attachments: contents go from a request's body into the store, a piece at a time (protocol.md 7.2, 7.4;
 * docs/decisions/0002). No document names an upload until it is written.
 */
import { createHash, type Hash } from 'node:crypto'
import { Limiter } from '../core/concurrency.ts'
import { CouchError } from '../core/errors.ts'
import type { Settings } from '../core/types.ts'
import type { BlobUpload, DatabaseStore } from '../storage/engine.ts'
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
import { bodyBytes, readInto } from './request-body.ts'

/** Bytes read and passed on in one step: as many as one write of the store takes. */
const PIECE = 1024 * 1024
/**
 * Contents up to this many bytes, and up to this many together in a request, go into the document's own write: one
 * sync instead of three.
 */
const SMALL = 256 * 1024
const SMALL_TOGETHER = 1024 * 1024

/**
 * How many pieces a thread holds at once, each of another upload. Each needs 1 MB of memory, and a database's other
 * writes wait for a transaction of all of them.
 */
const PIECES_AT_ONCE = 4

/** For the whole thread. The waiters are requests under way, so their number is bounded by that of the connections. */
const pieces = new Limiter(PIECES_AT_ONCE, Number.POSITIVE_INFINITY)
/**
 * For the whole thread: large contents that are compressed at once. zlib's threads belong to the process and have
 * other work.
 */
const compressions = new Limiter(2, Number.POSITIVE_INFINITY)
/** Memory for pieces, used again. */
const memories: Buffer[] = []

/** Reads a piece of a body when there is memory for it. The piece is valid until the promise of `use` settles. */
function atTurn(
  body: Body,
  start: number,
  end: number,
  use: (piece: Uint8Array) => Promise<void>,
): Promise<void> {
  return pieces.run(async () => {
    if ('bytes' in body) return use(bodyBytes(body, start, end))
    const memory = memories.pop() ?? Buffer.allocUnsafeSlow(PIECE)
    try {
      await use(readInto(memory, body, start, end))
    } finally {
      memories.push(memory)
    }
  })
}

/** An attachment whose content is received; `encoding` is that of the sent content. */
type Arriving = Pick<FollowingAttachment, 'name' | 'type' | 'encoding'>

type Kept = Pick<IncomingContent, 'digest' | 'content'>

interface Taken {
  readonly content: IncomingContent
  /** The digest of the content as sent. */
  readonly sent: string
}

/** The byte range of a content in a request's body; `end` is not included. */
interface Stretch {
  readonly start: number
  readonly end: number
}

/**
 * Calls `use` with uploads, and releases these after the promise of `use` settles: contents that a document names by
 * then stay, others are removed.
 * @param shortage the refusal of contents now; null while there is enough space
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

/** The attachment uploads of one request. */
export class AttachmentUploads {
  readonly #store: DatabaseStore
  readonly #settings: Settings
  readonly #shortage: () => CouchError | null
  readonly #stages: BlobUpload[] = []
  #held = 0

  constructor(store: DatabaseStore, settings: Settings, shortage: () => CouchError | null) {
    this.#store = store
    this.#settings = settings
    this.#shortage = shortage
  }

  /**
   * Receives one content. It becomes gzip if the configuration compresses its type.
   * @throws hosted_attachment, insufficient_storage before anything is read; attachment_too_large, gzip_body; and as
   * the store
   */
  async receive(body: Body, found: Stretch, attachment: Arriving): Promise<IncomingContent> {
    return (await this.#take(body, found, attachment)).content
  }

  async #take(body: Body, { start, end }: Stretch, { name, type, encoding }: Arriving): Promise<Taken> {
    const { limits, rules } = this.#settings
    if (!rules.policy.attachments) throw new CouchError('hosted_attachment')
    this.#requireRoom()
    const sentLength = end - start
    const limit = limits.maxAttachmentSize
    if (sentLength > limit) throw new CouchError('attachment_too_large', name)
    if (encoding === null && isCompressible(type, rules.compression)) {
      return this.#compress(body, { start, end }, rules.compression.level)
    }
    if (encoding === 'gzip' && sentLength === 0) throw new CouchError('gzip_body')
    const length =
      encoding === null ? sentLength : await inflatedLength(codedPieces(body, { start, end }), name, limit)
    const content = { length, encoding, storedLength: sentLength, ...(await this.#keep(body, start, end)) }
    return { content, sent: content.digest }
  }

  #keep(body: Body, start: number, end: number): Promise<Kept> | Kept {
    return this.#fits(end - start) ? this.#hold(bodyBytes(body, start, end)) : this.#stage(body, start, end)
  }

  #fits(bytes: number): boolean {
    return bytes <= SMALL && this.#held + bytes <= SMALL_TOGETHER
  }

  #hold(bytes: Uint8Array): Kept {
    this.#held += bytes.length
    const sha256 = createHash('sha256').update(bytes).digest()
    const digest = `md5-${createHash('md5').update(bytes).digest('base64')}`
    return { digest, content: { bytes, sha256 } }
  }

  /** The client's digest is of the content as sent, the stored one of the gzip, as in CouchDB (couch_att). */
  async #compress(body: Body, found: Stretch, level: number): Promise<Taken> {
    const length = found.end - found.start
    const md5 = createHash('md5')
    const work = () => this.#gather(gzipped(hashed(codedPieces(body, found), md5), level))
    const kept = await (length > PIECE ? compressions.run(work) : work())
    return { content: { length, encoding: 'gzip', ...kept }, sent: `md5-${md5.digest('base64')}` }
  }

  /** Receives bytes whose number is known only at their end. */
  async #gather(chunks: AsyncIterable<Uint8Array>): Promise<Kept & Pick<IncomingContent, 'storedLength'>> {
    let gathered: Uint8Array[] = []
    let waiting = 0
    let storedLength = 0
    let stage: BlobUpload | null = null
    const flush = async (to: BlobUpload) => {
      const piece = Buffer.concat(gathered)
      gathered = []
      waiting = 0
      await pieces.run(() => {
        this.#requireRoom()
        return to.append(piece)
      })
    }
    for await (const chunk of chunks) {
      gathered.push(chunk)
      waiting += chunk.length
      storedLength += chunk.length
      if (waiting < PIECE - CODING_STEP) continue
      stage ??= await this.#begin()
      await flush(stage)
    }
    if (stage === null && this.#fits(waiting)) return { storedLength, ...this.#hold(Buffer.concat(gathered)) }
    stage ??= await this.#begin()
    if (waiting > 0) await flush(stage)
    return { storedLength, ...(await finished(stage)) }
  }

  async #begin(): Promise<BlobUpload> {
    const stage = await this.#store.uploadBlob()
    this.#stages.push(stage)
    return stage
  }

  async #stage(body: Body, start: number, end: number): Promise<Kept> {
    const stage = await this.#begin()
    for (let at = start; at < end; at += PIECE) {
      await atTurn(body, at, Math.min(at + PIECE, end), (piece) => {
        this.#requireRoom()
        return stage.append(piece)
      })
    }
    return finished(stage)
  }

  #requireRoom(): void {
    const refusal = this.#shortage()
    if (refusal !== null) throw refusal
  }

  /**
   * Receives a content that follows its document.
   * @throws bad_request; md5_mismatch for a digest other than the document's
   */
  async receiveFollowing(
    body: Body,
    found: Stretch,
    attachment: FollowingAttachment,
  ): Promise<IncomingAttachment> {
    const { name, type, revpos, digest } = attachment
    const { content, sent } = await this.#take(body, found, attachment)
    if (digest !== undefined && !sameDigest(digest, sent)) throw new CouchError('md5_mismatch')
    return { name, type, revpos, content }
  }

  /** Releases all uploads. */
  async release(): Promise<void> {
    for (const stage of this.#stages.splice(0)) await stage.release()
  }
}

async function finished(stage: BlobUpload): Promise<Kept> {
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

/** Pieces that must not change: zlib reads them on its own thread. */
function* codedPieces(body: Body, { start, end }: Stretch): Generator<Uint8Array> {
  for (let at = start; at < end; at += CODING_STEP) {
    yield bodyBytes(body, at, Math.min(at + CODING_STEP, end))
  }
}
