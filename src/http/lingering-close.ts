import { finished } from 'node:stream'
import type { FastifyReply, FastifyRequest } from 'fastify'
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
  raw.setHeader('Connection', 'close')
  raw.write(payload)
  await wholeOrLate(request)
  raw.end()
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
