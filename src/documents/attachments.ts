/**
 * Contents of attachments on their way from a request's body into the store, a piece at a time (protocol.md 7.2, 7.4;
 * docs/decisions/0002). Nothing names what is staged until a document is written that does.
 */
import { createHash } from 'node:crypto'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { createGunzip } from 'node:zlib'
import { CouchError } from '../core/errors.ts'
import type { Settings } from '../core/types.ts'
import { WorkQueue } from '../core/work-queue.ts'
import type { AttachmentEncoding, BlobStage, DatabaseStore } from '../storage/engine.ts'
import type { Body } from './database.ts'
import type { FollowingAttachment, IncomingAttachment, IncomingContent } from './incoming.ts'
import { bodyBytes, readInto } from './request-body.ts'

/** Bytes read and handed on in one step: as many as one write of the store takes. */
const PIECE = 1024 * 1024
/** Up to so many bytes, and so many together in one request, go into the document's own write: one sync, not three. */
const SMALL = 256 * 1024
const SMALL_TOGETHER = 1024 * 1024
const INFLATE_CHUNK = 64 * 1024

/**
 * How many pieces a thread has in its hands at once, each of another upload. More would be as many megabytes more, and
 * the other writes of a database would wait for a transaction of all of them.
 */
const PIECES_AT_ONCE = 4

/** Of the thread. Whoever waits is a request under way, of which there are so many as connections. */
const turns = new WorkQueue(PIECES_AT_ONCE, Number.POSITIVE_INFINITY)
/** What pieces were read into, for the next ones. */
const memories: Buffer[] = []

/** Reads a piece of a body when there is memory for it, and calls `use` with it: it is good until that is done. */
function atTurn(
  body: Body,
  start: number,
  end: number,
  use: (piece: Uint8Array) => Promise<void>,
): Promise<void> {
  return turns.take(async () => {
    if ('bytes' in body) return use(bodyBytes(body, start, end))
    const memory = memories.pop() ?? Buffer.allocUnsafeSlow(PIECE)
    try {
      await use(readInto(memory, body, start, end))
    } finally {
      memories.push(memory)
    }
  })
}

/** Where a content lies in a request's body. */
export interface Stretch {
  readonly start: number
  readonly end: number
}

/**
 * Calls `use` with a staging, and lets go of what it has staged when the promise of `use` has settled: what a
 * document names by then stays, all else is removed.
 * @param shortage what contents are refused with now; null while there is room for them
 */
export async function withStaging<T>(
  store: DatabaseStore,
  settings: Settings,
  shortage: () => CouchError | null,
  use: (staging: Staging) => Promise<T>,
): Promise<T> {
  const staging = new Staging(store, settings, shortage)
  try {
    return await use(staging)
  } finally {
    await staging.release()
  }
}

/** The contents that one request brings. */
export class Staging {
  readonly #store: DatabaseStore
  readonly #settings: Settings
  readonly #shortage: () => CouchError | null
  readonly #stages: BlobStage[] = []
  #held = 0

  constructor(store: DatabaseStore, settings: Settings, shortage: () => CouchError | null) {
    this.#store = store
    this.#settings = settings
    this.#shortage = shortage
  }

  /**
   * Takes in one content.
   * @param name the attachment's, for the refusal
   * @throws hosted_attachment, insufficient_storage before anything is looked at; attachment_too_large, gzip_body; and
   * as the store
   */
  async take(
    body: Body,
    { start, end }: Stretch,
    name: string,
    encoding: AttachmentEncoding,
  ): Promise<IncomingContent> {
    const { limits, rules } = this.#settings
    if (rules.isHosted) throw new CouchError('hosted_attachment')
    this.#requireRoom()
    const storedLength = end - start
    const limit = limits.maxAttachmentSize
    if (storedLength > limit) throw new CouchError('attachment_too_large', name)
    const length = encoding === null ? storedLength : await inflatedLength(body, { start, end }, name, limit)
    const facts = { length, encoding, storedLength }
    if (storedLength > SMALL || this.#held + storedLength > SMALL_TOGETHER) {
      return { ...facts, ...(await this.#stage(body, start, end)) }
    }
    this.#held += storedLength
    const bytes = bodyBytes(body, start, end)
    const sha256 = createHash('sha256').update(bytes).digest()
    const digest = `md5-${createHash('md5').update(bytes).digest('base64')}`
    return { ...facts, digest, content: { bytes, sha256 } }
  }

  async #stage(body: Body, start: number, end: number): Promise<Pick<IncomingContent, 'digest' | 'content'>> {
    const stage = await this.#store.stageBlob()
    this.#stages.push(stage)
    for (let at = start; at < end; at += PIECE) {
      await atTurn(body, at, Math.min(at + PIECE, end), (piece) => {
        this.#requireRoom()
        return stage.append(piece)
      })
    }
    const { digest, blob } = await stage.finish()
    return { digest, content: { blob } }
  }

  #requireRoom(): void {
    const refusal = this.#shortage()
    if (refusal !== null) throw refusal
  }

  /**
   * Takes in a content that follows its document.
   * @throws bad_request, md5_mismatch where it does not fit what the document says of it
   */
  async takeFollowing(
    body: Body,
    found: Stretch,
    attachment: FollowingAttachment,
  ): Promise<IncomingAttachment> {
    const { name, type, revpos, encoding, digest } = attachment
    const content = await this.take(body, found, name, encoding)
    if (digest !== undefined && !sameDigest(digest, content.digest)) throw new CouchError('md5_mismatch')
    return { name, type, revpos, content }
  }

  /** Lets go of all that was staged. */
  async release(): Promise<void> {
    for (const stage of this.#stages.splice(0)) await stage.release()
  }
}

function sameDigest(one: string, other: string): boolean {
  const bytes = (digest: string) => Buffer.from(digest.slice('md5-'.length), 'base64')
  return bytes(one).equals(bytes(other))
}

/** Pieces that stay as they are: zlib reads them on a thread of its own. */
function* codedPieces(body: Body, { start, end }: Stretch): Generator<Uint8Array> {
  for (let at = start; at < end; at += INFLATE_CHUNK) {
    yield bodyBytes(body, at, Math.min(at + INFLATE_CHUNK, end))
  }
}

/** How long a gzipped content is when it is inflated; nothing is kept of it. */
async function inflatedLength(body: Body, found: Stretch, name: string, limit: number): Promise<number> {
  if (found.start === found.end) throw new CouchError('gzip_body')
  let length = 0
  const count = async (inflated: AsyncIterable<Uint8Array>) => {
    for await (const chunk of inflated) {
      length += chunk.length
      if (length > limit) return
    }
  }
  try {
    const gunzip = createGunzip({ chunkSize: INFLATE_CHUNK })
    await pipeline(Readable.from(codedPieces(body, found)), gunzip, count)
  } catch (error) {
    // Going no further breaks the pipeline off.
    if (length <= limit) throw inflateFailure(error)
  }
  if (length > limit) throw new CouchError('attachment_too_large', name)
  return length
}

function inflateFailure(error: unknown): unknown {
  const { code = '' } = error as NodeJS.ErrnoException
  return code.startsWith('Z_') ? new CouchError('gzip_body', undefined, { cause: error }) : error
}
