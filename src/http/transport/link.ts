import { constants, type ServerHttp2Session, type ServerHttp2Stream } from 'node:http2'
import type { Socket } from 'node:net'
import type { Gate, Lane } from './client-address.ts'

const LINK = Symbol('link')

interface Linked {
  [LINK]?: Link
}

/** What of HTTP/2 a connection has. */
export interface Http2Part extends UseCount {
  readonly session: ServerHttp2Session
  /** Those that are under way. */
  readonly streams: Set<ServerHttp2Stream>
  /** For how many looks a ping has waited for its answer. */
  unanswered: number
}

/** What is kept of a connection, in a ring with others; a Map of sockets would cost every request its hash. */
export class Link implements Gate {
  /** A connection's own; null of the link that a ring begins and ends with. */
  socket: Socket | null
  /** null: it speaks HTTP/1. */
  http2: Http2Part | null = null
  /** How many of its requests are under way. */
  requests = 0
  /** It was closed, or is to be. */
  isForgotten = false
  /** The setting that left no room for it: its requests are refused. */
  limitMet: string | null = null
  /** Its requests that wait for their turn; null of what has no client, and of a trusted proxy's, which has many. */
  lane: Lane | null = null
  /** Its peer is a trusted proxy. */
  isOfProxy = false
  #isHeld = false
  #holds = 0
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

  get canHold(): boolean {
    return this.http2 === null
  }

  /** Stops reading. Node itself would read on whenever a request of the connection wants its body. Idempotent. */
  hold(): void {
    const { socket } = this
    if (this.#isHeld || !this.canHold || socket === null || isHttp2(socket)) return
    this.#isHeld = true
    this.#holds += 1
    const hold = this.#holds
    socket.resume = () => socket
    // What was told to go on in this turn does so in the next tick, and would not look whether it was stopped since.
    process.nextTick(() => {
      if (this.#isHeld && hold === this.#holds) socket.pause()
    })
  }

  /** Reads on. Idempotent. */
  release(): void {
    const { socket } = this
    if (!this.#isHeld || socket === null) return
    this.#isHeld = false
    Reflect.deleteProperty(socket, 'resume')
    socket.resume()
  }

  /** Has TLS carry the connection from now on; a held one is read for the handshake. */
  secured(socket: Socket): void {
    const wasHeld = this.#isHeld
    this.release()
    this.socket = socket
    this.nameIn(socket)
    if (wasHeld) this.hold()
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
    return [...this.each()]
  }

  /** The same, one by one. */
  *each(): Generator<Link> {
    for (let link = this.#previous; link !== this; link = link.#previous) yield link
  }
}

/** Whether it is to speak HTTP/2, whose session reads it by itself. */
function isHttp2(socket: Socket): boolean {
  return 'alpnProtocol' in socket && socket.alpnProtocol === 'h2'
}

// Frames of HTTP/2 that ask for nothing: RFC 9113 10.5. Node ends connections that flood it with SETTINGS, PING,
// CONTINUATION and streams that are reset, but takes WINDOW_UPDATE and empty DATA without end, and shows no frame to
// anybody. What shows is bytes that came and were neither a head nor a body.

/** How often it is looked at. */
const LOOK_MS = 1000
/** Bytes of such frames that a connection may send at once, and a second: 160,000 frames take 15 ms. */
const BURST = 2 * 1024 * 1024
const A_SECOND = 64 * 1024
/** What comes with a byte of use: heads of frames, padding. */
const WITH_USE = 1.25
/** For what it is sent, a client acknowledges: about 26 bytes a frame, which may hold one line of a feed. */
const FOR_SENT = 0.5

/** What of the bytes of a connection was of use. */
interface UseCount {
  /** Bytes of heads and bodies, as they were handed on. */
  useful: number
}

/**
 * Cuts the connection off when it has sent too much of no use (ENHANCE_YOUR_CALM).
 * @param socket what the session reads
 */
export function watchFrames(
  session: ServerHttp2Session,
  { socket }: { readonly socket: Socket | null },
  count: UseCount,
): void {
  if (socket === null) return
  let left = BURST
  let before = { read: socket.bytesRead, written: socket.bytesWritten, useful: count.useful }
  const look = setInterval(() => {
    const now = { read: socket.bytesRead, written: socket.bytesWritten, useful: count.useful }
    const allowed = (now.useful - before.useful) * WITH_USE + (now.written - before.written) * FOR_SENT
    left = Math.min(BURST, left + A_SECOND + allowed - (now.read - before.read))
    before = now
    if (left >= 0 || session.destroyed) return
    clearInterval(look)
    session.goaway(constants.NGHTTP2_ENHANCE_YOUR_CALM)
    setImmediate(() => socket.destroy())
  }, LOOK_MS)
  look.unref()
  session.once('close', () => clearInterval(look))
}
