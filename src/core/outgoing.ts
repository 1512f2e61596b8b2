/**
 * The bytes in this process that readers have not taken yet. The more there are, the smaller new chunks become: each of
 * hundreds of stalled readers may have one or two chunks in memory. No reader waits for another: each always gets a
 * chunk.
 *
 * There is one count for the process. All threads that make or send chunks add to it and read it.
 */
import { MessageChannel } from 'node:worker_threads'
import { hasForegroundWrite } from './yielder.ts'

/** From this many unsent bytes on, chunks have the smallest size. */
const BUDGET = 8 * 1024 * 1024
/** The smallest piece; of shorter ones the memory is left to the collector ({@link discard}). */
const LEAST = 32 * 1024
/** How many pieces there must be room for. */
const PARTS = 16

/** In KiB, so that 32 bits suffice. */
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

/** Whether so many bytes are unsent that nothing should be made in advance. */
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

/** What is posted here is moved out of this thread and thrown away. */
const { port1: nowhere } = new MessageChannel()
nowhere.close()

/** Below this the collector is quick enough. */
const MIN_BYTES = 16 * 1024

/** How many there still are who read the bytes. */
const readers = new WeakMap<Uint8Array, number>()

/** Says that so many will {@link discard} the bytes, each when it has read them: the last gives the memory back. */
export function share(bytes: Uint8Array, count: number): void {
  if (count > 1) readers.set(bytes, count)
}

/**
 * Gives the memory of bytes back at once, where they own it whole; they are empty afterwards. For what passes through
 * in large pieces: to the collector each is a small object, and it comes only after some 64 MB of them. Node 20 has no
 * ArrayBuffer.prototype.transfer, which would say this in so many words.
 * @param bytes that nobody else reads, now or later, but for those whom they are shared with
 */
export function discard(bytes: Uint8Array): void {
  const left = (readers.get(bytes) ?? 1) - 1
  if (left > 0) {
    readers.set(bytes, left)
    return
  }
  const { buffer, byteLength } = bytes
  if (byteLength < MIN_BYTES || byteLength !== buffer.byteLength || !(buffer instanceof ArrayBuffer)) return
  nowhere.postMessage(null, [buffer])
}
