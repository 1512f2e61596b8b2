/** Runs all four kinds of feeds on the HTTP thread: protocol.md 5.3, 5.4 and architecture.md, "The path of a feed". */
import { createHash } from 'node:crypto'
import { CouchError } from '../core/errors.ts'
import type { UserCtx } from '../core/types.ts'
import { requireMember } from '../documents/security.ts'
import {
  BEAT,
  bytesOf,
  COMMENT,
  epilogue,
  type FeedKind,
  FRAMINGS,
  PROLOGUES,
  SEPARATOR,
} from './changes-query.ts'
import type { ChangesPage, Since } from './page.ts'
import { type ChangesOptions, UNLIMITED } from './rows.ts'
import { type Clock, type FeedSource, systemClock } from './source.ts'

export interface FeedRequest {
  readonly kind: FeedKind
  readonly options: Omit<ChangesOptions, 'framing'>
  readonly since: Since
  /** Infinity means no limit. */
  readonly limit: number
  /** Milliseconds; null if the client did not request a heartbeat. A heartbeat disables `timeout`. */
  readonly heartbeat: number | null
  readonly timeout: number
  /** Called with the sequence token of each position that everything before has been sent to. */
  onSent?(token: string): void
}

/** The answer that a feed writes. */
export interface FeedOutput {
  /** Aborted when the client disconnects. */
  readonly signal: AbortSignal
  /** Resolves when the connection can accept more or has closed; never rejects. Wait for it before the next call. */
  write(bytes: Uint8Array): Promise<void>
  end(): Promise<void>
  /** Breaks the connection, so that the client sees that the answer is incomplete. */
  fail(cause: unknown): void
}

/**
 * Returns the user who reads the feed. It is called again when rights may have changed. It throws if the account or
 * session no longer exists.
 */
export type Caller = () => UserCtx | Promise<UserCtx>

/** Ends a longpoll before proxies do, at 100 s. PouchDB sends the next request at once (clients.md, pain 5). */
const LONGPOLL_MS = 90_000
/** The longest silence in milliseconds. No proxy considers a server dead after so short a time. */
const MAX_SILENCE_MS = 25_000

/** What {@link Feed.open} has read: `unknownEpoch`: the feed starts from 0 because its token is from another database. */
interface FirstPage extends Pick<ChangesPage, 'state' | 'unknownEpoch' | 'lastToken'> {
  /** Returns all pieces of a feed of one short page; null: there is more to come. */
  readonly whole: (() => Uint8Array[]) | null
}

/** Of the rows of a feed that is sent as a whole. */
const MAX_WHOLE_BYTES = 15_000

type Next = 'page' | 'wait' | 'end'

export class Feed {
  readonly #source: FeedSource
  readonly #caller: Caller
  readonly #kind: FeedKind
  readonly #options: ChangesOptions
  readonly #request: FeedRequest
  readonly #clock: Clock
  readonly #key: string
  readonly #startedAt: number
  #user: UserCtx = { name: null, roles: [] }
  /** The next page to send; null while waiting. */
  #page: ChangesPage | null = null
  #position: Since
  #wanted: number
  #sent = 0
  #lastToken = ''
  #pending: number | null = 0
  /** When the last row or the first page was sent; the timeout counts from here. */
  #lastRowAt = 0
  #writing = 0
  #heartbeat: HeartbeatTimer | null = null

  /** @param source the feed leaves it when the feed ends or is closed */
  constructor(source: FeedSource, caller: Caller, request: FeedRequest, clock: Clock = systemClock) {
    this.#source = source
    this.#caller = caller
    this.#kind = request.kind
    this.#request = request
    this.#options = { ...request.options, framing: FRAMINGS[request.kind] }
    this.#clock = clock
    this.#key = keyOf(this.#options)
    this.#startedAt = clock.now()
    this.#position = request.since
    this.#wanted = Math.min(request.limit, UNLIMITED)
  }

