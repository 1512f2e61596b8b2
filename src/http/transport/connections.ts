/**
 * The connections of the server: how many there may be, how long a client may stall one, and how they end when the server
 * closes.
 *
 * Node's own way to close would wait forever for a connection on which nothing was sent yet (browsers and Node's fetch
 * open such ones ahead), and for one that becomes idle only after close() was called. It would also cut an answer that is
 * written, but that its client has not taken yet.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { ServerHttp2Session, ServerHttp2Stream } from 'node:http2'
import { type Server as NetServer, Socket } from 'node:net'
import { watchProgress } from './body-progress.ts'
import { type ClientNetworks, Connection, RequestQueue } from './connection.ts'
import { cancelStream, limitUselessFrames } from './http2-messages.ts'
import { closeInStages } from './raw-answer.ts'
import type { RequestTurns } from './request-turns.ts'

interface ConnectionOptions {
  /** How long requests under way may take when the server closes, in milliseconds; then they are cut. */
  readonly graceMs: number
  /** How many connections may be open at once; read for each new one. Default: any number. */
  maxOpen?(): number
  /** How many of them from one network. Default: any number. */
  maxOfNetwork?(): number
  /** Whether an address is that of a trusted proxy, which has many clients. */
  isProxy?(address: string): boolean
  /** The networks of the clients, and the turns of their requests. Without them no request waits. */
  readonly networks?: ClientNetworks
  readonly turns?: RequestTurns
  /** The window of {@link watchProgress} for bodies that nobody reads, in milliseconds. Default: a minute. */
  bodyWindowMs?(): number
  /** How long an HTTP/2 connection may be idle, in milliseconds. Default: 300 s. */
  readonly idleMs?: number | undefined
  /** The interval of the checks for stalled answers, in milliseconds; an answer may stall for five. Default: a minute. */
  readonly checkMs?: number | undefined
  /**
   * How long a connection without a request stays open when the server closes, in milliseconds: a proxy may have opened it for a
   * request that is on its way. Default: until what has arrived is read.
   */
  lingerMs?(): number
  /** Called with the number of connections that were cut when the server closed. */
  onCut(count: number): void
}

/** How many connections above the limit get an answer with the reason; further ones are cut. */
const MAX_REFUSALS = 100
/** How long such a connection may take, in milliseconds. */
const REFUSAL_MS = 5000
/** The interval of the checks for stalled answers, in milliseconds, and for how many an answer may stall: five minutes. */
const CHECK_MS = 60_000
const MAX_STALLED_CHECKS = 5
/** How long an HTTP/2 connection may be idle, in milliseconds; as for HTTP/1 (app.ts). */
const IDLE_MS = 300_000
/** How long a client may take to close its side after an orderly close, in milliseconds. */
const CLOSE_MS = 2000

declare module 'fastify' {
  interface FastifyInstance {
    connections: Connections
  }
}

/**
 * Guards the server's connections from now on. Above the limit, the connection that has been idle the longest is closed;
 * if all are busy, new ones are refused. `server.close()` ends every connection within the grace period: at once without
 * a request, else after the answer. Requests that had arrived by then are still answered.
 */
export function guardConnections(server: Server, options: ConnectionOptions): Connections {
  const connections = new Connections(options)
  connections.addServer(server)
  server.on('connection', (socket) => {
    connections.onOpen(socket)
    connections.onHttp1(socket)
  })
  server.prependListener('request', (request, response) => connections.onRequest(request, response))
  // Only close() calls it.
  server.closeIdleConnections = () => connections.close()
  return connections
}

/** @returns the setting that leaves no room for this connection, whose requests are to be refused; null: there is room */
export function exceededLimit(socket: Socket): string | null {
  return Connection.of(socket)?.exceededLimit ?? null
}

/** The connections of all servers that share one limit. */
class Connections {
  readonly #options: ConnectionOptions
  /** The one that has been idle the longest comes first. */
  readonly #idle = new Set<Connection>()
  readonly #busy = new Set<Connection>()
  #open = 0
  #refused = 0
  /** How many servers are not closed yet. */
  #servers = 0
  #isClosing = false
  readonly #stalledMs: number
  readonly #checks: NodeJS.Timeout
  #cutting: NodeJS.Timeout | undefined

  constructor(options: ConnectionOptions) {
    this.#options = options
    const checkMs = options.checkMs ?? CHECK_MS
    this.#stalledMs = MAX_STALLED_CHECKS * checkMs
    this.#checks = setInterval(() => this.#checkForStalled(), checkMs)
    this.#checks.unref()
  }

