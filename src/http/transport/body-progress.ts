/** Watches bodies that arrive, and asks clients for theirs. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Server } from 'node:net'

/** The least rate of a body, in bytes a second. The slowest mobile networks reach ten times as many. */
const MIN_RATE = 100
/**
 * The least rate of the inflated body itself, in bytes a second. The framing of chunks and gzip does not count, so that an
 * upload of empty blocks ends. Half the rate, since incompressible bytes take a few more as gzip.
 */
const MIN_BODY_RATE = MIN_RATE / 2

/**
 * Watches a body that is still arriving: in every window it must reach {@link MIN_RATE}, and {@link MIN_BODY_RATE} once it
 * is inflated. A paused request is not slow.
 * @param windowMs the length of a window, in milliseconds
 * @param onSlow called after each window that was too slow
 * @param bodyBytes how many bytes of the body itself have arrived so far; absent: nobody reads it
 * @returns ends the watch
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
    const received = socket.bytesRead - before
    before += received
    const receivedBody = (bodyBytes?.() ?? Infinity) - bodyBefore
    bodyBefore += receivedBody
    const isSlow = isBelow(MIN_RATE, received, windowMs) || isBelow(MIN_BODY_RATE, receivedBody, windowMs)
    if (isSlow && !request.isPaused()) onSlow()
  }, windowMs)
  return () => clearInterval(timer)
}

function isBelow(rate: number, bytes: number, windowMs: number): boolean {
  return bytes < (rate * windowMs) / 1000
}

// `Expect: 100-continue` (RFC 9110 10.1.1): the client sends its body after an interim answer, which it gets when the body
// is about to be read. A refused upload is never sent. (Node closes the connection after a final answer.)

const expecting = new WeakMap<IncomingMessage, ServerResponse>()

/** Replaces Node's handling, which would ask every client for its body before the request is checked. */
export function deferContinue(server: Server): void {
  server.on('checkContinue', (request: IncomingMessage, response: ServerResponse) => {
    expecting.set(request, response)
    server.emit('request', request, response)
  })
  // Other expectations may be ignored; Node's refusal of them has no body.
  server.on('checkExpectation', (request: IncomingMessage, response: ServerResponse) => {
    server.emit('request', request, response)
  })
}

/**
 * Asks the client for its body, if it waits for that. If an earlier request of the connection has no answer yet, this
 * comes after it: Node would send the interim answer after the head of the final one.
 */
export function sendContinue(request: IncomingMessage): void {
  const response = expecting.get(request)
  expecting.delete(request)
  if (response === undefined) return
  if (response.socket !== null) response.writeContinue()
  else response.once('socket', () => response.headersSent || response.writeContinue())
}
