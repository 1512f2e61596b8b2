/** Compression of answers. In streamed ones, each piece reaches the client when it is written. */
import { promisify } from 'node:util'
import {
  type BrotliCompress,
  constants,
  crc32,
  createBrotliCompress,
  deflateRaw,
  deflateRawSync,
  type ZlibOptions,
} from 'node:zlib'
import compress from '@fastify/compress'
import fp from 'fastify-plugin'
import { readWeights } from '../header-values.ts'

type ContentEncoding = 'gzip' | 'br'

/** Encodes pieces; calls must not overlap unless the pieces are short. */
export interface Encoder {
  /** Sent before the first piece. */
  readonly head: Uint8Array
  /** @returns the piece, encoded and flushed */
  encode(bytes: Uint8Array): Uint8Array | Promise<Uint8Array>
  /** @returns the bytes after the last piece */
  finish(): Uint8Array | Promise<Uint8Array>
  /** Releases the memory, at any time. */
  close(): void
}

/**
 * The encoding of an answer; null: none. If the client wants both alike, gzip is used, which holds less memory.
 * @param accepted the header Accept-Encoding (RFC 9110 12.5.3)
 * @param waits whether the answer stays open for long; brotli's memory is too large for that
 */
export function chooseEncoding(accepted: string | undefined, waits: boolean): ContentEncoding | null {
  const weights = readWeights(accepted)
  const weightOf = (name: string) => weights.get(name) ?? weights.get('*') ?? 0
  const gzip = weightOf('gzip')
  const br = waits ? 0 : weightOf('br')
  if (gzip === 0 && br === 0) return null
  return br > gzip ? 'br' : 'gzip'
}

export function makeEncoder(encoding: ContentEncoding): Encoder {
  return encoding === 'gzip' ? new GzipEncoder() : new BrotliEncoder()
}

const NOTHING = new Uint8Array(0)
/** RFC 1952 2.3: deflate, no name, no time, system unknown. */
const GZIP_HEAD = Uint8Array.of(0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff)
const FLUSHED: ZlibOptions = { finishFlush: constants.Z_SYNC_FLUSH, level: 5 }
/** In bytes; a shorter piece needs neither a window of 32 kB nor a thread. */
const SHORT_BYTES = 4096
const SHORT: ZlibOptions = { ...FLUSHED, windowBits: 12, memLevel: 4 }

const deflateInThread = promisify<Uint8Array, ZlibOptions, Uint8Array>(deflateRaw)
/** Pieces are independent, so that one that many feeds send is compressed once. */
const deflated = new WeakMap<Uint8Array, Uint8Array | Promise<Uint8Array>>()

function deflate(bytes: Uint8Array): Uint8Array | Promise<Uint8Array> {
  const known = deflated.get(bytes)
  if (known !== undefined) return known
  const made = bytes.length <= SHORT_BYTES ? deflateRawSync(bytes, SHORT) : deflateInThread(bytes, FLUSHED)
  deflated.set(bytes, made)
  return made
}

/**
 * One gzip member (RFC 1952) whose pieces are deflated independently, each ended by an empty block that aligns it to a byte
 * (RFC 1951 3.2.4). Between pieces only a checksum and a count are held, so that an idle compressed feed takes no more
 * memory than a plain one.
 */
class GzipEncoder implements Encoder {
  readonly head = GZIP_HEAD
  #checksum = 0
  #length = 0

  encode(bytes: Uint8Array): Uint8Array | Promise<Uint8Array> {
    if (bytes.length === 0) return NOTHING
    this.#checksum = crc32(bytes, this.#checksum)
    this.#length += bytes.length
    return deflate(bytes)
  }

  finish(): Uint8Array {
    const end = Buffer.alloc(10)
    end[0] = 3
    end.writeUInt32LE(this.#checksum, 2)
    end.writeUInt32LE(this.#length % 2 ** 32, 6)
    return end
  }

  close(): void {}
}

class BrotliEncoder implements Encoder {
  readonly head = NOTHING
  readonly #stream: BrotliCompress
  #made: Uint8Array[] = []

  constructor() {
    const params = { [constants.BROTLI_PARAM_QUALITY]: 4, [constants.BROTLI_PARAM_LGWIN]: 18 }
    this.#stream = createBrotliCompress({ params })
    this.#stream.on('data', (chunk: Uint8Array) => this.#made.push(chunk))
  }

  encode(bytes: Uint8Array): Promise<Uint8Array> {
    return new Promise((resolve, reject) => {
      this.#stream.once('error', reject)
      this.#stream.write(bytes)
      this.#stream.flush(() => {
        this.#stream.off('error', reject)
        resolve(this.#take())
      })
    })
  }

  finish(): Promise<Uint8Array> {
    return new Promise((resolve, reject) => {
      this.#stream.once('error', reject)
      this.#stream.once('end', () => resolve(this.#take()))
      this.#stream.end()
    })
  }

  close(): void {
    this.#stream.destroy()
  }

  #take(): Uint8Array {
    const made = Buffer.concat(this.#made)
    this.#made = []
    return made
  }
}

/** Shorter answers, in bytes, are not compressed. */
export const COMPRESSED_BYTES = 1024

/**
 * Compresses whole JSON answers from 1 kB on for clients that accept it, fast rather than small: most are read over a home
 * network. Streams are compressed in json-stream.ts.
 */
export const compression = fp(
  async (app) => {
    await app.register(compress, {
      globalDecompression: false,
      threshold: COMPRESSED_BYTES,
      encodings: ['br', 'gzip'],
      brotliOptions: { params: { [constants.BROTLI_PARAM_QUALITY]: 1 } },
      zlibOptions: { level: constants.Z_BEST_SPEED },
      customTypes: /^application\/json$/,
    })
  },
  { name: 'compression' },
)
