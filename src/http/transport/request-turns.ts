/**
 * Shares the HTTP thread among clients, before anything else looks at a request. In each turn of the event loop, a
 * connection and a network may have a number of requests served; further ones wait for the next turn. Each request of a
 * connection without an account takes a token of its network, or waits for one. Requests with credentials have tokens of
 * their own, and so has what comes first on a connection, so that an account can always show itself. A connection that
 * pipelines, or whose network is crowded, is read one request at a time, and not while one waits. So the account waits
 * behind one request of each other connection, and what strangers send is not parsed before its turn.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { CouchError } from '../../core/errors.ts'
import { type ClientNetwork, type ClientNetworks, Connection, type RequestQueue } from './connection.ts'
import { needsNoSandbox } from './page-policy.ts'
import { errorBody } from './raw-answer.ts'
import { RequestGate } from './request-gate.ts'
import type { TokenBucket } from './token-bucket.ts'

/** The maximum number of requests of a network in one turn: while no other network sends any, and while one does. */
const MAX_PER_TURN_OF_SOLE_NETWORK = 64
const MAX_PER_TURN_OF_NETWORK = 8
/** How long another network counts as active after a request, in milliseconds. */
const OTHERS_MS = 1000
/** The maximum number of requests of one connection in one turn; in a crowded network, 1 without an account. */
const MAX_PER_TURN_OF_CONNECTION = 4
/** The same for connections that carry many requests at once by design: HTTP/2, and a proxy's. */
const MAX_PER_TURN_OF_SHARED_CONNECTION = 16
/** The maximum number of pipelined requests of one connection that are under way. */
const MAX_PIPELINED = 16
/** A network is crowded once more of its requests wait, until none does, and while it owes tokens. */
const CROWDED_ABOVE = 32
/** Requests of a shared connection, or of a proxy's client, that may wait although its network has {@link MAX_WAITING}. */
const MIN_WAITING_ALLOWED = 8
/** Waiting requests of a network, with or without an account, above which further ones of those are refused. */
const MAX_WAITING = 1000
/** How long a turn may serve requests that have waited, in milliseconds. */
const DRAIN_MS = 4
/** How often buckets are checked while requests wait for tokens, in milliseconds. */
const REFILL_MS = 10

declare module 'fastify' {
  interface FastifyInstance {
    turns: RequestTurns
  }
}

const QUEUE = Symbol('queue')
const CHARGED = Symbol('charged')

/** A request whose caller is not known yet. */
interface PendingRequest extends IncomingMessage {
  [QUEUE]?: RequestQueue
  /** Where the token comes from that the request has taken. */
  [CHARGED]?: TokenBucket | null
}

type Serve = (request: IncomingMessage, response: ServerResponse) => void

interface TurnOptions {
  readonly networks: ClientNetworks
  /** Requests without an account that a network may send in a second; 0: any number. */
  anonymousRate(): number
  /** The IP address of the client whose request came through a trusted proxy. */
  clientOf(request: IncomingMessage): string
}

export class RequestTurns {
  readonly #options: TurnOptions
  readonly #serve: Serve
  /** The queues with waiting requests, in the order of their turns. */
  readonly #queues = new Set<RequestQueue>()
  #turn = 1
  #isTurnArmed = false
  #refill: NodeJS.Timeout | null = null
  #now = 0
  #rate = 0
  #last: ClientNetwork | null = null
  #othersUntil = 0

  /** @param serve handles a request whose turn has come */
  constructor(options: TurnOptions, serve: Serve) {
    this.#options = options
    this.#serve = serve
  }

