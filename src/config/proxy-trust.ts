/** When the headers of proxy authentication may be believed; protocol.md 11.2, docs/proxy.md. */
import { parseHandlers } from './authentication-handlers.ts'
import { StartError } from './start-error.ts'

type Get = (section: string, key: string) => string | undefined

/**
 * With the handler on, whoever is believed names any account with any role. Whatever runs on this machine cannot be
 * believed by itself: a proxy in front passes on the headers of all its clients.
 * @param get the values that are to be in effect
 * @returns what is missing, as a sentence; null when nothing is
 */
export function problemOfProxyAuth(get: Get): string | null {
  const handlers = parseHandlers(get('chttpd', 'authentication_handlers') ?? '') ?? []
  if (!handlers.includes('proxy')) return null
  // Without a secret no signature is right, so that nobody is let in.
  if (get('chttpd_auth', 'proxy_use_secret') === 'true') return null
  if ((get('settee', 'trusted_proxies') ?? '').trim() !== '') return null
  return (
    'Proxy authentication (chttpd/authentication_handlers) needs either settee/trusted_proxies or ' +
    'chttpd_auth/proxy_use_secret = true with a chttpd_auth/secret: without them, whoever reaches this server ' +
    'through a proxy could be an admin by two headers.'
  )
}

/** @throws StartError */
export function requireSafeProxyAuth(get: Get): void {
  const problem = problemOfProxyAuth(get)
  if (problem !== null) throw new StartError(problem)
}