  /** Counts a server whose connections are here, until it is closed. */
  addServer(server: NetServer): void {
    this.#servers += 1
    server.once('close', () => {
      this.#servers -= 1
      if (this.#servers > 0) return
      clearInterval(this.#checks)
      clearTimeout(this.#cutting)
    })
  }

  /** A connection was opened. The TCP connection below TLS and the TLS socket are the same connection. */
  onOpen(socket: Socket): void {
    // Node's server calls it after the last answer of a connection.
    socket.destroySoon = () => closeInStages(socket)
    if (Connection.of(socket) === undefined) this.#add(new Connection(socket), socket)
  }

  /** @param below the TCP connection, which was opened before */
  onSecure(below: Socket, socket: Socket): void {
    Connection.of(below)?.secure(socket)
  }

  #add(connection: Connection, socket: Socket): void {
    this.#findClient(connection, socket)
    const { queue } = connection
    const network = queue?.network
    if (network !== undefined && network.queues.size >= (this.#options.maxOfNetwork?.() ?? Infinity)) {
      this.#makeRoom(connection, 'settee/max_network_connections')
    } else if (this.#open >= (this.#options.maxOpen?.() ?? Infinity)) {
      this.#makeRoom(connection, 'settee/max_connections')
    }
    if (connection.exceededLimit === null) {
      this.#idle.add(connection)
      this.#open += 1
      if (queue !== null) queue.network.queues.add(queue)
    } else {
      this.#busy.add(connection)
    }
    socket.once('close', () => this.#remove(connection))
  }

  /** Node's server for HTTP/1 reads a connection that was opened before. */
  onHttp1(socket: Socket): void {
    const connection = Connection.of(socket)
    if (connection === undefined) return
    connection.isHttp1 = true
    if (connection.queue !== null) this.#options.turns?.onOpen(connection.queue)
  }

  #findClient(connection: Connection, { remoteAddress }: Socket): void {
    const { networks, isProxy } = this.#options
    // A Unix socket has no address, nor has a connection that is closed already.
    if (networks === undefined || remoteAddress === undefined) return
    connection.isProxy = isProxy?.(remoteAddress) ?? false
    if (!connection.isProxy) connection.queue = new RequestQueue(networks.of(remoteAddress), connection)
  }

  /** A connection has become an HTTP/2 session. */
  onSession(session: ServerHttp2Session): void {
    const connection = Connection.of(session.socket)
    if (connection === undefined) return
    connection.http2 = { session, streams: new Set(), unanswered: 0, usefulBytes: 0 }
    limitUselessFrames(connection.http2, connection.socket)
    session.on('stream', (stream) => this.#onStream(connection, session, stream))
    session.on('timeout', () => endIfIdle(connection))
    this.#restartIdleTimer(session)
    // The session's socket may emit nothing any more; the one below may.
    session.once('close', () => cutSoon(connection))
    if (this.#isClosing) closeIfIdle(connection)
  }

  #onStream(connection: Connection, session: ServerHttp2Session, stream: ServerHttp2Stream): void {
    connection.requests += 1
    connection.http2?.streams.add(stream)
    if (connection.requests === 1) this.#becomesBusy(connection)
    stream.once('close', () => {
      connection.requests -= 1
      connection.http2?.streams.delete(stream)
      if (connection.requests > 0 || connection.isClosed) return
      this.#becomesIdle(connection)
      this.#restartIdleTimer(session)
    })
  }

  /** To Node, the cancelling of the last stream is no activity. */
  #restartIdleTimer(session: ServerHttp2Session): void {
    if (!session.destroyed) session.setTimeout(this.#options.idleMs ?? IDLE_MS)
  }

  /** @param limit the setting that is exceeded: an idle connection of the same network, or of all, is closed */
  #makeRoom(connection: Connection, limit: string): void {
    const isOfAll = limit === 'settee/max_connections'
    const oldest = isOfAll ? this.#idle.values().next().value : this.#oldestIdleOf(connection.queue)
    if (oldest === undefined) {
      this.#refuse(connection, limit)
      return
    }
    this.#remove(oldest)
    oldest.socket.destroy()
  }

  #oldestIdleOf(queue: RequestQueue | null): Connection | undefined {
    for (const each of this.#idle) if (each.queue?.network === queue?.network) return each
    return undefined
  }

  #refuse(connection: Connection, limit: string): void {
    connection.exceededLimit = limit
    this.#refused += 1
    if (this.#refused > MAX_REFUSALS) connection.socket.destroy()
    else setTimeout(() => connection.socket.destroy(), REFUSAL_MS).unref()
  }

  /** Idempotent. */
  #remove(connection: Connection): void {
    if (connection.isClosed) return
    connection.isClosed = true
    if (connection.exceededLimit !== null) this.#refused -= 1
    else this.#open -= 1
    this.#idle.delete(connection)
    this.#busy.delete(connection)
    const { queue } = connection
    if (queue === null) return
    queue.network.queues.delete(queue)
    this.#options.turns?.onClose(queue)
  }

  /** A request over HTTP/1 has arrived. */
  onRequest(request: IncomingMessage, response: ServerResponse): void {
    const connection = Connection.of(request.socket)
    if (connection === undefined) return
    connection.requests += 1
    if (connection.requests === 1) this.#becomesBusy(connection)
    response.once('close', () => this.#onRequestEnd(connection, request))
  }

  #onRequestEnd(connection: Connection, request: IncomingMessage): void {
    connection.requests -= 1
    if (connection.isClosed || request.socket.destroyed) return
    if (connection.queue !== null) this.#options.turns?.onRequestEnd(connection.queue)
    if (!request.complete) this.#watchUnreadBody(request)
    if (connection.requests === 0) this.#becomesIdle(connection)
  }

  #becomesBusy(connection: Connection): void {
    if (connection.isClosed) return
    this.#idle.delete(connection)
    this.#busy.add(connection)
  }

  #becomesIdle(connection: Connection): void {
    connection.isStalled = false
    this.#busy.delete(connection)
    this.#idle.add(connection)
    if (this.#isClosing || connection.exceededLimit !== null) closeIfIdle(connection)
  }

  /** A body that nobody reads is discarded as it arrives, but its connection can serve nothing else meanwhile. */
  #watchUnreadBody(request: IncomingMessage): void {
    const { socket } = request
    const windowMs = this.#options.bodyWindowMs?.() ?? CHECK_MS
    const stopWatch = watchProgress(request, windowMs, () => socket.destroy())
    const stop = () => {
      stopWatch()
      request.off('end', stop)
      socket.off('close', stop)
    }
    request.on('end', stop)
    socket.on('close', stop)
  }

