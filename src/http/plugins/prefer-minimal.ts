import type { FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'

/**
 * Headers without which an answer would be read wrongly, or that are meant for whoever stands between; they stay
 * whatever is configured. CouchDB adds those of CORS after its reduction (chttpd.erl).
 */
const NEEDED =
  /^(?:content-encoding|set-cookie|x-accel-buffering|connection|keep-alive|date|access-control-.*)$/

/**
 * `Prefer: return=minimal` (RFC 7240 4.2; protocol.md 1.1): answers carry only the headers that
 * `chttpd/prefer_minimal` lists. Answers that leave Fastify's hands call {@link reduceHeaders} themselves.
 */
export const preferMinimal = fp(
  async (app) => {
    app.addHook('onSend', (request, reply, _payload, done) => {
      reduceHeaders(request, reply)
      done()
    })
  },
  { name: 'prefer-minimal' },
)

/** Takes away what the client did not want, of the headers set so far. */
export function reduceHeaders(request: FastifyRequest, reply: FastifyReply): void {
  if (!prefersMinimal(request.headers.prefer)) return
  const listed = request.server.services.config.get('chttpd', 'prefer_minimal') ?? ''
  const kept = new Set(listed.toLowerCase().split(/\s*,\s*/))
  for (const name of Object.keys(reply.getHeaders())) {
    if (!kept.has(name) && !NEEDED.test(name)) reply.removeHeader(name)
  }
}

function prefersMinimal(header: string | string[] | undefined): boolean {
  const preferences = String(header ?? '')
    .toLowerCase()
    .split(/[,;]/)
  return preferences.some((each) => /^\s*return\s*=\s*"?minimal"?\s*$/.test(each))
}
