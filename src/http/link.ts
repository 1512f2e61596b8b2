import type { ServerHttp2Session, ServerHttp2Stream } from 'node:http2'
import type { Socket } from 'node:net'

const LINK = Symbol('link')

interface Linked {
  [LINK]?: Link
}

/** What of HTTP/2 a connection has. */
export interface Http2Part {
  readonly session: ServerHttp2Session
  /** Those that are under way. */
  readonly streams: Set<ServerHttp2Stream>
  /** For how many looks a ping has waited for its answer. */
  unanswered: number
}

/** What is kept of a connection, in a ring with others; a Map of sockets would cost every request its hash. */
export class Link {
  /** A connection's own; null of the link that a ring begins and ends with. */
  socket: Socket | null
  /** null: it speaks HTTP/1. */
  http2: Http2Part | null = null
  /** How many of its requests are under way. */
  requests = 0
  /** It was closed, or is to be. */
  isForgotten = false
  /** There was no room for it: its requests are refused. */
  isTooMany = false
  /** Whether the last look found an answer that waits to be taken. */
  isStalling = false
  #previous: Link = this
  #next: Link = this

  constructor(socket: Socket | null) {
    this.socket = socket
    if (socket !== null) this.nameIn(socket)
  }

  /** @returns undefined for a socket that has none */
  static of(socket: object): Link | undefined {
    return (socket as Linked)[LINK]
  }

  /** Has {@link of} find it by this, too. */
  nameIn(what: object): void {
    ;(what as Linked)[LINK] = this
  }

  /** Of this ring, the one that came first; undefined when it is empty. */
  get oldest(): Link | undefined {
    return this.#previous === this ? undefined : this.#previous
  }

  /** Leaves the ring that it is in, for this one. */
  moveTo(ring: Link): void {
    this.leave()
    this.#previous = ring
    this.#next = ring.#next
    ring.#next.#previous = this
    ring.#next = this
  }

  leave(): void {
    this.#previous.#next = this.#next
    this.#next.#previous = this.#previous
    this.#previous = this
    this.#next = this
  }

  /** Those of this ring, the oldest first. */
  list(): Link[] {
    const links: Link[] = []
    for (let link = this.#previous; link !== this; link = link.#previous) links.push(link)
    return links
  }
}
