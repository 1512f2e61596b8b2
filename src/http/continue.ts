/**
 * `Expect: 100-continue` (RFC 9110 10.1.1): the client holds its body back until it is told to go on. It is told
 * when the body is about to be read, so a refused upload costs nobody anything. (Node closes the connection by
 * itself after an answer that came instead.)
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Server } from 'node:net'

const waiting = new WeakMap<IncomingMessage, ServerResponse>()

/** Takes over from Node, which would tell every client to go on before anything has looked at the request. */
export function holdContinue(server: Server): void {
  server.on('checkContinue', (request: IncomingMessage, response: ServerResponse) => {
    waiting.set(request, response)
    server.emit('request', request, response)
  })
  // Other expectations may be passed over; Node's answer to them has no body.
  server.on('checkExpectation', (request: IncomingMessage, response: ServerResponse) => {
    server.emit('request', request, response)
  })
}

/**
 * Tells the client to send its body, if it waits for that. Where an earlier request of the connection is not answered
 * yet it is told after that: Node would keep the line for then, but send it behind the head of the answer.
 */
export function sendContinue(request: IncomingMessage): void {
  const response = waiting.get(request)
  waiting.delete(request)
  if (response === undefined) return
  if (response.socket !== null) response.writeContinue()
  else response.once('socket', () => response.headersSent || response.writeContinue())
}
