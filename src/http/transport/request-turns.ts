/**
 * Shares the HTTP thread among clients, before anything else looks at a request. In each turn of the event loop, a
 * connection and a network may have a number of requests served; further ones wait for the next turn. Each request
 * of a connection without an account takes a token of its network, and waits for one if necessary. A connection with many
 * waiting requests is not read, so that TCP slows its client down. Nor are the others of a network with too many; but
 * those of which nothing waits are read one after the other, since any of them may have an account, and requests with
 * credentials have tokens of their own. So strangers cannot keep the accounts of their network out.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { CouchError } from '../../core/errors.ts'
import { type ClientNetwork, type ClientNetworks, Connection, type RequestQueue } from './connection.ts'
import { needsNoSandbox } from './page-policy.ts'
import { errorBody } from './raw-answer.ts'
import type { TokenBucket } from './token-bucket.ts'

/** Requests of a network that are served in one turn: while no other network sends any, and while one does. */
const ALONE = 64
const AMONG_OTHERS = 8
/** How long another network counts as active after a request, in milliseconds. */
const OTHERS_MS = 1000
/** Requests of one connection served in one turn. A client that does not pipeline has one. */
const OF_A_CONNECTION = 4
/** The same for connections that carry many requests at once by design: HTTP/2, and a proxy's. */
const OF_A_SHARED_CONNECTION = 16
/** Pipelined requests of one connection that may be under way. */
const PIPELINED = 16
/** A connection is paused with more waiting requests, and resumed with fewer. */
const PAUSE_ABOVE = 8
const RESUME_BELOW = 4
/** Waiting requests without an account above which a network's connections without one are paused. */
const PAUSE_ANONYMOUS_ABOVE = 32
/** Waiting requests with an account above which all are paused, until so many are left. */
const PAUSE_ALL_ABOVE = 512
const RESUME_ALL_BELOW = 32
/**
 * Waiting requests of a network, with or without an account, above which further ones of connections that cannot be paused
 * are refused.
 */
const MAX_WAITING = 1000
/**
 * How much longer the next paused connection of a network waits for its turn to be read, for each request, for what is
 * not a request, and for each connection that was closed in such turns, in milliseconds: reading takes a fifth of that.
 */
