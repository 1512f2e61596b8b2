/**
 * The least pace of an answer that streams in. A remote that sends a byte every few seconds is never silent, and would
 * keep a replication, its memory and its connection for ever.
 */
import { PeerError } from '../peer-error.ts'

/**
 * The least rate of an answer, inflated, in bytes a second. CouchDB sends the rows of a filtered feed about 1,490 bytes at a
 * time, and one such piece in the default `connection_timeout` of 30 s is enough.
 */
const MIN_RATE = 30
/** An answer with more than this, in bytes without white space, has news. `{"results":[` has 12. */
const HEAD = 32

/** Finds out when the answer of a feed that waits has news. Before, it has a head and heartbeats. */
export class News {
  #seen = 0

  /** Whether there is news in the chunks so far. */
  get hasCome(): boolean {
    return this.#seen > HEAD
  }

  add(chunk: Uint8Array): void {
    for (let at = 0; at < chunk.length && !this.hasCome; at++) {
      if ((chunk[at] as number) > 0x20) this.#seen += 1
    }
  }
}

interface PaceOptions {
  /** The length of a window, in ms: how long the answer may be silent. */
  readonly windowMs: number
  /** The answer may have nothing but heartbeats until there is news. */
  readonly isFeed: boolean
  /** The clock, in ms. */
  now?(): number
}

/**
 * Compares an answer with the least rate in each window. Only the time in which its reader waits for it counts: a slow target
 * does not make its source slow. It needs no timer, since an answer that is silent for a window has ended before.
 */
export class AnswerPace {
  readonly #windowMs: number
  readonly #now: () => number
  /** null: there has been news. */
  #news: News | null
  /** When the reader began to wait; null while it does not. */
  #waitsSince: number | null = null
  /** Of the current window: how long the reader has waited, in ms, and the bytes that it got. */
  #waited = 0
  #bytes = 0

  constructor({ windowMs, isFeed, now = () => performance.now() }: PaceOptions) {
    this.#windowMs = windowMs
    this.#now = now
    this.#news = isFeed ? new News() : null
  }

  /** Passes an answer on. @throws PeerError `timeout` once a window has too little; what `chunks` throws */
  async *watch(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    this.#waitsSince = this.#now()
    for await (const chunk of chunks) {
      this.#add(chunk)
      this.check()
      this.#waitsSince = null
      yield chunk
      this.#waitsSince = this.#now()
    }
  }

  /**
   * Compares the bytes so far at the end of a window. Also to be called for bytes that may bring nothing to the reader, such
   * as empty blocks of gzip.
   * @throws PeerError `timeout`
   */
  check(): void {
    if (this.#waitsSince === null || this.#news !== null) return
    const now = this.#now()
    this.#waited += now - this.#waitsSince
    this.#waitsSince = now
    if (this.#waited < this.#windowMs) return
    if (this.#bytes < (MIN_RATE * this.#windowMs) / 1000) {
      throw new PeerError('timeout', `the answer brings less than ${MIN_RATE} bytes a second`)
    }
    this.#waited = 0
    this.#bytes = 0
  }

  #add(chunk: Uint8Array): void {
    this.#bytes += chunk.length
    this.#news?.add(chunk)
    if (!this.#news?.hasCome) return
    this.#news = null
    this.#waitsSince = this.#now()
  }
}
