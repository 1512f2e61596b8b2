import type { IncomingMessage } from 'node:http'

/** `http://host/path`, as a client of a proxy sends it; what may stand before the host is nobody's business. */
const ABSOLUTE = /^[a-z][a-z0-9+.-]*:\/\/[^/?]*/i
/** A design document's id with its slash escaped, where a name follows. */
const ESCAPED_DESIGN = /^(\/[^/]+\/_design)%2[fF](?=[^/])/
const OVERRIDES = new Set(['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'TRACE', 'CONNECT', 'COPY'])

/**
 * Brings a request's address into the one form that the route table knows (protocol.md 2.1, 17): empty segments
 * are dropped, `+` in the path is a space unless `chttpd/decode_plus_to_space` says otherwise, and `_design%2Fx` is `_design/x`, with what is below it: CouchDB
 * redirects a GET of the former, but nano takes any redirect for an error (clients.md 1.5). The query stays as it is.
 */
export function rewriteUrl(request: IncomingMessage, isPlusSpace = true): string {
  overrideMethod(request)
  const url = (request.url ?? '/').replace(ABSOLUTE, '')
  const at = url.indexOf('?')
  const path = at === -1 ? url : url.slice(0, at)
  return rewritePath(isPlusSpace ? spaced(path) : path) + (at === -1 ? '' : url.slice(at))
}

function spaced(path: string): string {
  return path.includes('+') ? path.replaceAll('+', '%20') : path
}

function rewritePath(path: string): string {
  const single = path.includes('//') ? path.replace(/\/{2,}/g, '/') : path
  if (single === '') return '/'
  const bare = single.length > 1 && single.endsWith('/') ? single.slice(0, -1) : single
  return bare.includes('/_design%') ? bare.replace(ESCAPED_DESIGN, '$1/') : bare
}

/** For clients that can only GET and POST (protocol.md 1.1): honoured on POST alone. */
function overrideMethod(request: IncomingMessage): void {
  const wanted = request.headers['x-http-method-override']
  if (request.method !== 'POST' || typeof wanted !== 'string' || !OVERRIDES.has(wanted)) return
  // On the connection it is a POST still, whose client waits for the body that a HEAD would not have.
  request.method = wanted === 'HEAD' ? 'GET' : wanted
}
