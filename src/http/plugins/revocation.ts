/**
 * Ends requests under way, whatever they do, within 5 s after the rights of their callers were revoked: the account, its
 * password, a device token, a session, membership. A long upload or download, or a feed whose reader has stalled, would
 * otherwise go on for hours. (Feeds that wait end at once and in order; changes/hub.ts.)
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import type { AccountListener } from '../../auth/accounts.ts'
import { asCouchError, CouchError } from '../../core/errors.ts'
import { Yielder } from '../../core/event-loop.ts'
import { breakOff } from '../transport/raw-answer.ts'
import { checkAccess } from './access-rules.ts'
import { authenticate } from './authentication.ts'
import { answerInstead } from './error-replies.ts'
import { factsOf } from './request-log.ts'
import { refuseClosedAccount, setAllowance } from './tenancy.ts'

declare module 'fastify' {
  interface FastifyInstance {
    activeRequests: ActiveRequests
    /** How many changes there were that may have revoked somebody's rights. */
    readonly revocations: { count: number }
  }
  interface FastifyRequest {
    /** The rights of the caller were revoked while the request was served, which has ended it. */
    isRevoked: boolean
    /** Its place among the requests under way; null: its caller needs no rights. */
    active: ActiveRequest | null
  }
}

export const revocation = fp(
  async (app) => {
    app.decorateRequest('isRevoked', false).decorateRequest('active', null)
    app.decorateRequest('endBody', null)
    const revocations = { count: 0 }
    app.decorate('revocations', revocations)
    const requests = new ActiveRequests({ checkAgain, cut })
    app.decorate('activeRequests', requests)
    const stopCounting = onRevocation(app, () => {
      revocations.count += 1
    })
    const stops = [
      onRevocation(app, (names) => requests.revokeAccounts(names)),
      app.services.databases.watchSecurity((name) => requests.revokeDatabase(name)),
    ]
    app.addHook('preClose', async () => {
      for (const stop of stops) stop()
      requests.close()
    })
    app.addHook('onClose', async () => stopCounting())
  },
  { name: 'revocation', dependencies: ['authentication'] },
)

/** Sections with the keys that sign callers' tokens. */
const KEY_SECTIONS: ReadonlySet<string> = new Set(['jwt_auth', 'jwt_keys'])
/** Further keys, of `[chttpd]` and `[chttpd_auth]`, that decide who is let in. */
const RULES: ReadonlySet<string> = new Set([
  'authentication_handlers',
  'hash_algorithms',
  'timeout',
  'require_valid_user',
  'require_valid_user_except_for_up',
  'secret',
  'proxy_use_secret',
])
const RULE_SECTIONS: ReadonlySet<string> = new Set(['chttpd', 'chttpd_auth', 'couch_httpd_auth'])

/**
 * Calls `listener` with the names of accounts that may have lost rights: the account itself, its password, roles, a
 * device token or a session; with `all` if keys or rules have changed. The expiry of a cookie or a token is no
 * revocation: a request that began in time goes on.
 * @returns stops the calls
 */
export function onRevocation(app: FastifyInstance, listener: AccountListener): () => void {
  const { accounts, config, tokens } = app.services
  const stops = [accounts, tokens, app.sessions].map((source) => source.onChange(listener))
  stops.push(
    config.onChange((section, key) => {
      if (KEY_SECTIONS.has(section) || (RULE_SECTIONS.has(section) && RULES.has(key))) listener('all')
    }),
  )
  return () => {
    for (const stop of stops) stop()
  }
}

/** Sets no header: a renewed cookie could end up in somebody else's answer. */
const IGNORED_REPLY = {
  header: () => IGNORED_REPLY,
  headers: () => IGNORED_REPLY,
  removeHeader: () => IGNORED_REPLY,
} as unknown as FastifyReply

/**
 * Checks the caller's credentials and rights as they were checked at the beginning (admission.ts).
 * @returns the request with what was found now; `request` itself is unchanged
 * @throws the refusal that the caller would get
 */
