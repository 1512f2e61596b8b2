import { hasForegroundWrite } from './event-loop.ts'

/**
 * Orders texts by their UTF-8 bytes, smaller first, as ids and revisions are ordered (protocol.md 2.2, 2.3); both must
 * be free of lone surrogates.
 */
export function compareUtf8(a: string, b: string): number {
  const end = Math.min(a.length, b.length)
  for (let i = 0; i < end; i++) {
    const left = a.charCodeAt(i)
    const right = b.charCodeAt(i)
    if (left !== right) return byteRank(left) - byteRank(right)
  }
  return a.length - b.length
}

/** UTF-16 orders surrogates (characters above U+FFFF) before U+E000 to U+FFFF, and UTF-8 after: this swaps the two. */
export function byteRank(unit: number): number {
  if (unit < 0xd800) return unit
  return unit < 0xe000 ? unit + 0x2000 : unit - 0x800
}

/**
 * Bytes as a string with one character for each byte. It is never read as text. Short bytes are sent in this form: to
 * another thread without handing over memory, and to a socket in one write with the head of the answer.
 */
export type ByteText = string

/** Bytes that are ready to be sent. */
export type Sendable = Uint8Array | ByteText

export function byteText(bytes: Uint8Array): ByteText {
  const buffer = Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)
  return buffer.toString('latin1')
}

export function bytesOfText(text: ByteText): Uint8Array {
  return Buffer.from(text, 'latin1')
}

/** @returns the text whose UTF-8 the bytes are */
export function decodeSendable(bytes: Sendable): string {
  return Buffer.from(typeof bytes === 'string' ? bytesOfText(bytes) : bytes).toString()
}

/** Shorter texts are put together before they are written, since each write costs about as much. */
const WRITE_CHARS = 1024
/** The most bytes of UTF-8 that one unit of UTF-16 becomes. */
const MOST_BYTES = 3

/** Shared by all calls on this thread, and empty between two calls. A chunk of `_all_docs` fits. */
const scratch = Buffer.from(new ArrayBuffer(640 * 1024))
const scratchBytes = new Uint8Array(scratch.buffer)

/**
 * The UTF-8 of texts joined with a separator, in newly allocated memory.
 *
 * Texts are written one by one. Joining copies them once more, and one character beyond Latin-1 doubles the size of the
 * joined text. A row of 1.2 kB takes 2.3 us with `join` and `Buffer.from`, 4.3 us with such a character, and 0.6 us here.
 */
export function encodeTexts(texts: readonly string[], separator = ''): Uint8Array {
  const bytes = new Utf8Bytes()
  let text = ''
  for (let n = 0; n < texts.length; n++) {
    text += n === 0 ? texts[n] : separator + texts[n]
    if (text.length < WRITE_CHARS) continue
    bytes.write(text)
    text = ''
  }
  bytes.write(text)
  return bytes.end()
}

/** Gathers bytes in {@link scratch}. */
class Utf8Bytes {
  readonly #full: Uint8Array[] = []
  #at = 0

