/** Where the server listens. */
import type { Config } from './config.ts'

/** CouchDB's word for every address of the machine, IPv4 and IPv6. */
const ANY = 'any'

/** @returns `chttpd/bind_address`, as the operating system takes it */
export function bindAddress(config: Pick<Config, 'get'>): string {
  return addressOf(config.get('chttpd', 'bind_address') || '127.0.0.1')
}

/** @returns the same of settee's own TLS: `settee/tls_bind_address`, else as without TLS */
export function secureBindAddress(config: Pick<Config, 'get'>): string {
  const own = config.get('settee', 'tls_bind_address')
  return own ? addressOf(own) : bindAddress(config)
}

function addressOf(text: string): string {
  return text === ANY ? '::' : text
}
