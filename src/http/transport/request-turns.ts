/**
 * Shares the HTTP thread out among clients, ahead of everything else that looks at a request. Nobody waits while there
 * is no one to wait for; in each turn of the event loop a network and a connection have so many requests served, and
 * what is more waits for the next turn. Requests without an account take a token of their network's bucket each, and
 * wait for it where there is none. A connection with much waiting is not read, so that TCP holds its client back.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { CouchError } from '../../core/errors.ts'
import type { ClientNetwork, ClientNetworks, Lane } from './client-address.ts'
import { Link } from './link.ts'
import { errorBody } from './raw-answer.ts'

/** Requests of a network that are served in one turn while nobody else asks for anything, and while somebody does. */
const ALONE = 64
const AMONG_OTHERS = 8
/** How long after a request of another network a network is among others. */
const OTHERS_MS = 1000
/** Requests of one connection served in one turn. A client that does not pipeline has one. */
const OF_A_CONNECTION = 4
/** The same where one connection carries many at once by design: HTTP/2, and a proxy. */
const OF_A_SHARED_CONNECTION = 16
/** Pipelined requests of one connection that may be under way. */
const PIPELINED = 16
/** A connection with more waiting is not read on, until it has fewer. */
const HOLD_ABOVE = 8
const RELEASE_BELOW = 4
/** With more waiting a network's connections that have no account are not read, and with still more none. */
const HOLD_STRANGERS_ABOVE = 32
const HOLD_ALL_ABOVE = 512
/** Requests of a network that wait where their connection cannot be held back; more are refused. */
const MAX_WAITING = 1000
/** How long a turn may hand on requests that have waited. */
const DRAIN_MS = 4
/** How often tokens that are waited for are looked at. */
const REFILL_MS = 10

declare module 'fastify' {
  interface FastifyInstance {
    turns: RequestTurns
  }
}

const LANE = Symbol('lane')
const CHARGED = Symbol('charged')

/** What is kept of a request whose caller is not known yet. */
interface Kept {
  [LANE]?: Lane
  [CHARGED]?: boolean
}

type Serve = (request: IncomingMessage, response: ServerResponse) => void

interface TurnOptions {
  readonly networks: ClientNetworks
  /** Requests without an account that a network may make in a second; 0: any number. */
  strangerRate(): number
  /** Whose request it is that came through a trusted proxy: an IP address. */
  clientOf(request: IncomingMessage): string
}

export class RequestTurns {
  readonly #options: TurnOptions
  readonly #serve: Serve
  /** With something waiting, in the order in which they have their turns. */
  readonly #lanes = new Set<Lane>()
  /** Not read at present, as a whole or in part. */
  readonly #held = new Set<ClientNetwork>()
  #turn = 1
  #isTurnArmed = false
  #refill: NodeJS.Timeout | null = null
  #now = 0
  #rate = 0
  #last: ClientNetwork | null = null
  #othersUntil = 0

  /** @param serve what handles a request whose turn has come */
  constructor(options: TurnOptions, serve: Serve) {
    this.#options = options
    this.#serve = serve
  }

