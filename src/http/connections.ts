/**
 * The end of the connections when the server closes. Node's own way would wait for ever for a connection on which
 * nothing was sent yet (browsers and Node's fetch open such ones ahead), and for one that becomes idle only after
 * close() was called; and it would cut an answer that is written but not yet taken by its client.
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'

export interface CloseOptions {
  /** How long requests that are under way may take, in milliseconds; then their connections are cut. */
  readonly graceMs: number
  /** Told how many connections were cut. */
  onCut(count: number): void
}

/**
 * From now on `server.close()` ends every connection within its grace: one without a request at once, one with a
 * request after the answer. What had arrived when it was called still counts as a request.
 */
export function closeWithin(server: Server, options: CloseOptions): void {
  const connections = new Connections(server, options)
  // Called by close(), and by nobody else.
  server.closeIdleConnections = () => connections.close()
}

class Connections {
  readonly #server: Server
  readonly #options: CloseOptions
  /** How many requests are under way on each. */
  readonly #requests = new Map<Socket, number>()
  #isClosing = false

  constructor(server: Server, options: CloseOptions) {
    this.#server = server
    this.#options = options
    server.on('connection', (socket) => this.#opened(socket))
    server.prependListener('request', (request, response) => this.#begun(request, response))
  }

  #opened(socket: Socket): void {
    this.#requests.set(socket, 0)
    socket.once('close', () => this.#requests.delete(socket))
  }

  #begun({ socket }: IncomingMessage, response: ServerResponse): void {
    this.#add(socket, 1)
    response.once('close', () => {
      this.#add(socket, -1)
      if (this.#isClosing) this.#closeIfIdle(socket)
    })
  }

  #add(socket: Socket, change: number): void {
    const before = this.#requests.get(socket)
    if (before !== undefined) this.#requests.set(socket, before + change)
  }

  /** Idempotent. */
  close(): void {
    if (this.#isClosing) return
    this.#isClosing = true
    const cut = setTimeout(() => this.#cut(), this.#options.graceMs)
    this.#server.once('close', () => clearTimeout(cut))
    // By the second one, what stood in the sockets' buffers has been read.
    setImmediate(() => setImmediate(() => this.#closeIdle()))
  }

  #closeIdle(): void {
    for (const socket of this.#requests.keys()) this.#closeIfIdle(socket)
  }

  #closeIfIdle(socket: Socket): void {
    if (this.#requests.get(socket) === 0) socket.destroySoon()
  }

  #cut(): void {
    const open = [...this.#requests.keys()]
    for (const socket of open) socket.destroy()
    if (open.length > 0) this.#options.onCut(open.length)
  }
}
