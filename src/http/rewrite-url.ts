import type { IncomingMessage } from 'node:http'

/** `http://host/path`, as a client of a proxy sends it; what may stand before the host is nobody's business. */
const ABSOLUTE = /^[a-z][a-z0-9+.-]*:\/\/[^/?]*/i
const OVERRIDES = new Set(['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'TRACE', 'CONNECT', 'COPY'])

/**
 * Brings a request's address into the one form that the route table knows (protocol.md 2.1, 17): empty segments
 * are dropped, `+` in the path is a space. The query stays as it is.
 */
export function rewriteUrl(request: IncomingMessage): string {
  overrideMethod(request)
  const url = (request.url ?? '/').replace(ABSOLUTE, '')
  const at = url.indexOf('?')
  const path = at === -1 ? url : url.slice(0, at)
  return rewritePath(path) + (at === -1 ? '' : url.slice(at))
}

function rewritePath(path: string): string {
  const spaced = path.includes('+') ? path.replaceAll('+', '%20') : path
  const single = spaced.includes('//') ? spaced.replace(/\/{2,}/g, '/') : spaced
  if (single === '') return '/'
  return single.length > 1 && single.endsWith('/') ? single.slice(0, -1) : single
}

/** For clients that can only GET and POST (protocol.md 1.1): honoured on POST alone. */
function overrideMethod(request: IncomingMessage): void {
  const wanted = request.headers['x-http-method-override']
  if (request.method !== 'POST' || typeof wanted !== 'string' || !OVERRIDES.has(wanted)) return
  // On the connection it is a POST still, whose client waits for the body that a HEAD would not have.
  request.method = wanted === 'HEAD' ? 'GET' : wanted
}