async function checkAgain(request: FastifyRequest): Promise<FastifyRequest> {
  const probe = Object.create(request) as FastifyRequest
  await authenticate(probe, IGNORED_REPLY)
  await refuseClosedAccount(probe)
  await setAllowance(probe)
  await checkAccess(probe)
  return probe
}

/**
 * Checks the caller again if accounts or rules have changed since the last check; otherwise it costs nothing. Call it when
 * a body has arrived, and in the turn of a write on this thread. It updates `request.user`.
 * @throws as {@link checkAgain}
 */
export async function reauthorize(request: FastifyRequest): Promise<void> {
  if (request.routeOptions.config.access === 'public') return
  const { revocations } = request.server
  while (request.revocationsSeen !== revocations.count) {
    const { user, identity, session, revocationsSeen } = await checkAgain(request)
    Object.assign(request, { user, identity, session, revocationsSeen })
  }
}

/**
 * A client that is still sending, or that was sent nothing yet, gets a proper answer. Otherwise the connection is cut, so
 * that the client does not take a part of the answer for the whole.
 */
function cut(request: FastifyRequest, reply: FastifyReply, error: CouchError): void {
  // It was answered, and the rest of its body is being discarded.
  if (request.isRevoked) return
  const { headersSent } = reply.raw
  const what = headersSent ? 'an answer was cut off' : 'a request was refused'
  request.server.services.logger.warn(factsOf(request), `${what}: the rights of its caller were revoked`)
  request.isRevoked = true
  if (request.endBody !== null) request.endBody(error)
  else if (headersSent) breakOff(reply.raw)
  else if (reply.raw.socket === null) request.raw.socket.destroy()
  else answerInstead(error, request, reply)
}

/** Whose rights may have been revoked in one tick. */
interface Revocations {
  /** Names of accounts. */
  readonly accounts: Set<string>
  /** Names of databases whose security object has changed. */
  readonly databases: Set<string>
  /** Everybody's. */
  ofAll: boolean
}

interface ActiveRequestsOptions {
  /** Checks the caller's credentials and rights again. Throws the refusal that the caller would get. */
  checkAgain(request: FastifyRequest, reply: FastifyReply): Promise<unknown>
  /** Ends a request. */
  cut(request: FastifyRequest, reply: FastifyReply, error: CouchError): void
  /** The length of a tick, in milliseconds; default 750. */
  readonly tickMs?: number
}

/**
 * How many ticks after a revocation requests are checked. The request that has revoked something must be answered first,
 * and may be one of the caller's own. The second check finds passwords whose check was under way during the first one,
 * and feeds whose readers do not take their end. It comes after three seconds; a client that is still sending then is cut
 * two seconds later (raw-answer.ts).
 */
const TICK_MS = 750
const FIRST_CHECK = 2
const SECOND_CHECK = 4

/** Requests that are checked at the same time: others wait for the hashes of passwords, too. */
const AT_ONCE = 16

/** After so many requests, those of closed connections are removed: a pipelined response may never emit `close`. */
const SWEEP_EVERY = 4096

/** A request in the linked list of all. In pairs of trials, a Set instead cost a GET at least 12 % more CPU time. */
class ActiveRequest {
  previous: ActiveRequest = this
  next: ActiveRequest = this
  readonly reply: FastifyReply

  constructor(reply: FastifyReply) {
    this.reply = reply
  }

  get isListed(): boolean {
    return this.next !== this
  }

  insertAfter(head: ActiveRequest): void {
    this.previous = head
    this.next = head.next
    head.next.previous = this
    head.next = this
  }

  /** Idempotent. */
  remove(): void {
    this.previous.next = this.next
    this.next.previous = this.previous
    this.previous = this
    this.next = this
  }
}

/** The requests under way, and the checks after revocations. */
export class ActiveRequests {
  readonly #options: ActiveRequestsOptions
  /** Head and end of the list; itself no request. The newest follows it. */
  readonly #head = new ActiveRequest(null as unknown as FastifyReply)
  /** Of each of the last ticks, the current one first. Empty while there is nothing to check. */
  #revocations: Revocations[] = []
  #timer: NodeJS.Timeout | null = null
  #added = 0

  constructor(options: ActiveRequestsOptions) {
    this.#options = options
  }