  write(text: string): void {
    const most = text.length * MOST_BYTES
    if (most > scratch.length - this.#at) this.#flush()
    if (most > scratch.length) this.#full.push(Buffer.from(text))
    else this.#at += scratch.write(text, this.#at)
  }

  #flush(): void {
    if (this.#at > 0) this.#full.push(scratchBytes.slice(0, this.#at))
    this.#at = 0
  }

  end(): Uint8Array {
    this.#flush()
    return this.#full.length === 1 ? (this.#full[0] as Uint8Array) : Buffer.concat(this.#full)
  }
}

/** From this many unsent bytes on, chunks have the smallest size. */
const BUDGET = 8 * 1024 * 1024
/** The smallest piece, in bytes; the memory of shorter ones is left to the collector ({@link discard}). */
const LEAST = 32 * 1024
/** A piece takes at most this part of what is left of the budget. */
const PARTS = 16

/**
 * The bytes in this process that readers have not taken yet, in KiB so that 32 bits suffice. The more there are, the
 * smaller new chunks become: each of hundreds of stalled readers may have one or two chunks in memory. No reader waits
 * for another: each always gets a chunk.
 *
 * There is one count for the process. All threads that make or send chunks add to it and read it.
 */
let held = new Int32Array(new SharedArrayBuffer(4))

/** The count, for another thread to {@link joinOutgoing}. */
export function outgoingMemory(): SharedArrayBuffer {
  return held.buffer as SharedArrayBuffer
}

/** Makes another thread's count this thread's. */
export function joinOutgoing(memory: SharedArrayBuffer): void {
  held = new Int32Array(memory)
}

/** Unsent bytes now. */
export function outgoingBytes(): number {
  return Atomics.load(held, 0) * 1024
}

/** Adds bytes that wait for their reader. */
export function addOutgoing(bytes: number): void {
  Atomics.add(held, 0, kibOf(bytes))
}

/** Removes bytes that were sent or discarded. */
export function removeOutgoing(bytes: number): void {
  Atomics.sub(held, 0, kibOf(bytes))
}

function kibOf(bytes: number): number {
  return Math.ceil(bytes / 1024)
}

/**
 * Bytes in transit from one thread to another, which count as well: when hundreds of readers resume at once, all their
 * next chunks are made before the first arrives.
 */
export class BytesInTransit {
  readonly memory: SharedArrayBuffer
  readonly #kib: Int32Array

  /** @param memory that of the other end; the first of the two makes it */
  constructor(memory: SharedArrayBuffer = new SharedArrayBuffer(4)) {
    this.memory = memory
    this.#kib = new Int32Array(memory)
  }

  send(bytes: number): void {
    Atomics.add(this.#kib, 0, kibOf(bytes))
    addOutgoing(bytes)
  }

  arrive(bytes: number): void {
    Atomics.sub(this.#kib, 0, kibOf(bytes))
    removeOutgoing(bytes)
  }

  /** Removes all bytes in transit, after the other thread has died. */
  lose(): void {
    removeOutgoing(Atomics.exchange(this.#kib, 0, 0) * 1024)
  }
}

/** Whether the budget of unsent bytes is used up, so that nothing should be made in advance. */
export function isCrowded(): boolean {
  return outgoingBytes() >= BUDGET
}

/** During foreground writes the chunks of scans are smaller by this factor. */
const FOREGROUND_PART = 4

/**
 * As {@link pieceBytes}, of a feed or a listing, which reads much for each piece.
 * @param most in bytes, when little is held and nobody saves on this thread; a power of two
 */
export function scanBytes(most: number): number {
  return pieceBytes(hasForegroundWrite() ? most / FOREGROUND_PART : most)
}

/**
 * How large the next piece should be that is to be sent.
 * @param most in bytes, when little is held; a power of two
 * @returns a power of two, in bytes
 */
export function pieceBytes(most: number): number {
  const left = BUDGET - outgoingBytes()
  let piece = most
  while (piece > LEAST && piece * PARTS > left) piece /= 2
  return piece
}

/** The memory of shorter bytes is left to the collector, in bytes. */
const MIN_BYTES = 16 * 1024

/** The number of readers that have not discarded shared bytes yet. */
const readers = new WeakMap<Uint8Array, number>()

/** Shares bytes among readers. Each calls {@link discard} when it has read them, and the last call frees the memory. */
export function share(bytes: Uint8Array, count: number): void {
  if (count > 1) readers.set(bytes, count)
}

/**
 * Frees the memory of bytes at once if they own all of it; they are empty afterwards. For large pieces that pass through:
 * the collector sees each as a small object, and comes only after about 64 MB of them.
 * @param bytes that nobody else reads, now or later, except for the readers that {@link share} has counted
 */
export function discard(bytes: Uint8Array): void {
  const left = (readers.get(bytes) ?? 1) - 1
  if (left > 0) {
    readers.set(bytes, left)
    return
  }
  const { buffer, byteLength } = bytes
  if (byteLength < MIN_BYTES || byteLength !== buffer.byteLength || !(buffer instanceof ArrayBuffer)) return
  buffer.transfer(0)
}