  /** A connection has sent something that is not a request. */
  onInvalidRequest(socket: Socket): void {
    const queue = Connection.of(socket)?.queue
    if (queue !== undefined && queue !== null) this.#options.turns?.onInvalidRequest(queue)
  }

  /** An answer that no client takes would be held forever. Streams have a check of their own (json-stream.ts). */
  #checkForStalled(): void {
    for (const connection of [...this.#busy]) {
      const { http2, socket } = connection
      if (http2 !== null) {
        for (const stream of http2.streams) checkStream(stream, this.#stalledMs)
        ping(connection, http2)
        continue
      }
      const isStalled = socket.writableLength > 0
      if (isStalled !== connection.isStalled) socket.setTimeout(isStalled ? this.#stalledMs : 0)
      connection.isStalled = isStalled
    }
  }

  /** Idempotent. */
  close(): void {
    if (this.#isClosing) return
    this.#isClosing = true
    this.#cutting = setTimeout(() => this.#cut(), this.#options.graceMs)
    const lingerMs = this.#options.lingerMs?.() ?? 0
    if (lingerMs > 0) setTimeout(() => this.#closeIdle(), lingerMs)
    // By the second turn, the requests in the sockets' buffers have been read.
    else setImmediate(() => setImmediate(() => this.#closeIdle()))
  }

  #closeIdle(): void {
    for (const connection of [...this.#idle]) closeIfIdle(connection)
    // Open streams go on to their ends; clients open new ones elsewhere (GOAWAY, RFC 9113 6.8).
    for (const { http2 } of [...this.#busy]) http2?.session.close()
  }

  #cut(): void {
    const open = [...this.#idle, ...this.#busy]
    for (const { socket } of open) socket.destroy()
    if (open.length > 0) this.#options.onCut(open.length)
  }
}

function closeIfIdle({ socket, http2, requests }: Connection): void {
  if (requests > 0) return
  if (http2 === null) Socket.prototype.destroySoon.call(socket)
  else http2.session.close()
}

/** A client that reads nothing does not see an orderly end, either, and Node would wait for it. */
function endIfIdle(connection: Connection): void {
  closeIfIdle(connection)
  if (connection.requests === 0) cutSoon(connection)
}

function cutSoon({ socket }: Connection): void {
  setTimeout(() => socket.destroy(), CLOSE_MS).unref()
}

/**
 * Node stops reading where a client has broken the protocol, reports it to nobody, and does not notice that the client
 * leaves. The client's requests would be under way forever.
 */
function ping({ socket }: Connection, http2: NonNullable<Connection['http2']>): void {
  // A destroyed session may still hold something; without its connection Node would end the process (docs/gotchas.md).
  if (http2.session.destroyed) return
  if (http2.unanswered === 0) {
    http2.session.ping(() => {
      http2.unanswered = 0
    })
  }
  http2.unanswered += 1
  if (http2.unanswered > MAX_STALLED_CHECKS) socket.destroy()
}

const stalledStreams = new WeakSet<ServerHttp2Stream>()

/** The same check for one stream, since the client may go on reading the others of its connection. */
function checkStream(stream: ServerHttp2Stream, stalledMs: number): void {
  // The client has cancelled it, and Node waits until the client takes what was sent before.
  if (stream.closed) {
    stream.destroy()
    return
  }
  const isStalled = stream.writableLength > 0
  if (isStalled === stalledStreams.has(stream)) return
  if (isStalled) stalledStreams.add(stream)
  else stalledStreams.delete(stream)
  stream.setTimeout(isStalled ? stalledMs : 0, isStalled ? () => cancelStream(stream) : undefined)
}
