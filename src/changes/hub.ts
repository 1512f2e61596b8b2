/**
 * The hub of the feeds that wait for commits, on the HTTP thread. All feeds of a database share one watch on it. Feeds
 * at the same position with the same options share one request and one encoded buffer (architecture.md, "The path of a
 * feed").
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import { share } from '../core/bytes.ts'
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

/** How many feeds check their rights in one turn of the event loop. One check takes about 40 µs. */
const CHECKS_PER_TURN = 100

export class FeedHub {
  readonly #clock: Clock
  readonly #subscriptions = new Map<number, Subscription>()
  #isClosed: boolean = false

  constructor(clock: Clock = systemClock) {
    this.#clock = clock
  }

  /** The number of watched databases. */
  get watched(): number {
    return this.#subscriptions.size
  }

  /**
   * Subscribes a feed. The database is watched until its last subscriber has left.
   * @param account the name of the reader; null for an anonymous reader
   */
  join(database: FeedDatabase, account: string | null = null): FeedSource {
    const { incarnation } = database
    let subscription = this.#subscriptions.get(incarnation)
    if (subscription === undefined) {
      subscription = new Subscription(database, () => this.#subscriptions.delete(incarnation))
      this.#subscriptions.set(incarnation, subscription)
      if (this.#isClosed) subscription.end()
    }
    return new Subscriber(subscription, account, this.#clock)
  }

  /** Ends all feeds because the server is stopping. Later feeds end as soon as they would wait. */
  close(): void {
    this.#isClosed = true
    for (const subscription of this.#subscriptions.values()) subscription.end()
  }

  /**
   * Makes the waiting feeds of these accounts, or all feeds, check their rights again. Call it when accounts have
   * changed.
   */
  recheckAccounts(accounts: ReadonlySet<string> | 'all'): void {
    const affected: Subscriber[] = []
    for (const { subscribers } of this.#subscriptions.values()) {
      for (const subscriber of subscribers) {
        if (accounts === 'all' || (subscriber.account !== null && accounts.has(subscriber.account)))
          affected.push(subscriber)
      }
    }
    recheckSubscribers(affected)
  }
}

interface SharedRequest {
  readonly user: UserCtx
  readonly page: Promise<ChangesPage>
  feeds: number
}

/** A watched database. */
class Subscription {
  readonly database: FeedDatabase
  readonly subscribers = new Set<Subscriber>()
  newest = 0
  isGone: boolean = false
  #security: SecurityObject | null | undefined
  readonly #sharedRequests = new Map<string, SharedRequest>()
  readonly #stop: () => void

  constructor(database: FeedDatabase, onEmpty: () => void) {
    this.database = database
    const unwatch = database.watch((event) => this.#onEvent(event))
    this.#stop = () => {
      unwatch()
      onEmpty()
    }
  }

  #onEvent(event: FeedEvent): void {
    if (event.type === 'committed') {
      this.newest = Math.max(this.newest, event.updateSeq)
      for (const subscriber of this.subscribers) subscriber.committed(this.newest)
    } else if (event.type === 'secured') {
      this.#security = event.security
      recheckSubscribers([...this.subscribers])
    } else if (event.type === 'closed') {
      this.end()
    }
  }

  end(): void {
    this.isGone = true
    for (const subscriber of this.subscribers) subscriber.wake('gone')
  }

  leave(subscriber: Subscriber): void {
    if (this.subscribers.delete(subscriber) && this.subscribers.size === 0) this.#stop()
  }

  async security(): Promise<SecurityObject | null> {
    return this.#security === undefined ? this.database.securityCopy() : this.#security
  }

  /**
   * A page after the first. Feeds with different limits share it as long as it fits each of them.
   * With a `seq_interval` the limit decides which rows carry `seq`, so only feeds with equal limits share.
   */
  async nextPage(user: UserCtx, request: ChangesRequest, key: string): Promise<ChangesPage> {
    const wide = request.options.seqInterval === 1 ? { ...request, limit: PAGE_ROWS } : request
    const page = await this.#sharedPage(user, wide, `${wide.since} ${wide.limit} ${key}`)
    return page !== null && fits(page, request) ? page : this.database.changes(user, request)
  }

  /** Joins the request under way, or starts one. Returns null if the request of another user failed. */
  async #sharedPage(user: UserCtx, request: ChangesRequest, key: string): Promise<ChangesPage | null> {
    const shared = this.#sharedRequests.get(key)
    if (shared === undefined) return this.#requestPage(user, request, key)
    shared.feeds += 1
    if (isSameUser(shared.user, user)) return shared.page
    const page = await shared.page.catch(() => null)
    if (page !== null) requireMember(user, page.security)
    return page
  }

  async #requestPage(user: UserCtx, request: ChangesRequest, key: string): Promise<ChangesPage> {
    const shared = { user, page: this.database.changes(user, request), feeds: 1 }
    this.#sharedRequests.set(key, shared)
    try {
      const page = await shared.page
      share(page.bytes, shared.feeds)
      return page
    } finally {
      this.#sharedRequests.delete(key)
    }
  }
}

/** A filtered page may end after its last row, but a feed that reaches its limit ends with that row. */
function fits({ rows }: ChangesPage, { limit, options }: ChangesRequest): boolean {
  return rows < limit || (rows === limit && options.filter === undefined)
}

function isSameUser(a: UserCtx, b: UserCtx): boolean {
  return (
    a.name === b.name && a.roles.length === b.roles.length && a.roles.every((role, i) => role === b.roles[i])
  )
}

/**
 * Makes subscribers check their rights before they send another page. Waiting subscribers are woken in small groups.
 */
function recheckSubscribers(subscribers: readonly Subscriber[]): void {
  for (const subscriber of subscribers) subscriber.revoke()
  void wakeInTurns(subscribers)
}

async function wakeInTurns(subscribers: readonly Subscriber[]): Promise<void> {
  for (const [at, subscriber] of subscribers.entries()) {
    if (at > 0 && at % CHECKS_PER_TURN === 0) await nextTurn()
    subscriber.wake('revocation')
  }
}

/** One feed. This object is the only memory of a waiting feed. */
class Subscriber implements FeedSource {
  readonly account: string | null
  readonly #subscription: Subscription
  readonly #clock: Clock
  #resolve: ((wake: Wake) => void) | null = null
  #cancelTimer: (() => void) | null = null
  #awaited = Infinity
  #mustCheckRights: boolean = false
  #isInterrupted: boolean = false

