/**
 * Where feeds of one database wait together, on the HTTP thread: one watch, and one request and one encoded buffer
 * for all that stand at the same place and ask for the same (architecture.md, "How a feed travels").
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import { share } from '../core/outgoing.ts'
import type { SecurityObject, UserCtx } from '../core/types.ts'
import { requireMember } from '../documents/security.ts'
import type { ChangesPage, ChangesRequest } from './page.ts'
import { PAGE_ROWS } from './rows.ts'
import {
  type Clock,
  type FeedDatabase,
  type FeedEvent,
  type FeedSource,
  systemClock,
  type Wake,
} from './source.ts'

/** How many feeds look at their rights in one turn of the event loop; each takes some 40 us. */
const DOUBTS_A_TURN = 100

export class FeedHub {
  readonly #clock: Clock
  readonly #topics = new Map<number, Topic>()
  #isClosed: boolean = false

  constructor(clock: Clock = systemClock) {
    this.#clock = clock
  }

  /** How many databases are watched. */
  get watched(): number {
    return this.#topics.size
  }

  /**
   * A place for a feed that will wait; the database is watched until the last such feed has left.
   * @param account who reads; null for nobody in particular
   */
  join(database: FeedDatabase, account: string | null = null): FeedSource {
    const { incarnation } = database
    let topic = this.#topics.get(incarnation)
    if (topic === undefined) {
      topic = new Topic(database, () => this.#topics.delete(incarnation))
      this.#topics.set(incarnation, topic)
      if (this.#isClosed) topic.end()
    }
    return new Seat(topic, account, this.#clock)
  }

  /** The server is stopping: feeds end, also those of clients that come back, as soon as they would wait. */
  close(): void {
    this.#isClosed = true
    for (const topic of this.#topics.values()) topic.end()
  }

  /** Accounts have changed: their waiting feeds, or all, look at their callers' rights again. */
  doubt(accounts: ReadonlySet<string> | 'all'): void {
    const doubted: Seat[] = []
    for (const { seats } of this.#topics.values()) {
      for (const seat of seats) {
        if (accounts === 'all' || (seat.account !== null && accounts.has(seat.account))) doubted.push(seat)
      }
    }
    doubt(doubted)
  }
}

interface Flight {
  readonly user: UserCtx
  readonly page: Promise<ChangesPage>
  passengers: number
}

/** A watched database. */
class Topic {
  readonly database: FeedDatabase
  readonly seats = new Set<Seat>()
  newest = 0
  isGone: boolean = false
  #security: SecurityObject | null | undefined
  readonly #flights = new Map<string, Flight>()
  readonly #stop: () => void

  constructor(database: FeedDatabase, onEmpty: () => void) {
    this.database = database
    const unwatch = database.watch((event) => this.#hear(event))
    this.#stop = () => {
      unwatch()
      onEmpty()
    }
  }

  #hear(event: FeedEvent): void {
    if (event.type === 'committed') {
      this.newest = Math.max(this.newest, event.updateSeq)
      for (const seat of this.seats) seat.committed(this.newest)
    } else if (event.type === 'secured') {
      this.#security = event.security
      doubt([...this.seats])
    } else if (event.type === 'gone') {
      this.end()
    }
  }

  end(): void {
    this.isGone = true
    for (const seat of this.seats) seat.ring('gone')
  }

  leave(seat: Seat): void {
    if (this.seats.delete(seat) && this.seats.size === 0) this.#stop()
  }

  async security(): Promise<SecurityObject | null> {
    return this.#security === undefined ? this.database.securityCopy() : this.#security
  }

  /**
   * The page for a feed that was here before. Feeds with different limits share it as long as it fits into each;
   * with a `seq_interval` the limit decides which rows carry their `seq`, so only equal ones share.
   */
  async nextPage(user: UserCtx, request: ChangesRequest, key: string): Promise<ChangesPage> {
    const wide = request.options.seqInterval === 1 ? { ...request, limit: PAGE_ROWS } : request
    const page = await this.#fly(user, wide, `${wide.since} ${wide.limit} ${key}`)
    return page !== null && fits(page, request) ? page : this.database.changes(user, request)
  }

  /** Joins the request that is under way; null when that was refused to another user. */
  async #fly(user: UserCtx, request: ChangesRequest, key: string): Promise<ChangesPage | null> {
    const flight = this.#flights.get(key)
    if (flight === undefined) return this.#takeOff(user, request, key)
    flight.passengers += 1
    if (isSameUser(flight.user, user)) return flight.page
    const page = await flight.page.catch(() => null)
    if (page !== null) requireMember(user, page.security)
    return page
  }

  async #takeOff(user: UserCtx, request: ChangesRequest, key: string): Promise<ChangesPage> {
    const flight = { user, page: this.database.changes(user, request), passengers: 1 }
    this.#flights.set(key, flight)
    try {
      const page = await flight.page
      share(page.bytes, flight.passengers)
      return page
    } finally {
      this.#flights.delete(key)
    }
  }
}

/** A filtered page may end behind its last row; a feed whose limit that row reaches ends with the row. */
function fits({ rows }: ChangesPage, { limit, options }: ChangesRequest): boolean {
  return rows < limit || (rows === limit && options.filter === undefined)
}

function isSameUser(a: UserCtx, b: UserCtx): boolean {
  return (
    a.name === b.name && a.roles.length === b.roles.length && a.roles.every((role, i) => role === b.roles[i])
  )
}

/** From now on none of them sends a page before it has looked; those that wait are woken some at a time. */
function doubt(seats: readonly Seat[]): void {
  for (const seat of seats) seat.suspect()
  void wake(seats)
}

async function wake(seats: readonly Seat[]): Promise<void> {
  for (const [at, seat] of seats.entries()) {
    if (at > 0 && at % DOUBTS_A_TURN === 0) await nextTurn()
    seat.ring('doubt')
  }
}

/** One waiting feed; all that it holds while it waits is here. */
class Seat implements FeedSource {
  readonly account: string | null
  readonly #topic: Topic
  readonly #clock: Clock
  #resolve: ((wake: Wake) => void) | null = null
  #cancelTimer: (() => void) | null = null
  #awaited = Infinity
  #isDoubted: boolean = false
  #isInterrupted: boolean = false

