import type { Socket } from 'node:net'
import { finished } from 'node:stream'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { StreamResponse } from './http2-messages.ts'
import { reduceHeaders } from './plugins/prefer-minimal.ts'

/** How long a client that was refused may go on sending before the connection is cut. */
const LINGER_MS = 2000

/**
 * Answers while the client is still sending a body that nobody will read, then closes the connection. Closing at
 * once would reset it, and the client would see the reset instead of the answer (RFC 9112 9.6), so the rest is
 * thrown away for a moment first.
 */
export async function answerAndClose(
  request: FastifyRequest,
  reply: FastifyReply,
  payload: Buffer,
): Promise<void> {
  reduceHeaders(request, reply)
  reply.hijack()
  const { raw } = reply
  for (const [name, value] of Object.entries(reply.getHeaders())) {
    if (value !== undefined) raw.setHeader(name, value)
  }
  raw.setHeader('Content-Length', payload.length)
  // The client is told to send no more, and the connection is for others, too (http2-messages.ts).
  if ((raw as object) instanceof StreamResponse) {
    raw.end(payload)
    return
  }
  raw.setHeader('Connection', 'close')
  raw.write(payload)
  await wholeOrLate(request)
  raw.end()
}

const ending = new WeakSet<Socket>()

/**
 * Ends a connection after its last answer, in the stages of RFC 9112 9.6: no more is written, what still comes is thrown
 * away, and it is closed when its client has closed it, or a moment later. Closing it at once while there is something
 * unread, such as requests behind the last one, would reset it, and take from the client what it has not read yet of all
 * answers before.
 */
export function closeInStages(socket: Socket): void {
  if (ending.has(socket) || socket.destroyed) return
  ending.add(socket)
  const cut = setTimeout(() => socket.destroy(), LINGER_MS)
  socket.once('close', () => clearTimeout(cut))
  // Node's server lets go of the socket when somebody else listens: what comes now must not be taken for requests.
  socket.on('data', throwAway)
  socket.removeAllListeners('data')
  socket.on('data', throwAway)
  socket.end()
  socket.resume()
}

/** Whether its last answer is given. */
export function isEnding(socket: Socket): boolean {
  return ending.has(socket)
}

function throwAway(): void {
  // It goes as it came.
}

function wholeOrLate(request: FastifyRequest): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, LINGER_MS)
    finished(request.raw, { writable: false }, () => {
      clearTimeout(timer)
      resolve()
    })
    request.raw.resume()
  })
}
