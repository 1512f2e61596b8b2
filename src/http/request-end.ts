/** When a request is over for good: answered, or its connection is gone. */
import type { Socket } from 'node:net'
import type { FastifyReply, FastifyRequest } from 'fastify'

/** One listener a connection, however many requests it carries. */
const ends = new WeakMap<Socket, Set<() => void>>()

/**
 * Calls back once, when the answer is sent or the connection has closed. Of a request that was sent ahead of others'
 * answers (pipelining) Node tells neither when its connection closes before its answer has had its turn.
 * @param end not called when the connection is closed already: nobody waits for such a request
 * @returns what takes the call back
 */
export function onRequestEnd(request: FastifyRequest, reply: FastifyReply, end: () => void): () => void {
  const calls = endsOf(request.raw.socket)
  const forget = () => {
    calls.delete(call)
    reply.raw.off('close', call)
  }
  const call = () => {
    forget()
    end()
  }
  calls.add(call)
  reply.raw.once('close', call)
  return forget
}

function endsOf(socket: Socket): Set<() => void> {
  const known = ends.get(socket)
  if (known !== undefined) return known
  const calls = new Set<() => void>()
  ends.set(socket, calls)
  socket.once('close', () => {
    for (const call of [...calls]) call()
  })
  return calls
}
