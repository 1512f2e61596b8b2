/** The other side of a sync, as PouchDB and the diagnosis ask it. */
import type { Address } from '../../../../src/core/address.ts'
import type { PouchOptions } from '../pouch.ts'

/** Stands for an IPv6 host, which PouchDB's reader of addresses does not know. */
const STAND_IN = 'ipv6.invalid'

/** What PouchDB opens, and how its requests travel. */
export interface Remote {
  readonly url: string
  readonly options: PouchOptions
}

/**
 * @param signal ends every request under way, the feed among them
 * @param send the browser's fetch
 */
export function remoteOf(address: Address, signal: AbortSignal, send: typeof fetch): Remote {
  const authority = `[${address.host}]:${address.port}`
  const isV6 = address.host.includes(':')
  const url = isV6 ? address.url.replace(authority, `${STAND_IN}:${address.port}`) : address.url
  const auth = credentialsOf(address)
  return {
    url,
    options: {
      skip_setup: true,
      ...(auth && { auth }),
      fetch: (asked, init = {}) => {
        const text = String(asked)
        const signals = init.signal ? [signal, init.signal] : [signal]
        return send(isV6 ? text.replace(`${STAND_IN}:${address.port}`, authority) : text, {
          ...init,
          signal: AbortSignal.any(signals),
          // The Address says who asks. Cookies would need more of the server's leave (`cors/credentials`).
          credentials: 'omit',
        })
      },
    },
  }
}

/** The name and password of an Address; undefined: it has none. */
export function credentialsOf({ username, password }: Address): PouchOptions['auth'] {
  return username === undefined ? undefined : { username, password: password ?? '' }
}

/** The header that goes with every request to an Address. */
export function headersOf(address: Address): Record<string, string> {
  const auth = credentialsOf(address)
  return auth ? { authorization: basicAuthorization(auth.username, auth.password) } : {}
}

/** HTTP's Basic credentials, in UTF-8 as PouchDB sends them. */
export function basicAuthorization(username: string, password: string): string {
  const bytes = new TextEncoder().encode(`${username}:${password}`)
  return `Basic ${btoa(String.fromCharCode(...bytes))}`
}
