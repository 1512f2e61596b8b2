import { MessageChannel } from 'node:worker_threads'

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