  /** Serves the request now, or when its turn comes. */
  take(request: IncomingMessage, response: ServerResponse): void {
    const lane = this.#laneOf(request)
    if (lane === null) {
      this.#serve(request, response)
      return
    }
    this.#armTurn()
    const { network } = lane
    if (network !== this.#last) {
      if (this.#last !== null) this.#othersUntil = this.#now + OTHERS_MS
      this.#last = network
    }
    if (lane.waiting.length === 0 && this.#mayServe(lane)) this.#handOn(lane, request, response)
    else if (!lane.canHold && network.waiting >= MAX_WAITING) refuse(response)
    else this.#wait(lane, request, response)
  }

  /**
   * Says whether the request has an account: if so it takes no token, nor do the next ones of its connection.
   * @param request one that was served
   */
  settle(request: IncomingMessage, isKnown: boolean): void {
    const kept = request as Kept
    const lane = kept[LANE] ?? Link.of(request.socket)?.lane
    if (lane === undefined || lane === null) return
    if (isKnown && kept[CHARGED] === true) lane.network.refund()
    kept[CHARGED] = false
    lane.isKnown = isKnown
    if (isKnown && lane.waiting.length === 0 && !isHeld(lane)) lane.gate?.release()
  }

  /** An answer of the connection has ended. */
  ended(lane: Lane): void {
    if (lane.waiting.length > 0) this.#armTurn()
  }

  /** A connection has been opened: it takes a token until its first request has an account. */
  opened(lane: Lane): void {
    this.#armTurn()
    lane.network.charge()
    this.#look(lane.network)
    if (lane.network.held !== 'none') lane.gate?.hold()
  }

  /** The connection is gone. What it has waiting is paid for as if it were served. */
  closed(lane: Lane): void {
    if (lane.waiting.length === 0) return
    for (const _ of lane.waiting) lane.network.charge()
    lane.network.waiting -= lane.waiting.length
    lane.waiting.length = 0
    this.#lanes.delete(lane)
    this.#armTurn()
    this.#look(lane.network)
  }

  /** What the connection has sent was no request: that cost as much as one. */
  refused(lane: Lane): void {
    this.#armTurn()
    lane.network.charge()
    this.#look(lane.network)
  }

  #laneOf(request: IncomingMessage): Lane | null {
    const link = Link.of(request.socket)
    if (link === undefined) return null
    if (!link.isOfProxy) return link.lane
    const lane = this.#options.networks.of(this.#options.clientOf(request)).proxied
    ;(request as Kept)[LANE] = lane
    return lane
  }

  #mayServe(lane: Lane): boolean {
    const { network, gate } = lane
    const turn = this.#turn
    if (lane.turn !== turn) {
      lane.turn = turn
      lane.served = 0
    }
    if (network.turn !== turn) {
      network.turn = turn
      network.served = 0
    }
    if (network.served >= (this.#now < this.#othersUntil ? AMONG_OTHERS : ALONE)) return false
    if (lane.served >= (lane.canHold ? OF_A_CONNECTION : OF_A_SHARED_CONNECTION)) return false
    if (gate?.canHold && gate.requests - lane.waiting.length > PIPELINED) return false
    return lane.isKnown || network.take(this.#rate, this.#now)
  }

  #handOn(lane: Lane, request: IncomingMessage, response: ServerResponse): void {
    lane.served += 1
    lane.network.served += 1
    // Its client has left it: HTTP/2's may do so a thousand times a second.
    if (request.socket.destroyed) return
    if (!lane.isKnown) (request as Kept)[CHARGED] = true
    this.#serve(request, response)
  }

  #wait(lane: Lane, request: IncomingMessage, response: ServerResponse): void {
    lane.waiting.push({ request, response })
    lane.network.waiting += 1
    this.#lanes.add(lane)
    if (lane.waiting.length === HOLD_ABOVE + 1) lane.gate?.hold()
    this.#look(lane.network)
  }

  /** Begins a turn, if none has begun: it ends behind the events that the event loop has at hand. */
  #armTurn(): void {
    if (this.#isTurnArmed) return
    this.#isTurnArmed = true
    this.#now = performance.now()
    this.#rate = this.#options.strangerRate()
    setImmediate(() => this.#endTurn())
  }

  #endTurn(): void {
    this.#isTurnArmed = false
    const hasServed = this.#lanes.size > 0 && this.#drain()
    this.#turn += 1
    for (const network of this.#held) this.#look(network)
    if (this.#lanes.size === 0 && this.#held.size === 0) return
    if (hasServed) this.#armTurn()
    else this.#armRefill()
  }

  /** @returns whether more could be served in the next turn */
  #drain(): boolean {
    const until = performance.now() + DRAIN_MS
    let mayGoOn = false
    for (const lane of [...this.#lanes]) {
      if (this.#drainLane(lane) > 0 || isOutOfTurn(lane, this.#turn)) mayGoOn = true
      if (performance.now() > until) return true
    }
    return mayGoOn
  }

  /** @returns how many it handed on */
  #drainLane(lane: Lane): number {
    const { waiting, network } = lane
    const before = waiting.length
    while (waiting.length > 0 && this.#mayServe(lane)) {
      const { request, response } = waiting.shift()!
      network.waiting -= 1
      this.#handOn(lane, request, response)
    }
    this.#lanes.delete(lane)
    // Behind those that have not had their turn.
    if (waiting.length > 0) this.#lanes.add(lane)
    if (waiting.length < RELEASE_BELOW && !isHeld(lane)) lane.gate?.release()
    this.#look(network)
    return before - waiting.length
  }

  #armRefill(): void {
    this.#refill ??= setTimeout(() => {
      this.#refill = null
      this.#armTurn()
    }, REFILL_MS).unref()
  }

  /** Has the network's connections held, or read on, by what waits. */
  #look(network: ClientNetwork): void {
    const held = this.#heldOf(network)
    if (held === network.held) return
    network.held = held
    if (held === 'none') this.#held.delete(network)
    else this.#held.add(network)
    this.#armTurn()
    for (const lane of network.lanes) {
      if (isHeld(lane)) lane.gate?.hold()
      else if (lane.waiting.length <= HOLD_ABOVE) lane.gate?.release()
    }
  }

  #heldOf(network: ClientNetwork): ClientNetwork['held'] {
    const { waiting, held } = network
    if (waiting > HOLD_ALL_ABOVE) return 'all'
    if (waiting > HOLD_STRANGERS_ABOVE) return held === 'all' ? 'all' : 'strangers'
    if (network.tokens(this.#rate, this.#now) < 0) return 'strangers'
    return waiting < HOLD_ABOVE || held === 'none' ? 'none' : 'strangers'
  }
}

/** Whether the lane waits for nothing but the next turn. */
function isOutOfTurn(lane: Lane, turn: number): boolean {
  const { network, canHold } = lane
  const most = canHold ? OF_A_CONNECTION : OF_A_SHARED_CONNECTION
  return (
    (lane.turn === turn && lane.served >= most) || (network.turn === turn && network.served >= AMONG_OTHERS)
  )
}

function isHeld({ isKnown, network: { held } }: Lane): boolean {
  return held === 'all' || (held === 'strangers' && !isKnown)
}

const REFUSAL = new CouchError('too_many_requests')
const REFUSAL_BODY = errorBody(REFUSAL)

function refuse(response: ServerResponse): void {
  response.writeHead(REFUSAL.status, {
    'content-type': 'application/json',
    'cache-control': 'must-revalidate',
    'content-length': REFUSAL_BODY.length,
    'retry-after': '1',
  })
  response.end(REFUSAL_BODY)
}
