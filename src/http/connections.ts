/**
 * The connections: how many there may be, how long a client may dawdle on one, and their end when the server closes.
 *
 * Node's own way to close would wait for ever for a connection on which nothing was sent yet (browsers and Node's fetch
 * open such ones ahead), and for one that becomes idle only after close() was called; and it would cut an answer that is
 * written but not yet taken by its client.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import { Socket } from 'node:net'
import { closeInStages } from './lingering-close.ts'
import { Link } from './link.ts'
import { watchProgress } from './slow-body.ts'

export interface ConnectionOptions {
  /** How long requests that are under way may take when the server closes, in milliseconds; then they are cut. */
  readonly graceMs: number
  /** How many may be open at once; asked for each new one. Default: any number. */
  maxOpen?(): number
  /** The window of {@link watchProgress} for bodies that nobody reads, in milliseconds. Default: a minute. */
  bodyWindowMs?(): number
  /** Told how many connections were cut when the server closed. */
  onCut(count: number): void
}

/** How many connections above the limit are answered, so that their clients are told why; more are cut. */
const TOLD_TOO_MANY = 100
/** How long such a one may take. */
const TELLING_MS = 5000
/** How often answers that are not taken are looked for, and how long they may stay so. */
const LOOK_MS = 60_000
const STALLED_MS = 300_000

/**
 * Looks after the server's connections from now on. When there are too many, those that have been idle the longest make
 * room; when all are busy, new ones are refused. `server.close()` ends every connection within its grace: one without a
 * request at once, one with a request after the answer. What had arrived when it was called still counts as a request.
 */
export function tendConnections(server: Server, options: ConnectionOptions): void {
  const connections = new Connections(server, options)
  // Called by close(), and by nobody else.
  server.closeIdleConnections = () => connections.close()
}

/** @returns whether the connection is one above the limit, whose requests are to be refused */
export function isOneTooMany(socket: Socket): boolean {
  return Link.of(socket)?.isTooMany ?? false
}

class Connections {
  readonly #server: Server
  readonly #options: ConnectionOptions
  readonly #idle = new Link(null)
  readonly #busy = new Link(null)
  #open = 0
  #tooMany = 0
  #isClosing = false

  constructor(server: Server, options: ConnectionOptions) {
    this.#server = server
    this.#options = options
    server.on('connection', (socket) => this.#opened(socket))
    server.prependListener('request', (request, response) => this.#begun(request, response))
    const look = setInterval(() => this.#lookForStalled(), LOOK_MS)
    look.unref()
    server.once('close', () => clearInterval(look))
  }

  #opened(socket: Socket): void {
    const link = new Link(socket)
    // Node's server calls it after the last answer of a connection.
    socket.destroySoon = () => closeInStages(socket)
    if (this.#open >= (this.#options.maxOpen?.() ?? Infinity)) this.#makeRoom(link)
    link.moveTo(link.isTooMany ? this.#busy : this.#idle)
    if (!link.isTooMany) this.#open += 1
    socket.once('close', () => this.#forget(link))
  }

  #makeRoom(link: Link): void {
    const { oldest } = this.#idle
    if (oldest === undefined) {
      this.#refuse(link)
      return
    }
    this.#forget(oldest)
    oldest.socket?.destroy()
  }

  #refuse(link: Link): void {
    link.isTooMany = true
    this.#tooMany += 1
    if (this.#tooMany > TOLD_TOO_MANY) link.socket?.destroy()
    else setTimeout(() => link.socket?.destroy(), TELLING_MS).unref()
  }

  /** Idempotent. */
  #forget(link: Link): void {
    if (link.isForgotten) return
    link.isForgotten = true
    if (link.isTooMany) this.#tooMany -= 1
    else this.#open -= 1
    link.leave()
  }

  #begun(request: IncomingMessage, response: ServerResponse): void {
    const link = Link.of(request.socket)
    if (link === undefined) return
    link.requests += 1
    if (link.requests === 1) link.moveTo(this.#busy)
    response.once('close', () => this.#ended(link, request))
  }

  #ended(link: Link, request: IncomingMessage): void {
    link.requests -= 1
    if (link.isForgotten || request.socket.destroyed) return
    if (!request.complete) this.#watchLeftover(request)
    if (link.requests > 0) return
    link.isStalling = false
    link.moveTo(this.#idle)
    if (this.#isClosing || link.isTooMany) closeIfIdle(link)
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

  /** An answer that nobody takes would be held for ever; streams have a watch of their own (json-stream.ts). */
  #lookForStalled(): void {
    for (const link of this.#busy.list()) {
      const isStalling = (link.socket?.writableLength ?? 0) > 0
      if (isStalling !== link.isStalling) link.socket?.setTimeout(isStalling ? STALLED_MS : 0)
      link.isStalling = isStalling
    }
  }

  /** Idempotent. */
  close(): void {
    if (this.#isClosing) return
    this.#isClosing = true
    const cut = setTimeout(() => this.#cut(), this.#options.graceMs)
    this.#server.once('close', () => clearTimeout(cut))
    // By the second one, what stood in the sockets' buffers has been read.
    setImmediate(() => setImmediate(() => this.#idle.list().forEach(closeIfIdle)))
  }

  #cut(): void {
    const open = [...this.#idle.list(), ...this.#busy.list()]
    for (const { socket } of open) socket?.destroy()
    if (open.length > 0) this.#options.onCut(open.length)
  }
}

function closeIfIdle({ socket, requests }: Link): void {
  if (requests === 0 && socket !== null) Socket.prototype.destroySoon.call(socket)
}
