/**
 * The connections: how many there may be, how long a client may dawdle on one, and their end when the server closes.
 *
 * Node's own way to close would wait for ever for a connection on which nothing was sent yet (browsers and Node's fetch
 * open such ones ahead), and for one that becomes idle only after close() was called; and it would cut an answer that is
 * written but not yet taken by its client.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { ServerHttp2Session, ServerHttp2Stream } from 'node:http2'
import { type Server as NetServer, Socket } from 'node:net'
import { watchProgress } from './body-collector.ts'
import { type ClientNetworks, Lane } from './client-address.ts'
import { cancelStream } from './http2-messages.ts'
import { type Http2Part, Link, watchFrames } from './link.ts'
import { closeInStages } from './raw-answer.ts'
import type { RequestTurns } from './request-turns.ts'

interface ConnectionOptions {
  /** How long requests that are under way may take when the server closes, in milliseconds; then they are cut. */
  readonly graceMs: number
  /** How many may be open at once; asked for each new one. Default: any number. */
  maxOpen?(): number
  /** How many of them from one network. Default: any number. */
  maxOfNetwork?(): number
  /** Whether an address is a trusted proxy's, which has many clients. */
  isProxy?(address: string): boolean
  /** The networks that clients come from, and whose turn it is; none: nobody has to wait. */
  readonly networks?: ClientNetworks
  readonly turns?: RequestTurns
  /** The window of {@link watchProgress} for bodies that nobody reads, in milliseconds. Default: a minute. */
  bodyWindowMs?(): number
  /** How long one that speaks HTTP/2 may be idle, in milliseconds. Default: 300 s. */
  readonly idleMs?: number | undefined
  /** How often answers that are not taken are looked for, in milliseconds; they may stay so for five times as long. Default a minute. */
  readonly lookMs?: number | undefined
  /** Told how many connections were cut when the server closed. */
  onCut(count: number): void
}

/** How many connections above the limit are answered, so that their clients are told why; more are cut. */
const TOLD_TOO_MANY = 100
/** How long such a one may take. */
const TELLING_MS = 5000
/** How often answers that are not taken are looked for, and for how many looks they may stay so: five minutes. */
const LOOK_MS = 60_000
const LOOKS_STALLED = 5
/** How long one that speaks HTTP/2 may be idle; as those of HTTP/1 (app.ts). */
const IDLE_MS = 300_000
/** How long a client may take to close its side of a connection that was closed in order. */
const LAST_MS = 2000

declare module 'fastify' {
  interface FastifyInstance {
    connections: Connections
  }
}

/**
 * Looks after the server's connections from now on. When there are too many, those that have been idle the longest make
 * room; when all are busy, new ones are refused. `server.close()` ends every connection within its grace: one without a
 * request at once, one with a request after the answer. What had arrived when it was called still counts as a request.
 */
export function tendConnections(server: Server, options: ConnectionOptions): Connections {
  const connections = new Connections(options)
  connections.tend(server)
  server.on('connection', (socket) => connections.opened(socket))
  server.prependListener('request', (request, response) => connections.begun(request, response))
  // Called by close(), and by nobody else.
  server.closeIdleConnections = () => connections.close()
  return connections
}

/** @returns the setting that leaves no room for this connection, whose requests are to be refused; null: there is room */
export function limitMet(socket: Socket): string | null {
  return Link.of(socket)?.limitMet ?? null
}

/** The connections of all servers that share one limit. */
class Connections {
  readonly #options: ConnectionOptions
  readonly #idle = new Link(null)
  readonly #busy = new Link(null)
  #open = 0
  #tooMany = 0
  /** Servers that are not closed. */
  #servers = 0
  #isClosing = false
  readonly #stalledMs: number
  readonly #look: NodeJS.Timeout
  #cutting: NodeJS.Timeout | undefined

  constructor(options: ConnectionOptions) {
    this.#options = options
    const lookMs = options.lookMs ?? LOOK_MS
    this.#stalledMs = LOOKS_STALLED * lookMs
    this.#look = setInterval(() => this.#lookForStalled(), lookMs)
    this.#look.unref()
  }

