/** Counts connections and what goes over them; a request costs nothing by it. */
import type { Server } from 'node:http'
import type { Socket } from 'node:net'

export class ConnectionTally {
  readonly #open = new Set<Socket>()
  readonly #listeners = new Map<Socket, Set<() => void>>()
  #count = 0
  /** Of connections that are closed. */
  #received = 0
  #sent = 0

  /** Counts from now on. */
  constructor(server: Server) {
    server.on('connection', (socket) => this.opened(socket))
  }

  /** Takes a connection that the server does not tell of. */
  opened(socket: Socket): void {
    this.#count += 1
    this.#open.add(socket)
    socket.once('close', () => {
      this.#open.delete(socket)
      this.#received += socket.bytesRead
      this.#sent += socket.bytesWritten
      for (const listener of this.#listeners.get(socket) ?? []) listener()
      this.#listeners.delete(socket)
    })
  }

  /** Calls `listener` when a connection is gone, unless the returned function was called before. */
  onClosed(socket: Socket, listener: () => void): () => void {
    const listeners = this.#listeners.get(socket) ?? new Set()
    this.#listeners.set(socket, listeners.add(listener))
    return () => {
      listeners.delete(listener)
      if (listeners.size === 0) this.#listeners.delete(socket)
    }
  }

  counts(): { openConnections: number; connections: number; receivedBytes: number; sentBytes: number } {
    let receivedBytes = this.#received
    let sentBytes = this.#sent
    for (const socket of this.#open) {
      receivedBytes += socket.bytesRead
      sentBytes += socket.bytesWritten
    }
    return { openConnections: this.#open.size, connections: this.#count, receivedBytes, sentBytes }
  }
}