  /**
   * Reads the first page before anything is sent.
   * @throws bad_request for a malformed token; unauthorized, forbidden
   */
  async open(): Promise<FirstPage> {
    this.#user = await this.#caller()
    const page = await this.#source.page(this.#user, this.#pageRequest())
    this.#page = page
    const { state, unknownEpoch, lastToken, pending } = page
    const isShort = this.#options.framing === 'json' && page.bytes.length <= MAX_WHOLE_BYTES
    const whole = () => [PROLOGUES[this.#kind], page.bytes, bytesOf(epilogue(this.#kind, lastToken, pending))]
    return {
      state,
      unknownEpoch,
      lastToken,
      whole: isShort && this.#whatFollows(page) === 'end' ? whole : null,
    }
  }

  /** Leaves the source. Idempotent; {@link run} calls it too. */
  close(): void {
    this.#page = null
    this.#source.leave()
  }

  /** Sends the feed until it is complete, its database is deleted, or the client disconnects. Never rejects. */
  async run(out: FeedOutput): Promise<void> {
    const interrupt = () => this.#source.interrupt()
    out.signal.addEventListener('abort', interrupt, { once: true })
    this.#heartbeat = new HeartbeatTimer(this.#clock, this.#heartbeatInterval(), () => this.#beat(out))
    try {
      await this.#stream(out)
      if (!out.signal.aborted) await this.#finish(out)
    } catch (thrown) {
      if (this.#endsInOrder(thrown)) await this.#finish(out)
      else out.fail(thrown)
    } finally {
      this.#heartbeat.stop()
      out.signal.removeEventListener('abort', interrupt)
      this.close()
    }
  }

  async #stream(out: FeedOutput): Promise<void> {
    this.#lastRowAt = this.#clock.now()
    await this.#write(out, PROLOGUES[this.#kind])
    let next = await this.#send(out)
    if (next === 'wait' && this.#kind === 'eventsource' && this.#sent === 0) await this.#write(out, COMMENT)
    while (next !== 'end' && !out.signal.aborted) {
      if (next === 'wait' && !(await this.#waitForCommit())) return
      if (this.#source.takeRevocation()) await this.#checkCaller()
      this.#page = await this.#nextPage()
      next = await this.#send(out)
    }
  }

  /** A filter function sees the user and the request, so its pages cannot be shared. */
  #nextPage(): Promise<ChangesPage> {
    const isShared = this.#options.filter?.kind !== 'function'
    return isShared
      ? this.#source.nextPage(this.#user, this.#pageRequest(), this.#key)
      : this.#source.page(this.#user, this.#pageRequest())
  }

  #pageRequest() {
    return { options: this.#options, since: this.#position, limit: this.#wanted }
  }

  /** Sends the page. This is a separate function so that the stack frame of a waiting feed holds no bytes. */
  async #send(out: FeedOutput): Promise<Next> {
    const page = this.#page as ChangesPage
    this.#page = null
    if (page.rows > 0) {
      if (this.#sent > 0 && this.#options.framing === 'json') await this.#write(out, SEPARATOR)
      await this.#write(out, page.bytes)
    }
    const next = this.#whatFollows(page)
    // Rows that the filter excludes also count as changes.
    if (page.rows > 0 || !page.atTip) this.#lastRowAt = this.#clock.now()
    this.#sent += page.rows
    this.#wanted -= page.rows
    this.#position = page.lastSeq
    this.#lastToken = page.lastToken
    this.#pending = page.pending
    if (!out.signal.aborted) this.#request.onSent?.(page.lastToken)
    return next
  }

  /** What the feed does once it has sent the page. */
  #whatFollows({ rows, atTip }: ChangesPage): Next {
    const isAnswered = this.#kind === 'longpoll' && this.#sent + rows > 0
    // A longpoll with limit=0 waits for its timeout, but other feeds end: protocol.md 5.3.
    if (this.#wanted <= rows) return this.#kind === 'longpoll' && !isAnswered ? 'wait' : 'end'
    if (!atTip) return this.#longpollTime() > 0 ? 'page' : 'end'
    return this.#kind === 'normal' || this.#options.descending || isAnswered ? 'end' : 'wait'
  }

  /** Waits for a commit. @returns false if the feed must end. @throws if the caller may no longer read */
  async #waitForCommit(): Promise<boolean> {
    for (;;) {
      const seq = this.#wanted > 0 ? (this.#position as number) : Infinity
      const wake = await this.#source.wait(seq, Math.min(this.#idleTime(), this.#longpollTime()))
      if (wake !== 'revocation') return wake === 'committed'
      if (this.#source.takeRevocation()) await this.#checkCaller()
    }
  }

  async #checkCaller(): Promise<void> {
    this.#user = await this.#caller()
    requireMember(this.#user, await this.#source.security())
  }

  #idleTime(): number {
    const { heartbeat, timeout } = this.#request
    return heartbeat === null ? this.#lastRowAt + timeout - this.#clock.now() : Infinity
  }

  #longpollTime(): number {
    return this.#kind === 'longpoll' ? this.#startedAt + LONGPOLL_MS - this.#clock.now() : Infinity
  }

  /**
   * Some readers of continuous feeds parse every line, so these feeds have a heartbeat only if the client requests one.
   */
  #heartbeatInterval(): number {
    const { heartbeat } = this.#request
    return heartbeat === null && this.#kind === 'continuous'
      ? Infinity
      : Math.min(heartbeat ?? Infinity, MAX_SILENCE_MS)
  }

  #beat(out: FeedOutput): void {
    // A pending write also breaks the silence.
    if (this.#writing > 0 || out.signal.aborted) return
    const isComment = this.#kind === 'eventsource' && this.#request.heartbeat === null
    void this.#write(out, isComment ? COMMENT : BEAT[this.#kind])
  }

  async #write(out: FeedOutput, bytes: Uint8Array): Promise<void> {
    this.#writing++
    await out.write(bytes)
    this.#writing--
    this.#heartbeat?.reset()
  }

  async #finish(out: FeedOutput): Promise<void> {
    await this.#write(out, bytesOf(epilogue(this.#kind, this.#lastToken, this.#pending)))
    // A compressed answer takes a moment to end, and must get nothing more meanwhile.
    this.#heartbeat?.stop()
    await out.end()
  }

