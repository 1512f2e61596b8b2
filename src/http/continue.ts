/**
 * `Expect: 100-continue` (RFC 9110 10.1.1): the client holds its body back until it is told to go on. It is told
 * when the body is about to be read, so a refused upload costs nobody anything. (Node closes the connection by
 * itself after an answer that came instead.)
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http'

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

/** Tells the client to send its body, if it waits for that. */
export function sendContinue(request: IncomingMessage): void {
  waiting.get(request)?.writeContinue()
  waiting.delete(request)
}