  /** Serves the request now, or in its turn. */
  handle(request: IncomingMessage, response: ServerResponse): void {
    const queue = this.#queueOf(request)
    if (queue === null) {
      this.#serve(request, response)
      return
    }
    this.#armTurn()
    const { network } = queue
    if (network !== this.#last) {
      if (this.#last !== null) this.#othersUntil = this.#now + OTHERS_MS
      this.#last = network
    }
    const { length } = queue.waiting
    if (length === 0 && this.#mayServe(queue, request)) this.#serveNow(queue, request, response)
    else if (queue.isShared && length >= MIN_WAITING_ALLOWED && network.waitingLike(queue) >= MAX_WAITING)
      refuse(response)
    else this.#wait(queue, request, response)
    this.#updateCrowd(network)
  }

  /**
   * Notes whether the request has an account. If so it costs no token, nor do the next ones of its connection.
   * @param request a request that is being served
   */
  noteAccount(request: IncomingMessage, hasAccount: boolean): void {
    const pending = request as PendingRequest
    const queue = pending[QUEUE] ?? Connection.of(request.socket)?.queue
    if (queue === undefined || queue === null) return
    if (hasAccount) pending[CHARGED]?.refund()
    pending[CHARGED] = null
    queue.hasAccount = hasAccount
  }

  /** Called when an answer on this connection has ended. */
  onRequestEnd(queue: RequestQueue): void {
    if (queue.waiting.length > 0) this.#armTurn()
  }

  /** A connection is read from now on. */
  onOpen(queue: RequestQueue): void {
    this.#armTurn()
    this.#updateCrowd(queue.network)
    if (queue.network.isCrowded) this.#gate(queue)
  }

  /** The connection was closed. Its waiting requests cost their tokens as if they had been served. */
  onClose(queue: RequestQueue): void {
    this.#queues.delete(queue)
    if (queue.waiting.length === 0) return
    this.#armTurn()
    while (queue.shift() !== undefined) queue.network.anonymous.charge()
    this.#updateCrowd(queue.network)
  }

  /** The connection has sent something that is not a request; it costs as much as one. */
  onInvalidRequest({ network, isNew }: RequestQueue): void {
    this.#armTurn()
    const bucket = isNew ? network.claims : network.anonymous
    bucket.charge()
    this.#updateCrowd(network)
  }

  #queueOf(request: IncomingMessage): RequestQueue | null {
    const connection = Connection.of(request.socket)
    if (connection === undefined) return null
    if (!connection.isProxy) return connection.queue
    const { proxied } = this.#options.networks.of(this.#options.clientOf(request))
    const queue = showsCredentials(request) ? proxied.claims : proxied.anonymous
    ;(request as PendingRequest)[QUEUE] = queue
    return queue
  }

  #mayServe(queue: RequestQueue, request: PendingRequest): boolean {
    const { network, connection } = queue
    if (!this.#hasTurn(queue)) return false
    if (!queue.isShared && connection!.requests - queue.waiting.length > MAX_PIPELINED) return false
    if (queue.hasAccount) return true
    const mayClaim = showsCredentials(request) || (queue.isNew && connection !== null)
    const bucket = mayClaim ? network.claims : network.anonymous
    if (!bucket.take(this.#rate, this.#now)) return false
    request[CHARGED] = bucket
    return true
  }

  /** Whether the queue and its network have anything left in this turn. */
  #hasTurn(queue: RequestQueue): boolean {
    const { network } = queue
    const turn = this.#turn
    if (queue.turn !== turn) {
      queue.turn = turn
      queue.served = 0
    }
    if (network.turn !== turn) {
      network.turn = turn
      network.served = 0
    }
    if (
      network.served >=
      (this.#now < this.#othersUntil ? MAX_PER_TURN_OF_NETWORK : MAX_PER_TURN_OF_SOLE_NETWORK)
    )
      return false
    if (network.isCrowded && queue.connection !== null && !queue.hasAccount) return queue.served < 1
    return queue.served < (queue.isShared ? MAX_PER_TURN_OF_SHARED_CONNECTION : MAX_PER_TURN_OF_CONNECTION)
  }

  #serveNow(queue: RequestQueue, request: IncomingMessage, response: ServerResponse): void {
    queue.isNew = false
    queue.served += 1
    queue.network.served += 1
    // The client has cancelled it; over HTTP/2 it may do so a thousand times a second.
    if (request.socket.destroyed) return
    this.#serve(request, response)
  }

  #wait(queue: RequestQueue, request: IncomingMessage, response: ServerResponse): void {
    queue.push({ request, response })
    this.#queues.add(queue)
    queue.connection?.gate?.close()
    if (queue.waiting.length > 1) this.#gate(queue)
  }

  /** When a network becomes crowded, its connections are read one request at a time from then on. */
  #updateCrowd(network: ClientNetwork): void {
    const { waiting, anonymous, claims, queues, isCrowded } = network
    const [rate, now] = [this.#rate, this.#now]
    network.isCrowded =
      waiting.known + waiting.unknown > (isCrowded ? 0 : CROWDED_ABOVE) ||
      anonymous.tokens(rate, now) < 0 ||
      claims.tokens(rate, now) < 0
    if (network.isCrowded && !isCrowded) for (const queue of queues) this.#gate(queue)
  }

  /** Has the connection read one request at a time; a new one not before its turn. */
  #gate(queue: RequestQueue): void {
    const { connection, waiting } = queue
    if (!connection?.isHttp1 || connection.gate !== null) return
    connection.gate = new RequestGate(connection.socket, {
      isOpen: waiting.length === 0 && !queue.isNew,
      onArrival: () => {
        if (waiting.length > 0) return
        queue.isUnread = true
        this.#queues.add(queue)
        this.#armTurn()
      },
    })
  }