  /** Takes it that this server has connections here, until it is closed. */
  tend(server: NetServer): void {
    this.#servers += 1
    server.once('close', () => {
      this.#servers -= 1
      if (this.#servers > 0) return
      clearInterval(this.#look)
      clearTimeout(this.#cutting)
    })
  }

  /** Takes a connection, before anything was said on it. One that was taken already, below TLS, is the same. */
  opened(socket: Socket): void {
    // Node's server calls it after the last answer of a connection.
    socket.destroySoon = () => closeInStages(socket)
    if (Link.of(socket) === undefined) this.#take(new Link(socket), socket)
  }

  /**
   * Has TLS carry the connection from now on.
   * @param below what was {@link opened}
   */
  secured(below: Socket, socket: Socket): void {
    const link = Link.of(below)
    if (link === undefined) return
    link.secured(socket)
  }

  #take(link: Link, socket: Socket): void {
    this.#findClient(link, socket)
    const { network } = link.lane ?? {}
    if (network !== undefined && network.lanes.size >= (this.#options.maxOfNetwork?.() ?? Infinity)) {
      this.#makeRoom(link, 'settee/max_network_connections')
    } else if (this.#open >= (this.#options.maxOpen?.() ?? Infinity)) {
      this.#makeRoom(link, 'settee/max_connections')
    }
    link.moveTo(link.limitMet === null ? this.#idle : this.#busy)
    if (link.limitMet === null) {
      this.#open += 1
      if (link.lane !== null) network?.lanes.add(link.lane)
    }
    socket.once('close', () => this.#forget(link))
    if (link.lane !== null) this.#options.turns?.opened(link.lane)
  }

  #findClient(link: Link, { remoteAddress }: Socket): void {
    const { networks, isProxy } = this.#options
    // A socket of the file system has none; what is gone already has none, either.
    if (networks === undefined || remoteAddress === undefined) return
    link.isOfProxy = isProxy?.(remoteAddress) ?? false
    if (!link.isOfProxy) link.lane = new Lane(networks.of(remoteAddress), link)
  }

  /** Takes what HTTP/2 makes of a connection that is here. */
  openedSession(session: ServerHttp2Session): void {
    const link = Link.of(session.socket)
    if (link === undefined) return
    link.http2 = { session, streams: new Set(), unanswered: 0, useful: 0 }
    watchFrames(session, link, link.http2)
    session.on('stream', (stream) => this.#begunStream(link, session, stream))
    session.on('timeout', () => endIfIdle(link))
    this.#beginIdling(session)
    // Its socket may be told no more; the one below may.
    session.once('close', () => cutSoon(link))
    if (this.#isClosing) closeIfIdle(link)
  }

  #begunStream(link: Link, session: ServerHttp2Session, stream: ServerHttp2Stream): void {
    link.requests += 1
    link.http2?.streams.add(stream)
    if (link.requests === 1 && !link.isForgotten) link.moveTo(this.#busy)
    stream.once('close', () => {
      link.requests -= 1
      link.http2?.streams.delete(stream)
      if (link.requests > 0 || link.isForgotten) return
      this.#becameIdle(link)
      this.#beginIdling(session)
    })
  }

  /** That a client cancels its last stream counts as no activity with Node. */
  #beginIdling(session: ServerHttp2Session): void {
    if (!session.destroyed) session.setTimeout(this.#options.idleMs ?? IDLE_MS)
  }

  /** @param limit the setting that is met: of a network's own connections one makes room, else one of all */
  #makeRoom(link: Link, limit: string): void {
    const isOfAll = limit === 'settee/max_connections'
    const oldest = isOfAll ? this.#idle.oldest : this.#oldestIdleOf(link.lane)
    if (oldest === undefined) {
      this.#refuse(link, limit)
      return
    }
    this.#forget(oldest)
    oldest.socket?.destroy()
  }

  #oldestIdleOf(lane: Lane | null): Link | undefined {
    for (const link of this.#idle.each()) if (link.lane?.network === lane?.network) return link
    return undefined
  }

  #refuse(link: Link, limit: string): void {
    link.limitMet = limit
    this.#tooMany += 1
    if (this.#tooMany > TOLD_TOO_MANY) link.socket?.destroy()
    else setTimeout(() => link.socket?.destroy(), TELLING_MS).unref()
  }

  /** Idempotent. */
  #forget(link: Link): void {
    if (link.isForgotten) return
    link.isForgotten = true
    if (link.limitMet !== null) this.#tooMany -= 1
    else this.#open -= 1
    link.leave()
    const { lane } = link
    if (lane === null) return
    lane.network.lanes.delete(lane)
    this.#options.turns?.closed(lane)
  }

  /** Takes a request over HTTP/1. */
  begun(request: IncomingMessage, response: ServerResponse): void {
    const link = Link.of(request.socket)
    if (link === undefined) return
    link.requests += 1
    if (link.requests === 1) link.moveTo(this.#busy)
    response.once('close', () => this.#ended(link, request))
  }

  #ended(link: Link, request: IncomingMessage): void {
    link.requests -= 1
    if (link.isForgotten || request.socket.destroyed) return
    if (link.lane !== null) this.#options.turns?.ended(link.lane)
    if (!request.complete) this.#watchLeftover(request)
    if (link.requests === 0) this.#becameIdle(link)
  }

  #becameIdle(link: Link): void {
    link.isStalling = false
    link.moveTo(this.#idle)
    if (this.#isClosing || link.limitMet !== null) closeIfIdle(link)
  }

  /** A body that nobody reads is thrown away as it comes, but its connection serves nobody else meanwhile. */
  #watchLeftover(request: IncomingMessage): void {
    const { socket } = request
    const stopWatch = watchProgress(request, this.#options.bodyWindowMs?.() ?? LOOK_MS, () =>
      socket.destroy(),
    )
    const stop = () => {
      stopWatch()
      request.off('end', stop)
      socket.off('close', stop)
    }
    request.on('end', stop)
    socket.on('close', stop)
  }

  /** What the connection has sent was no request. */
  refused(socket: Socket): void {
    const lane = Link.of(socket)?.lane
    if (lane !== undefined && lane !== null) this.#options.turns?.refused(lane)
  }

  /** An answer that nobody takes would be held for ever; streams have a watch of their own (json-stream.ts). */
  #lookForStalled(): void {
    for (const link of this.#busy.list()) {
      if (link.http2 !== null) {
        for (const stream of link.http2.streams) watchStalled(stream, this.#stalledMs)
        askIfThere(link.http2, link)
        continue
      }
      const isStalling = (link.socket?.writableLength ?? 0) > 0
      if (isStalling !== link.isStalling) link.socket?.setTimeout(isStalling ? this.#stalledMs : 0)
      link.isStalling = isStalling
    }
  }

  /** Idempotent. */
  close(): void {
    if (this.#isClosing) return
    this.#isClosing = true
    this.#cutting = setTimeout(() => this.#cut(), this.#options.graceMs)
    // By the second one, what stood in the sockets' buffers has been read.
    setImmediate(() => setImmediate(() => this.#sayGoodbye()))
  }

  #sayGoodbye(): void {
    this.#idle.list().forEach(closeIfIdle)
    // Streams that are open go on to their ends; clients open new ones elsewhere (GOAWAY, RFC 9113 6.8).
    for (const { http2 } of this.#busy.list()) http2?.session.close()
  }

  #cut(): void {
    const open = [...this.#idle.list(), ...this.#busy.list()]
    for (const { socket } of open) socket?.destroy()
    if (open.length > 0) this.#options.onCut(open.length)
  }
}

function closeIfIdle({ socket, http2, requests }: Link): void {
  if (requests > 0 || socket === null) return
  if (http2 === null) Socket.prototype.destroySoon.call(socket)
  else http2.session.close()
}

/** A client that takes nothing hears nothing of an end in order, either, and Node would wait for it. */
function endIfIdle(link: Link): void {
  closeIfIdle(link)
  if (link.requests === 0) cutSoon(link)
}

function cutSoon({ socket }: Link): void {
  setTimeout(() => socket?.destroy(), LAST_MS).unref()
}

/**
 * Node reads on no further where a client has broken the protocol, tells nobody, and does not see that the client goes.
 * Its requests would be under way for ever.
 */
function askIfThere(http2: Http2Part, link: Link): void {
  // It may still hold something, and with its connection gone Node would end the process (docs/gotchas.md).
  if (http2.session.destroyed) return
  if (http2.unanswered === 0) {
    http2.session.ping(() => {
      http2.unanswered = 0
    })
  }
  http2.unanswered += 1
  if (http2.unanswered > LOOKS_STALLED) link.socket?.destroy()
}

const watched = new WeakSet<ServerHttp2Stream>()

/** The same for one stream: others of its connection may be taken all the while. */
function watchStalled(stream: ServerHttp2Stream, stalledMs: number): void {
  // Its client has cancelled it, and Node waits until it takes what it was sent before.
  if (stream.closed) {
    stream.destroy()
    return
  }
  const isStalling = stream.writableLength > 0
  if (isStalling === watched.has(stream)) return
  if (!isStalling) watched.delete(stream)
  else watched.add(stream)
  stream.setTimeout(isStalling ? stalledMs : 0, isStalling ? () => cancelStream(stream) : undefined)
}