  constructor(topic: Topic, account: string | null, clock: Clock) {
    this.account = account
    this.#topic = topic
    this.#clock = clock
    topic.seats.add(this)
  }

  page(user: UserCtx, request: ChangesRequest): Promise<ChangesPage> {
    return this.#topic.database.changes(user, request)
  }

  nextPage(user: UserCtx, request: ChangesRequest, key: string): Promise<ChangesPage> {
    return this.#topic.nextPage(user, request, key)
  }

  security(): Promise<SecurityObject | null> {
    return this.#topic.security()
  }

  wait(seq: number, ms: number): Promise<Wake> {
    const wake = this.#wakeAtOnce(seq, ms)
    if (wake !== null) return Promise.resolve(wake)
    this.#awaited = seq
    if (ms !== Infinity) this.#cancelTimer = this.#clock.after(ms, () => this.ring('time'))
    return new Promise((resolve) => {
      this.#resolve = resolve
    })
  }

  #wakeAtOnce(seq: number, ms: number): Wake | null {
    if (this.#isInterrupted) return 'interrupted'
    if (this.#topic.isGone) return 'gone'
    if (this.#isDoubted) return 'doubt'
    if (ms <= 0) return 'time'
    return this.#topic.newest > seq ? 'committed' : null
  }

  ring(wake: Wake): void {
    const resolve = this.#resolve
    this.#resolve = null
    this.#cancelTimer?.()
    this.#cancelTimer = null
    resolve?.(wake)
  }

  committed(updateSeq: number): void {
    if (updateSeq > this.#awaited) this.ring('committed')
  }

  suspect(): void {
    this.#isDoubted = true
  }

  takeDoubt(): boolean {
    const isDoubted = this.#isDoubted
    this.#isDoubted = false
    return isDoubted
  }

  interrupt(): void {
    this.#isInterrupted = true
    this.ring('interrupted')
  }

  leave(): void {
    this.interrupt()
    this.#topic.leave(this)
  }
}
