import type { FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { asCouchError, CouchError } from '../../core/errors.ts'
import { Yielder } from '../../core/yielder.ts'
import { recheck } from '../readmit.ts'
import { onDoubt } from './authentication.ts'
import { answerInstead } from './error-replies.ts'
import { factsOf } from './request-log.ts'

declare module 'fastify' {
  interface FastifyInstance {
    callsInFlight: CallsInFlight
  }
  interface FastifyRequest {
    /** What let the caller in was withdrawn while the body was still coming. */
    isWithdrawn: boolean
  }
}

/**
 * Ends requests under way, whatever they do, within 5 s after what let their callers in was withdrawn: the account, its
 * password, a device token, a session, membership. (Feeds that wait end at once and in order; changes/hub.ts.)
 */
export const withdrawal = fp(
  async (app) => {
    app.decorateRequest('isWithdrawn', false)
    app.decorateRequest('endBody', null)
    const calls = new CallsInFlight({ recheck, cut })
    app.decorate('callsInFlight', calls)
    const forget = [
      onDoubt(app, (names) => calls.doubtAccounts(names)),
      app.services.databases.watchSecurity((name) => calls.doubtDatabase(name)),
    ]
    app.addHook('preClose', async () => {
      for (const each of forget) each()
      calls.close()
    })
    app.addHook('onRequest', (request, reply, done) => {
      if (request.routeOptions.config.access !== 'public') calls.add(reply)
      done()
    })
  },
  { name: 'withdrawal', dependencies: ['authentication', 'access'] },
)

/**
 * A client that is still sending gets a proper answer, and so does one that was sent nothing yet; else the connection is
 * cut, so that what the client has does not pass for the whole.
 */
function cut(request: FastifyRequest, reply: FastifyReply, error: CouchError): void {
  // It was answered, and what it still sends is thrown away for a moment.
  if (request.isWithdrawn) return
  const { headersSent } = reply.raw
  const what = headersSent
    ? 'an answer broke off while it was sent'
    : 'a request was refused while it was served'
  request.server.services.logger.warn(factsOf(request), `${what}: what let its caller in was withdrawn`)
  request.isWithdrawn = true
  if (request.endBody !== null) request.endBody(error)
  else if (headersSent || reply.raw.socket === null) request.raw.socket.destroy()
  else answerInstead(error, request, reply)
}

// The requests under way, so that they can be ended when what let them in is withdrawn: a long upload or download, or
// a feed that its reader does not take, would else go on for hours.

/** What may have been withdrawn, and from whom. */
interface Doubt {
  /** Names of accounts. */
  readonly accounts: Set<string>
  /** Names of databases whose security object has changed. */
  readonly databases: Set<string>
  /** Nobody's credentials are sure. */
  isOfAll: boolean
}

interface CallsOptions {
  /** Looks at the caller's credentials and rights again. Throws what he would be refused with. */
  recheck(request: FastifyRequest, reply: FastifyReply): Promise<unknown>
  /** Ends a request. */
  cut(request: FastifyRequest, reply: FastifyReply, error: CouchError): void
  /** How long a tick lasts, in milliseconds; default 750. */
  readonly tickMs?: number
}

/**
 * How many ticks after a doubt requests are looked at. The very request that withdrew something is to be answered, and
 * it may be one of the caller's own; and a password that was being checked all the while is right still when the check
 * ends, which the second look is for, and for feeds whose readers do not take what would be their end. That is over after three seconds, and a client that is still sending then is cut
 * two seconds later (raw-answer.ts).
 */
const TICK_MS = 750
const FIRST_LOOK = 2
const SECOND_LOOK = 4

/** Checked at the same time; the hashes of passwords have a queue that others want to stand in, too. */
const AT_ONCE = 16

/** A response whose connection went before its turn came is never closed: such are looked for after so many requests. */
const SWEPT_EVERY = 4096

export class CallsInFlight {
  readonly #options: CallsOptions
  /** The oldest first. */
  readonly #replies = new Set<FastifyReply>()
  /** Of each of the last ticks, the current one first. Empty while nothing is in doubt. */
  #doubts: Doubt[] = []
  #timer: NodeJS.Timeout | null = null
  #added = 0

  constructor(options: CallsOptions) {
    this.#options = options
  }

  /** How many are under way. */
  get size(): number {
    return this.#replies.size
  }

  /** Those that are under way, the oldest first. */
  requests(): FastifyRequest[] {
    return [...this.#replies].map(({ request }) => request)
  }

  /** Takes a request whose caller was let in; it leaves by itself. */
  add(reply: FastifyReply): void {
    this.#replies.add(reply)
    reply.raw.once('close', () => this.#replies.delete(reply))
    this.#added += 1
    if (this.#added % SWEPT_EVERY === 0) this.#sweep()
  }

  /** @param names accounts that may have lost something */
  doubtAccounts(names: ReadonlySet<string> | 'all'): void {
    const doubt = this.#current()
    if (names === 'all') doubt.isOfAll = true
    else for (const name of names) doubt.accounts.add(name)
  }

  /** @param name of a database whose security object has changed */
  doubtDatabase(name: string): void {
    this.#current().databases.add(name)
  }

  /** Looks at nothing any more. */
  close(): void {
    if (this.#timer !== null) clearInterval(this.#timer)
    this.#timer = null
    this.#doubts = []
  }

  #current(): Doubt {
    if (this.#timer === null) {
      this.#timer = setInterval(() => this.#tick(), this.#options.tickMs ?? TICK_MS)
      this.#timer.unref()
      this.#doubts = [noDoubt()]
    }
    return this.#doubts[0]!
  }

  #tick(): void {
    this.#doubts.unshift(noDoubt())
    this.#doubts.length = Math.min(this.#doubts.length, SECOND_LOOK + 1)
    for (const age of [FIRST_LOOK, SECOND_LOOK]) {
      const doubt = this.#doubts[age]
      if (doubt !== undefined && !isEmpty(doubt)) void this.#look(doubt, age === SECOND_LOOK)
    }
    if (this.#doubts.slice(0, SECOND_LOOK).every(isEmpty)) this.close()
  }

  async #look(doubt: Doubt, isLast: boolean): Promise<void> {
    this.#sweep()
    const doubted = [...this.#replies].filter(
      ({ request }) => concerns(doubt, request) && (isLast || !request.isWaitingFeed),
    )
    const yielder = new Yielder()
    for (let at = 0; at < doubted.length; at += AT_ONCE) {
      await Promise.all(doubted.slice(at, at + AT_ONCE).map((reply) => this.#check(reply, isLast)))
      await yielder.yieldIfDue()
    }
  }

  async #check(reply: FastifyReply, isLast: boolean): Promise<void> {
    const { request } = reply
    try {
      await this.#options.recheck(request, reply)
    } catch (thrown) {
      const error = asCouchError(thrown)
      // That his rights cannot be found out just now is no reason to end anything, at first.
      const isOver = isRefusal(error) || (isLast && error.status >= 500)
      if (isOver && this.#replies.has(reply)) this.#options.cut(request, reply, error)
    }
  }

  #sweep(): void {
    for (const reply of this.#replies) {
      if (reply.request.raw.socket.destroyed) this.#replies.delete(reply)
    }
  }
}

function noDoubt(): Doubt {
  return { accounts: new Set(), databases: new Set(), isOfAll: false }
}

function isEmpty({ accounts, databases, isOfAll }: Doubt): boolean {
  return !isOfAll && accounts.size === 0 && databases.size === 0
}

function concerns({ accounts, databases, isOfAll }: Doubt, { user, database }: FastifyRequest): boolean {
  if (isOfAll || (user.name !== null && accounts.has(user.name))) return true
  // Fastify leaves it undefined where no rule has set it.
  return database?.name !== undefined && databases.has(database.name)
}

/**
 * A key that is gone makes a token a bad request. A database that is gone is no question of rights; one that the caller is
 * not to know of any more is (plugins/access.ts).
 */
function isRefusal(error: CouchError): boolean {
  return error.status < 500 && (error.status !== 404 || error.cause instanceof CouchError)
}
