/**
 * How much lies in this process for readers who have not taken it yet, all together. The more that is, the smaller
 * are the pieces that are made: a reader who has stopped reading has one or two of them held for him, and there may
 * be hundreds. Nobody waits for others to read on: each always gets a piece.
 *
 * One count for the process: all threads that make pieces or send them add to it and read it.
 */
import { MessageChannel } from 'node:worker_threads'
import { hasForegroundWrite } from './yielder.ts'

/** From so many bytes on pieces are the smallest. */
const BUDGET = 8 * 1024 * 1024
/** The smallest piece; of shorter ones the memory is left to the collector ({@link discard}). */
const LEAST = 32 * 1024
/** How many pieces there must be room for. */
const PARTS = 16

/** KiB, so that it cannot run over. */
let held = new Int32Array(new SharedArrayBuffer(4))

/** The count, for another thread to {@link joinOutgoing}. */
export function outgoingMemory(): SharedArrayBuffer {
  return held.buffer as SharedArrayBuffer
}

/** Makes another thread's count this thread's. */
export function joinOutgoing(memory: SharedArrayBuffer): void {
  held = new Int32Array(memory)
}

/** Bytes that wait now. */
export function outgoingBytes(): number {
  return Atomics.load(held, 0) * 1024
}

/** Counts bytes that begin to wait for their reader. */
export function addOutgoing(bytes: number): void {
  Atomics.add(held, 0, kibOf(bytes))
}

/** Counts as many bytes no more: they are taken, or given up. */
export function removeOutgoing(bytes: number): void {
  Atomics.sub(held, 0, kibOf(bytes))
}

function kibOf(bytes: number): number {
  return Math.ceil(bytes / 1024)
}

/**
 * What is on its way from one thread to another, which counts as well: when hundreds of readers read on in one moment,
 * all their next pieces are made before the first arrives.
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

  /** The other thread has died: what was under way will not arrive. */
  lose(): void {
    removeOutgoing(Atomics.exchange(this.#kib, 0, 0) * 1024)
  }
}

/** Whether so much waits for readers that nothing had better be made before it is asked for. */
export function isCrowded(): boolean {
  return outgoingBytes() >= BUDGET
}

/** While somebody saves, what is read beside it comes in pieces of this part: a scan leaves him more of the machine. */
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