const REST_AFTER_REQUEST_MS = 0.05
const REST_AFTER_INVALID_MS = 5
const REST_AFTER_CLOSING_MS = 100
/** How long a turn may serve requests that have waited, in milliseconds. */
const DRAIN_MS = 4
/** How often buckets are checked while requests wait for tokens, and paused connections are read, in milliseconds. */
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
  /** The networks of which some connections are paused. */
  readonly #paused = new Set<ClientNetwork>()
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
    if (queue.wasReadInTurn) this.#rest(network, REST_AFTER_REQUEST_MS)
    if (queue.mayShow) {
      queue.mayShow = false
      if (isPaused(queue)) queue.connection?.pause()
    }
    if (queue.waiting.length === 0 && this.#mayServe(queue, request)) this.#serveNow(queue, request, response)
    else if (queue.waiting.length < PAUSE_ABOVE) this.#wait(queue, request, response)
    else if (!queue.canPause && network.waitingLike(queue) >= MAX_WAITING) refuse(response)
    // It was read to show an account, and one read brings up to 2,000 requests.
    else if (queue.wasReadInTurn) this.#close(request, network)
    else this.#wait(queue, request, response)
  }

  /**
   * Notes whether the request has an account. If so it costs no token, nor do the next ones of its connection.
   * @param request a request that is being served
   */
  settle(request: IncomingMessage, hasAccount: boolean): void {
    const pending = request as PendingRequest
    const queue = pending[QUEUE] ?? Connection.of(request.socket)?.queue
    if (queue === undefined || queue === null) return
    if (hasAccount) pending[CHARGED]?.refund()
    pending[CHARGED] = null
    queue.hasAccount = hasAccount
    if (hasAccount) queue.wasReadInTurn = false
    if (queue.waiting.length > 0) return
    if (isPaused(queue)) this.#pause(queue)
    else queue.connection?.resume()
  }

  /** Called when an answer on this connection has ended. */
  onRequestEnd(queue: RequestQueue): void {
    if (queue.waiting.length > 0) this.#armTurn()
  }

  /** A connection was opened. */
  onOpen(queue: RequestQueue): void {
    this.#armTurn()
    queue.network.anonymous.charge()
    this.#updatePause(queue.network)
    if (isPaused(queue)) this.#pause(queue)
  }

  /** The connection was closed. Its waiting requests cost their tokens as if they had been served. */
  onClose(queue: RequestQueue): void {
    queue.network.unread.delete(queue)
    if (queue.waiting.length === 0) return
    while (queue.shift() !== undefined) queue.network.anonymous.charge()
    this.#queues.delete(queue)
    this.#armTurn()
    this.#updatePause(queue.network)
  }

  /** The connection has sent something that is not a request; it costs as much as one. */
  onInvalidRequest(queue: RequestQueue): void {
    this.#armTurn()
    queue.network.anonymous.charge()
    if (queue.wasReadInTurn) this.#rest(queue.network, REST_AFTER_INVALID_MS)
    this.#updatePause(queue.network)
  }

  #close({ socket }: IncomingMessage, network: ClientNetwork): void {
    if (socket.destroyed) return
    socket.destroy()
    this.#rest(network, REST_AFTER_CLOSING_MS)
  }

  #rest(network: ClientNetwork, ms: number): void {
    network.readAt = Math.max(network.readAt, this.#now) + ms
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
    const turn = this.#turn
    if (queue.turn !== turn) {
      queue.turn = turn
      queue.served = 0
    }
    if (network.turn !== turn) {
      network.turn = turn
      network.served = 0
    }
    if (network.served >= (this.#now < this.#othersUntil ? AMONG_OTHERS : ALONE)) return false
    if (queue.served >= (queue.canPause ? OF_A_CONNECTION : OF_A_SHARED_CONNECTION)) return false
    if (connection?.canPause && connection.requests - queue.waiting.length > PIPELINED) return false
    if (queue.hasAccount) return true
    const mayClaim = showsCredentials(request) || (queue.isNew && connection !== null)
    const bucket = mayClaim ? network.claims : network.anonymous
    if (!bucket.take(this.#rate, this.#now)) return false
    request[CHARGED] = bucket
    return true
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
    queue.network.unread.delete(queue)
    this.#queues.add(queue)
    if (queue.waiting.length === PAUSE_ABOVE + 1) queue.connection?.pause()
    this.#updatePause(queue.network)
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
    for (const network of this.#paused) this.#updatePause(network)
    if (this.#queues.size === 0 && this.#paused.size === 0) return
    if (hasServed) this.#armTurn()
    else this.#armRefill()
  }

  /** @returns whether more requests can be served in the next turn */
  #drain(): boolean {
    const until = performance.now() + DRAIN_MS
    let mayGoOn = false
    for (const queue of [...this.#queues]) {
      if (this.#drainQueue(queue) > 0 || isOutOfTurn(queue, this.#turn)) mayGoOn = true
      if (performance.now() > until) return true
    }
    return mayGoOn
  }

  /** @returns how many requests were served */
  #drainQueue(queue: RequestQueue): number {
    const { waiting, network } = queue
    const before = waiting.length
    while (waiting[0] !== undefined && this.#mayServe(queue, waiting[0].request)) {
      const { request, response } = queue.shift()!
      this.#serveNow(queue, request, response)
    }
    this.#queues.delete(queue)
    // At the end, after the queues that have not had their turn.
    if (waiting.length > 0) this.#queues.add(queue)
    if (isPaused(queue)) this.#pause(queue)
    else if (waiting.length < RESUME_BELOW) queue.connection?.resume()
    this.#updatePause(network)
    return before - waiting.length
  }

  #armRefill(): void {
    this.#refill ??= setTimeout(() => {
      this.#refill = null
      this.#armTurn()
      for (const network of this.#paused) if (network.readAt <= this.#now) readNext(network)
    }, REFILL_MS).unref()
  }

  /** Pauses or resumes the network's connections, depending on what waits. */
  #updatePause(network: ClientNetwork): void {
    const paused = this.#pausedOf(network)
    if (paused === network.paused) return
    network.paused = paused
    if (paused === 'none') this.#paused.delete(network)
    else this.#paused.add(network)
    this.#armTurn()
    if (paused === 'none') network.unread.clear()
    for (const queue of network.queues) {
      if (isPaused(queue)) this.#pause(queue)
      else if (queue.waiting.length <= PAUSE_ABOVE) {
        queue.mayShow = false
        queue.wasReadInTurn = false
        network.unread.delete(queue)
        queue.connection?.resume()
      }
    }
  }

  /** Stops reading a connection; if nothing of it waits, it is read again in its turn. */
  #pause(queue: RequestQueue): void {
    const { connection, network, waiting } = queue
    if (!connection?.canPause || connection.isClosed || queue.mayShow) return
    connection.pause()
    if (waiting.length === 0) network.unread.add(queue)
  }

  #pausedOf(network: ClientNetwork): ClientNetwork['paused'] {
    const { paused, anonymous } = network
    const { known, unknown } = network.waiting
    if (known > (paused === 'all' ? RESUME_ALL_BELOW : PAUSE_ALL_ABOVE)) return 'all'
    if (unknown > PAUSE_ANONYMOUS_ABOVE || anonymous.tokens(this.#rate, this.#now) < 0) return 'anonymous'
    return unknown < PAUSE_ABOVE || paused === 'none' ? 'none' : 'anonymous'
  }
}

/** Whether the queue waits for the next turn only, not for tokens. */
function isOutOfTurn(queue: RequestQueue, turn: number): boolean {
  const { network, canPause } = queue
  const most = canPause ? OF_A_CONNECTION : OF_A_SHARED_CONNECTION
  return (
    (queue.turn === turn && queue.served >= most) || (network.turn === turn && network.served >= AMONG_OTHERS)
  )
}

/** Reads the paused connection whose turn it is, until its next request has arrived. */
function readNext({ unread }: ClientNetwork): void {
  const [next] = unread
  if (next === undefined) return
  unread.delete(next)
  next.mayShow = true
  next.wasReadInTurn = true
  next.connection?.resume()
}

/** Whether a request has anything that authentication may accept; it is not checked here. */
function showsCredentials({ headers }: IncomingMessage): boolean {
  return headers.authorization !== undefined || headers.cookie?.includes('AuthSession') === true
}

function isPaused({ hasAccount, network: { paused } }: RequestQueue): boolean {
  return paused === 'all' || (paused === 'anonymous' && !hasAccount)
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
