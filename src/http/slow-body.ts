import type { IncomingMessage } from 'node:http'

/** Bytes a second; the slowest of mobile networks brings ten times as many, and who sends fewer holds what others need. */
const MIN_RATE = 100

/**
 * Watches over a body that is still coming: it must bring {@link MIN_RATE} bytes for each second of every window. What
 * waits because it is not taken off the socket is not counted.
 * @param windowMs how long one is, in milliseconds
 * @param onSlow called after each window that brought less
 * @returns what ends the watch
 */
export function watchProgress(request: IncomingMessage, windowMs: number, onSlow: () => void): () => void {
  const { socket } = request
  let before = socket.bytesRead
  const timer = setInterval(() => {
    const brought = socket.bytesRead - before
    before += brought
    if (brought < (MIN_RATE * windowMs) / 1000 && !request.isPaused()) onSlow()
  }, windowMs)
  return () => clearInterval(timer)
}