  /** How many are under way. */
  get size(): number {
    return this.#list().length
  }

  /** The oldest first. */
  requests(): FastifyRequest[] {
    return this.#list().map(({ reply }) => reply.request)
  }

  /** Adds a request whose caller was let in, until its `active` is removed. */
  add(reply: FastifyReply): void {
    const active = new ActiveRequest(reply)
    active.insertAfter(this.#head)
    reply.request.active = active
    this.#added += 1
    if (this.#added % SWEEP_EVERY === 0) this.#sweep()
  }

  /** @param names accounts that may have lost rights */
  revokeAccounts(names: ReadonlySet<string> | 'all'): void {
    const current = this.#current()
    if (names === 'all') current.ofAll = true
    else for (const name of names) current.accounts.add(name)
  }

  /** @param name of a database whose security object has changed */
  revokeDatabase(name: string): void {
    this.#current().databases.add(name)
  }

  /** Ends all checks. */
  close(): void {
    if (this.#timer !== null) clearInterval(this.#timer)
    this.#timer = null
    this.#revocations = []
  }

  #current(): Revocations {
    if (this.#timer === null) {
      this.#timer = setInterval(() => this.#tick(), this.#options.tickMs ?? TICK_MS)
      this.#timer.unref()
      this.#revocations = [noRevocations()]
    }
    return this.#revocations[0]!
  }

  #tick(): void {
    this.#revocations.unshift(noRevocations())
    this.#revocations.length = Math.min(this.#revocations.length, SECOND_CHECK + 1)
    for (const age of [FIRST_CHECK, SECOND_CHECK]) {
      const revocations = this.#revocations[age]
      if (revocations !== undefined && !isEmpty(revocations)) {
        void this.#checkAll(revocations, age === SECOND_CHECK)
      }
    }
    if (this.#revocations.slice(0, SECOND_CHECK).every(isEmpty)) this.close()
  }

  async #checkAll(revocations: Revocations, isLast: boolean): Promise<void> {
    this.#sweep()
    const concerned = this.#list().filter(
      ({ reply: { request } }) => concerns(revocations, request) && (isLast || !request.isWaitingFeed),
    )
    const yielder = new Yielder()
    for (let at = 0; at < concerned.length; at += AT_ONCE) {
      await Promise.all(concerned.slice(at, at + AT_ONCE).map((active) => this.#check(active, isLast)))
      await yielder.yieldIfDue()
    }
  }

  async #check(active: ActiveRequest, isLast: boolean): Promise<void> {
    const { reply } = active
    const { request } = reply
    try {
      await this.#options.checkAgain(request, reply)
    } catch (thrown) {
      const error = asCouchError(thrown)
      // The first check ends no request because the rights could not be read.
      const isOver = isRefusal(error) || (isLast && error.status >= 500)
      if (isOver && active.isListed) this.#options.cut(request, reply, error)
    }
  }

  #sweep(): void {
    for (const active of this.#list()) {
      if (active.reply.request.raw.socket.destroyed) active.remove()
    }
  }

  /** The oldest first. */
  #list(): ActiveRequest[] {
    const list: ActiveRequest[] = []
    for (let each = this.#head.previous; each !== this.#head; each = each.previous) list.push(each)
    return list
  }
}

function noRevocations(): Revocations {
  return { accounts: new Set(), databases: new Set(), ofAll: false }
}

function isEmpty({ accounts, databases, ofAll }: Revocations): boolean {
  return !ofAll && accounts.size === 0 && databases.size === 0
}

function concerns({ accounts, databases, ofAll }: Revocations, { user, database }: FastifyRequest): boolean {
  if (ofAll || (user.name !== null && accounts.has(user.name))) return true
  // Fastify leaves it undefined on a route without a database.
  return database?.name !== undefined && databases.has(database.name)
}

/**
 * A removed key makes a token a bad request. A missing database is no matter of rights, unless it is hidden from the
 * caller (access-rules.ts).
 */
function isRefusal(error: CouchError): boolean {
  return error.status < 500 && (error.status !== 404 || error.cause instanceof CouchError)
}
