/** One loop for the four kinds of feeds, on the HTTP thread: protocol.md 5.3, 5.4 and architecture.md, "How a feed travels". */
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
  /** Infinity: none. */
  readonly limit: number
  /** Milliseconds; null when none is asked for. It switches `timeout` off. */
  readonly heartbeat: number | null
  readonly timeout: number
}

/** Where a feed goes. */
export interface FeedOutput {
  /** Aborted when the client has gone. */
  readonly signal: AbortSignal
  /** Resolves when the client's connection takes more, or has gone; never rejects. One at a time. */
  write(bytes: Uint8Array): Promise<void>
  end(): Promise<void>
  /** Breaks the connection, so that the client sees that the answer is not whole. */
  fail(cause: unknown): void
}

/** Who reads; asked again when rights may have changed. Throws for who is nobody any more. */
export type Caller = () => UserCtx | Promise<UserCtx>

/** Proxies cut a silent answer after 100 s; and PouchDB asks again at once (clients.md, pain 5). */
const LONGPOLL_MS = 90_000
/** Silence that no proxy takes for a dead server. */
const SILENCE_MS = 25_000

type Next = 'page' | 'wait' | 'end'

export class Feed {
  readonly #source: FeedSource
  readonly #caller: Caller
  readonly #kind: FeedKind
  readonly #options: ChangesOptions
  readonly #request: FeedRequest
  readonly #clock: Clock
  readonly #key: string
  readonly #begun: number
  #user: UserCtx = { name: null, roles: [] }
  /** The page that is to be sent; not held while waiting. */
  #page: ChangesPage | null = null
  #position: Since
  #wanted: number
  #sent = 0
  #lastToken = ''
  #pending: number | null = 0
  /** When the last row was sent, or the first page: the time-out counts from here. */
  #changedAt = 0
  #writing = 0
  #heart: Heart | null = null

  /** @param source left when the feed has ended or is closed */
  constructor(source: FeedSource, caller: Caller, request: FeedRequest, clock: Clock = systemClock) {
    this.#source = source
    this.#caller = caller
    this.#kind = request.kind
    this.#request = request
    this.#options = { ...request.options, framing: FRAMINGS[request.kind] }
    this.#clock = clock
    this.#key = keyOf(this.#options)
    this.#begun = clock.now()
    this.#position = request.since
    this.#wanted = Math.min(request.limit, UNLIMITED)
  }

  /**
   * Makes the first page, before anything is sent.
   * @returns what a validator depends on, and whether the feed begins anew since its token was of another database
   * @throws bad_request for a malformed token; unauthorized, forbidden
   */
  async open(): Promise<Pick<ChangesPage, 'state' | 'unknownEpoch'>> {
    this.#user = await this.#caller()
    this.#page = await this.#source.page(this.#user, this.#pageRequest())
    const { state, unknownEpoch } = this.#page
    return { state, unknownEpoch }
  }

  /** Lets the database go. Idempotent; {@link run} does it too. */
  close(): void {
    this.#page = null
    this.#source.leave()
  }