  /** Begins a turn unless one has begun. It ends after the events that the event loop has ready. */
  #armTurn(): void {
    if (this.#isTurnArmed) return
    this.#isTurnArmed = true
    this.#now = performance.now()
    this.#rate = this.#options.anonymousRate()
    setImmediate(() => this.#endTurn())
  }

  #endTurn(): void {
    this.#isTurnArmed = false
    const hasServed = this.#queues.size > 0 && this.#drain()
    this.#turn += 1
    if (this.#queues.size === 0) return
    if (hasServed) this.#armTurn()
    else this.#refill ??= setTimeout(() => this.#endRefill(), REFILL_MS).unref()
  }

  #endRefill(): void {
    this.#refill = null
    this.#armTurn()
  }

  /** @returns whether more requests can be served in the next turn */
  #drain(): boolean {
    const until = performance.now() + DRAIN_MS
    let hasMore = false
    for (const queue of [...this.#queues]) {
      const served = this.#drainQueue(queue)
      if (served > 0 || !this.#hasTurn(queue)) hasMore = true
      if (served > 0 && performance.now() > until) return true
    }
    return hasMore
  }

  /** @returns how many requests were served */
  #drainQueue(queue: RequestQueue): number {
    if (queue.isUnread) return this.#read(queue)
    const { waiting } = queue
    const before = waiting.length
    while (waiting[0] !== undefined && this.#mayServe(queue, waiting[0].request)) {
      const { request, response } = queue.shift()!
      this.#serveNow(queue, request, response)
    }
    const served = before - waiting.length
    if (served === 0) return 0
    this.#queues.delete(queue)
    // At the end, after the queues that have not had their turn.
    if (waiting.length > 0) this.#queues.add(queue)
    else queue.connection?.gate?.open()
    return served
  }

  /** Reads what has arrived first on a connection, if there is a token for it. @returns 1, or 0 while it waits */
  #read(queue: RequestQueue): number {
    const { network } = queue
    if (!this.#hasTurn(queue) || network.claims.tokens(this.#rate, this.#now) < 1) return 0
    network.served += 1
    queue.isUnread = false
    this.#queues.delete(queue)
    queue.connection?.gate?.open()
    return 1
  }
}

/** Whether a request has anything that authentication may accept; it is not checked here. */
function showsCredentials({ headers }: IncomingMessage): boolean {
  return headers.authorization !== undefined || headers.cookie?.includes('AuthSession') === true
}

const REFUSAL = new CouchError('too_many_requests')
const REFUSAL_BODY = errorBody(REFUSAL)

function refuse(response: ServerResponse): void {
  needsNoSandbox(response)
  response.writeHead(REFUSAL.status, {
    'content-type': 'application/json',
    'cache-control': 'must-revalidate',
    'content-length': REFUSAL_BODY.length,
    'retry-after': '1',
  })
  response.end(REFUSAL_BODY)
}
