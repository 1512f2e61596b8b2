import type { IncomingMessage } from 'node:http'

/** Bytes a second; the slowest of mobile networks brings ten times as many, and who sends fewer holds what others need. */
const MIN_RATE = 100
/**
 * Bytes of the body itself, inflated, a second. Frames of chunks and of gzip are none, so that an upload of nothing but
 * empty blocks ends; what does not compress takes a few bytes more as gzip than it has.
 */
const MIN_BODY_RATE = MIN_RATE / 2

/**
 * Watches over a body that is still coming: for each second of every window it must bring {@link MIN_RATE} bytes, and
 * {@link MIN_BODY_RATE} of what it is inflated to. What waits because it is not taken off the socket is not counted.
 * @param windowMs how long one is, in milliseconds
 * @param onSlow called after each window that brought less
 * @param bodyBytes how many bytes of the body itself have come so far; absent: nobody reads it
 * @returns what ends the watch
 */
export function watchProgress(
  request: IncomingMessage,
  windowMs: number,
  onSlow: () => void,
  bodyBytes?: () => number,
): () => void {
  const { socket } = request
  let before = socket.bytesRead
  let bodyBefore = 0
  const timer = setInterval(() => {
    const brought = socket.bytesRead - before
    before += brought
    const ofBody = (bodyBytes?.() ?? Infinity) - bodyBefore
    bodyBefore += ofBody
    const isSlow = isBelow(MIN_RATE, brought, windowMs) || isBelow(MIN_BODY_RATE, ofBody, windowMs)
    if (isSlow && !request.isPaused()) onSlow()
  }, windowMs)
  return () => clearInterval(timer)
}

function isBelow(rate: number, bytes: number, windowMs: number): boolean {
  return bytes < (rate * windowMs) / 1000
}