  /** Sends the feed until it ends by its rules, its database goes, or its client has gone. Never rejects. */
  async run(out: FeedOutput): Promise<void> {
    const interrupt = () => this.#source.interrupt()
    out.signal.addEventListener('abort', interrupt, { once: true })
    this.#heart = new Heart(this.#clock, this.#silence(), () => this.#beat(out))
    try {
      await this.#stream(out)
      if (!out.signal.aborted) await this.#finish(out)
    } catch (thrown) {
      if (this.#endsInOrder(thrown)) await this.#finish(out)
      else out.fail(thrown)
    } finally {
      this.#heart.stop()
      out.signal.removeEventListener('abort', interrupt)
      this.close()
    }
  }

  async #stream(out: FeedOutput): Promise<void> {
    this.#changedAt = this.#clock.now()
    await this.#write(out, PROLOGUES[this.#kind])
    let next = await this.#send(out)
    if (next === 'wait' && this.#kind === 'eventsource' && this.#sent === 0) await this.#write(out, COMMENT)
    while (next !== 'end' && !out.signal.aborted) {
      if (next === 'wait' && !(await this.#isWoken())) return
      if (this.#source.takeDoubt()) await this.#checkCaller()
      this.#page = await this.#nextPage()
      next = await this.#send(out)
    }
  }

  /** A function's filter sees who asks and how, and so is of its feed alone. */
  #nextPage(): Promise<ChangesPage> {
    const isShared = this.#options.filter?.kind !== 'function'
    return isShared
      ? this.#source.nextPage(this.#user, this.#pageRequest(), this.#key)
      : this.#source.page(this.#user, this.#pageRequest())
  }

  #pageRequest() {
    return { options: this.#options, since: this.#position, limit: this.#wanted }
  }

  /** Sends the page; in a frame of its own, so that a waiting feed holds no bytes. */
  async #send(out: FeedOutput): Promise<Next> {
    const page = this.#page as ChangesPage
    this.#page = null
    if (page.rows > 0) {
      if (this.#sent > 0 && this.#options.framing === 'json') await this.#write(out, SEPARATOR)
      await this.#write(out, page.bytes)
    }
    // Rows that a filter kept back were changes, too.
    if (page.rows > 0 || !page.atTip) this.#changedAt = this.#clock.now()
    this.#sent += page.rows
    this.#wanted -= page.rows
    this.#position = page.lastSeq
    this.#lastToken = page.lastToken
    this.#pending = page.pending
    return this.#whatNext(page.atTip)
  }

  #whatNext(atTip: boolean): Next {
    const isAnswered = this.#kind === 'longpoll' && this.#sent > 0
    // A longpoll with limit=0 waits for its time-out, all others end: protocol.md 5.3.
    if (this.#wanted <= 0) return this.#kind === 'longpoll' && !isAnswered ? 'wait' : 'end'
    if (!atTip) return this.#wholeTime() > 0 ? 'page' : 'end'
    return this.#kind === 'normal' || this.#options.descending || isAnswered ? 'end' : 'wait'
  }

  /** Waits for a commit. @returns false when the feed is over; throws when its caller may not read any more */
  async #isWoken(): Promise<boolean> {
    for (;;) {
      const seq = this.#wanted > 0 ? (this.#position as number) : Infinity
      const wake = await this.#source.wait(seq, Math.min(this.#idleTime(), this.#wholeTime()))
      if (wake !== 'doubt') return wake === 'committed'
      if (this.#source.takeDoubt()) await this.#checkCaller()
    }
  }

  async #checkCaller(): Promise<void> {
    this.#user = await this.#caller()
    requireMember(this.#user, await this.#source.security())
  }

  #idleTime(): number {
    const { heartbeat, timeout } = this.#request
    return heartbeat === null ? this.#changedAt + timeout - this.#clock.now() : Infinity
  }

  #wholeTime(): number {
    return this.#kind === 'longpoll' ? this.#begun + LONGPOLL_MS - this.#clock.now() : Infinity
  }

  /** Some readers of continuous feeds parse every line, so those hear only what they asked for. */
  #silence(): number {
    const { heartbeat } = this.#request
    return heartbeat === null && this.#kind === 'continuous'
      ? Infinity
      : Math.min(heartbeat ?? Infinity, SILENCE_MS)
  }

  #beat(out: FeedOutput): void {
    // What still waits to be taken breaks the silence as well.
    if (this.#writing > 0 || out.signal.aborted) return
    const isComment = this.#kind === 'eventsource' && this.#request.heartbeat === null
    void this.#write(out, isComment ? COMMENT : BEAT[this.#kind])
  }

  async #write(out: FeedOutput, bytes: Uint8Array): Promise<void> {
    this.#writing++
    await out.write(bytes)
    this.#writing--
    this.#heart?.heard()
  }

  async #finish(out: FeedOutput): Promise<void> {
    await this.#write(out, bytesOf(epilogue(this.#kind, this.#lastToken, this.#pending)))
    await out.end()
  }

  /** Rights withdrawn, the database deleted, the server stopping: a feed that waits says where it stood. */
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
 * Beats after each stretch of silence. One timer, which is not set anew by what is written: when it runs out, it
 * runs on for as long as the last writing made the silence shorter.
 */
class Heart {
  readonly #clock: Clock
  readonly #interval: number
  readonly #beat: () => void
  #heard: number
  #cancel: () => void

  /** @param interval milliseconds of silence; Infinity for a heart that never beats */
  constructor(clock: Clock, interval: number, beat: () => void) {
    this.#clock = clock
    this.#interval = interval
    this.#beat = beat
    this.#heard = clock.now()
    this.#cancel = this.#arm(interval)
  }

  /** Something was written. */
  heard(): void {
    this.#heard = this.#clock.now()
  }

  stop(): void {
    this.#cancel()
  }

  #arm(ms: number): () => void {
    return ms === Infinity ? () => {} : this.#clock.after(ms, this.#tick)
  }

  readonly #tick = (): void => {
    const left = this.#interval - (this.#clock.now() - this.#heard)
    if (left > 0) {
      this.#cancel = this.#arm(left)
      return
    }
    this.#cancel = this.#arm(this.#interval)
    this.#beat()
  }
}
