/** The server side of a sync, as PouchDB and the diagnosis use it. */
import type { Address } from '../../../../src/core/address.ts'
import type { PouchOptions } from '../pouch.ts'

/** A placeholder for an IPv6 host, which PouchDB's URL parser does not support. */
const STAND_IN = 'ipv6.invalid'

/** Statuses for which a Response cannot have a body. */
const WITHOUT_BODY: ReadonlySet<number> = new Set([204, 205, 304])

/** The URL that PouchDB opens, and the fetch function for its requests. */
export interface Remote {
  readonly url: string
  readonly options: PouchOptions
}

/**
 * @param signal ends every request under way, including the feed
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
        return untilEnded(signal, async () => {
          const answer = await send(isV6 ? text.replace(`${STAND_IN}:${address.port}`, authority) : text, {
            ...init,
            signal: AbortSignal.any(signals),
            // The Address has the credentials. Cookies would require `cors/credentials` on the server.
            credentials: 'omit',
          })
          const { status, statusText, headers } = answer
          return WITHOUT_BODY.has(status)
            ? answer
            : new Response(await answer.blob(), { status, statusText, headers })
        })
      },
    },
  }
}

/**
 * Requests after the end never settle, because PouchDB leaves some rejections unhandled. For the same reason an answer is
 * read completely before PouchDB gets it.
 */
async function untilEnded(signal: AbortSignal, ask: () => Promise<Response>): Promise<Response> {
  const never = new Promise<never>(() => undefined)
  if (signal.aborted) return never
  try {
    const answer = await ask()
    return signal.aborted ? await never : answer
  } catch (error) {
    if (signal.aborted) return never
    throw error
  }
}

/** The name and password of an Address; undefined if it has none. */
function credentialsOf({ username, password }: Address): PouchOptions['auth'] {
  return username === undefined ? undefined : { username, password: password ?? '' }
}

/** The header for every request to an Address. */
export function headersOf(address: Address): Record<string, string> {
  const auth = credentialsOf(address)
  return auth ? { authorization: basicAuthorization(auth.username, auth.password) } : {}
}

/** HTTP's Basic credentials, in UTF-8 as PouchDB sends them. */
export function basicAuthorization(username: string, password: string): string {
  const bytes = new TextEncoder().encode(`${username}:${password}`)
  return `Basic ${btoa(String.fromCharCode(...bytes))}`
}