  /** After a revocation, a deletion or a stop of the server, a waiting feed still ends with its `last_seq`. */
  #endsInOrder(thrown: unknown): boolean {
    if (this.#kind === 'normal' || !(thrown instanceof CouchError)) return false
    return thrown.code === 'no_database' || [401, 403, 503].includes(thrown.status)
  }
}

function keyOf(options: ChangesOptions): string {
  const text = JSON.stringify(options)
  const isLong = options.docIds !== undefined || options.filter !== undefined
  return isLong ? createHash('sha256').update(text).digest('base64') : text
}

/**
 * Calls back after each interval of silence. A write does not reset the timer. Instead, the timer checks the time of
 * the last write when it fires, and waits for the rest of the interval.
 */
class HeartbeatTimer {
  readonly #clock: Clock
  readonly #interval: number
  readonly #beat: () => void
  #lastWrite: number
  #cancel: () => void

  /** @param interval milliseconds of silence; Infinity to never call back */
  constructor(clock: Clock, interval: number, beat: () => void) {
    this.#clock = clock
    this.#interval = interval
    this.#beat = beat
    this.#lastWrite = clock.now()
    this.#cancel = this.#arm(interval)
  }

  /** Notes a write. */
  reset(): void {
    this.#lastWrite = this.#clock.now()
  }

  stop(): void {
    this.#cancel()
  }

  #arm(ms: number): () => void {
    return ms === Infinity ? () => {} : this.#clock.after(ms, this.#tick)
  }

  readonly #tick = (): void => {
    const left = this.#interval - (this.#clock.now() - this.#lastWrite)
    if (left > 0) {
      this.#cancel = this.#arm(left)
      return
    }
    this.#cancel = this.#arm(this.#interval)
    this.#beat()
  }
}
