/** Signing in to the hosted server: once with the password, from then on with a token of this device's own. */
import type { Address } from '../../../src/core/address.ts'
import type { HostedAccount } from './settings.ts'
import { basicAuthorization } from './sync/remote.ts'
import { hostedAddress } from './sync/target.ts'

export type SignedIn =
  | { readonly account: HostedAccount }
  /** The server refuses, in words for a person. */
  | { readonly refused: string }
  /** It could not be asked; the address is what a diagnosis would look at. */
  | { readonly unheard: Address | null }

interface Asked {
  readonly status: number
  readonly body: { readonly reason?: string; readonly id?: string; readonly token?: string }
}

/** The name that settee gives to an account's own database: its bytes in hexadecimal (`couch_peruser`). */
export function databaseOf(name: string): string {
  const bytes = [...new TextEncoder().encode(name)]
  return `userdb-${bytes.map((byte) => byte.toString(16).padStart(2, '0')).join('')}`
}

/**
 * Makes the account's database, if it is not there, and a token for this device.
 * @param server `scheme://host:port`
 * @param device what the account's list of tokens shows; made unique here
 */
export async function signIn(
  server: string,
  name: string,
  password: string,
  device: string,
  send: typeof fetch,
): Promise<SignedIn> {
  const database = databaseOf(name)
  const found = hostedAddress(server, database, name, password)
  if (!('address' in found)) return { refused: found.faults.map(({ reason }) => reason).join(' ') }
  const headers = { authorization: basicAuthorization(name, password), 'content-type': 'application/json' }
  const base = found.address.url.slice(0, found.address.url.lastIndexOf('/'))
  const ask = (method: string, path: string, body?: object) =>
    asked(send, `${base}${path}`, { method, headers, ...(body && { body: JSON.stringify(body) }) })
  try {
    const made = await ask('PUT', `/${database}`)
    // 412: it is there.
    if (made.status !== 201 && made.status !== 412) return { refused: refusalOf(made) }
    const tokenName = `${device} ${Math.random().toString(36).slice(2, 6)}`
    const { status, body } = await ask('POST', '/_settee/tokens', { name: tokenName })
    if (status !== 201 || body.token === undefined || body.id === undefined) {
      return { refused: refusalOf({ status, body }) }
    }
    return { account: { server, name, database, token: body.token, tokenId: body.id } }
  } catch {
    return { unheard: found.address }
  }
}

/** Ends the device's token. The server may be out of reach: then the token stays in the account's list. */
export async function signOut(account: HostedAccount, send: typeof fetch): Promise<void> {
  const found = hostedAddress(account.server, account.database, account.name, account.token)
  if (!('address' in found)) return
  const base = found.address.url.slice(0, found.address.url.lastIndexOf('/'))
  const headers = { authorization: basicAuthorization(account.name, account.token) }
  await asked(send, `${base}/_settee/tokens/${account.tokenId}`, { method: 'DELETE', headers }).catch(
    () => null,
  )
}

async function asked(send: typeof fetch, url: string, init: RequestInit): Promise<Asked> {
  const response = await send(url, { ...init, credentials: 'omit', signal: AbortSignal.timeout(30_000) })
  const body: unknown = await response.json().catch(() => ({}))
  return { status: response.status, body: typeof body === 'object' && body !== null ? body : {} }
}

function refusalOf({ status, body }: Asked): string {
  if (status === 401) return 'This name and password are not right.'
  if (status === 429) return 'There were too many tries. Wait a little.'
  return body.reason ?? `The server answers ${status}.`
}

/** A name for this device, as its browser tells it. */
export function deviceName(userAgent: string): string {
  const browser = ['Firefox', 'Edg', 'Chrome', 'Safari'].find((name) => userAgent.includes(`${name}/`))
  const system = ['Android', 'iPhone', 'iPad', 'Windows', 'Mac', 'Linux'].find((name) =>
    userAgent.includes(name),
  )
  return `Notes, ${browser === 'Edg' ? 'Edge' : (browser ?? 'browser')}${system ? ` on ${system}` : ''}`
}
