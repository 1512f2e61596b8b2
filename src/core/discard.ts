import { MessageChannel } from 'node:worker_threads'

/** What is posted here is moved out of this thread and thrown away. */
const { port1: nowhere } = new MessageChannel()
nowhere.close()

/** Below this the collector is quick enough. */
const MIN_BYTES = 16 * 1024

/**
 * Gives the memory of bytes back at once, where they own it whole; they are empty afterwards. For what passes through
 * in large pieces: to the collector each is a small object, and it comes only after some 64 MB of them. Node 20 has no
 * ArrayBuffer.prototype.transfer, which would say this in so many words.
 * @param bytes that nobody else reads, now or later
 */
export function discard(bytes: Uint8Array): void {
  const { buffer, byteLength } = bytes
  if (byteLength < MIN_BYTES || byteLength !== buffer.byteLength || !(buffer instanceof ArrayBuffer)) return
  nowhere.postMessage(null, [buffer])
}
