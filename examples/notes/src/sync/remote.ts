/** The other side of a sync, as PouchDB and the diagnosis ask it. */
import type { Address } from '../../../../src/core/address.ts'
import type { PouchOptions } from '../pouch.ts'

/** Stands for an IPv6 host, which PouchDB's reader of addresses does not know. */
const STAND_IN = 'ipv6.invalid'

/** Statuses of which a Response with a body cannot be made. */
const WITHOUT_BODY: ReadonlySet<number> = new Set([204, 205, 304])

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
        return untilEnded(signal, async () => {
          const answer = await send(isV6 ? text.replace(`${STAND_IN}:${address.port}`, authority) : text, {
            ...init,
            signal: AbortSignal.any(signals),
            // The Address says who asks. Cookies would need more of the server's leave (`cors/credentials`).
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
 * What is asked after the end has no answer, neither a good one nor a bad one: PouchDB leaves some failures unhandled. So
 * an answer is also read whole before it is handed on.
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
