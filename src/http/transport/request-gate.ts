/**
 * A gate before Node's parser, which parses all requests of a read at once: 64 kB may hold 2,000, which take 10 ms and
 * 40 MB. The gate passes one at a time, and while it is closed, the rest waits as bytes: those of one read, since Node
 * reads no further meanwhile.
 */
import type { Socket } from 'node:net'

const END_OF_HEAD = '\r\n\r\n'
/** Passed in one turn of the event loop, since a body may consist of blank lines. */
const MAX_PIECES = 64
const NOTHING = Buffer.alloc(0)

interface GateOptions {
  readonly isOpen: boolean
  /** Called when bytes have arrived and the gate is closed. */
  onArrival(): void
}

export class RequestGate {
  readonly #socket: Socket
  readonly #push: (chunk: Buffer | null) => boolean
  readonly #onArrival: () => void
  #isOpen: boolean
  #held: Buffer = NOTHING
  #hasEnded = false
  #isPassing = false

  /** @param socket one that Node's server for HTTP/1 reads already */
  constructor(socket: Socket, { isOpen, onArrival }: GateOptions) {
    const read = socket._read.bind(socket)
    this.#socket = socket
    this.#push = socket.push.bind(socket)
    this.#onArrival = onArrival
    this.#isOpen = isOpen
    socket.push = (chunk: Buffer | null) => this.#arrive(chunk)
    socket._read = (size) => {
      if (this.#held.length === 0) read(size)
    }
    socket.on('resume', () => {
      this.#pass()
      // While the parser read the connection itself, the stream took itself to be reading. So it does not begin again.
      socket._read(0)
    })
    // Node's parser reads the connection itself until there is another listener.
    socket.on('data', ignore).off('data', ignore)
  }

  close(): void {
    this.#isOpen = false
  }

  /** Passes on what waits, until the gate is closed again. */
  open(): void {
    this.#isOpen = true
    this.#pass()
  }

  /** @returns false: nothing more is to be read */
  #arrive(chunk: Buffer | null): boolean {
    if (chunk === null) this.#hasEnded = true
    else this.#held = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk])
    this.#pass()
    if (!this.#isOpen && this.#held.length > 0) this.#onArrival()
    return this.#held.length === 0
  }

  #pass(): void {
    if (this.#isPassing) return
    this.#isPassing = true
    for (let pieces = 0; this.#canPass; pieces += 1) {
      if (pieces === MAX_PIECES) {
        setImmediate(() => this.#pass())
        break
      }
      this.#push(this.#next())
    }
    this.#isPassing = false
    if (this.#held.length > 0 || !this.#hasEnded) return
    this.#hasEnded = false
    this.#push(null)
  }

  /** Node pauses a socket whose bodies are not read, or whose answers are not taken. */
  get #canPass(): boolean {
    return this.#isOpen && this.#held.length > 0 && !this.#socket.isPaused() && !this.#socket.destroyed
  }

  /** Takes off what may complete one request. */
  #next(): Buffer {
    const at = this.#held.indexOf(END_OF_HEAD)
    const end = at === -1 ? this.#held.length : at + END_OF_HEAD.length
    const next = this.#held.subarray(0, end)
    this.#held = end === this.#held.length ? NOTHING : this.#held.subarray(end)
    return next
  }
}

function ignore(): void {
  // The listener that Node's server has is enough.
}