  constructor(subscription: Subscription, account: string | null, clock: Clock) {
    this.account = account
    this.#subscription = subscription
    this.#clock = clock
    subscription.subscribers.add(this)
  }

  page(user: UserCtx, request: ChangesRequest): Promise<ChangesPage> {
    return this.#subscription.database.changes(user, request)
  }

  nextPage(user: UserCtx, request: ChangesRequest, key: string): Promise<ChangesPage> {
    return this.#subscription.nextPage(user, request, key)
  }

  security(): Promise<SecurityObject | null> {
    return this.#subscription.security()
  }

  wait(seq: number, ms: number): Promise<Wake> {
    const wake = this.#wakeAtOnce(seq, ms)
    if (wake !== null) return Promise.resolve(wake)
    this.#awaited = seq
    if (ms !== Infinity) this.#cancelTimer = this.#clock.after(ms, () => this.wake('time'))
    return new Promise((resolve) => {
      this.#resolve = resolve
    })
  }

  #wakeAtOnce(seq: number, ms: number): Wake | null {
    if (this.#isInterrupted) return 'interrupted'
    if (this.#subscription.isGone) return 'gone'
    if (this.#mustCheckRights) return 'revocation'
    if (ms <= 0) return 'time'
    return this.#subscription.newest > seq ? 'committed' : null
  }

  wake(wake: Wake): void {
    const resolve = this.#resolve
    this.#resolve = null
    this.#cancelTimer?.()
    this.#cancelTimer = null
    resolve?.(wake)
  }

  committed(updateSeq: number): void {
    if (updateSeq > this.#awaited) this.wake('committed')
  }

  revoke(): void {
    this.#mustCheckRights = true
  }

  takeRevocation(): boolean {
    const mustCheckRights = this.#mustCheckRights
    this.#mustCheckRights = false
    return mustCheckRights
  }

  interrupt(): void {
    this.#isInterrupted = true
    this.wake('interrupted')
  }

  leave(): void {
    this.interrupt()
    this.#subscription.leave(this)
  }
}
