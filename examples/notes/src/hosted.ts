/** Signs in to the hosted server: once with the password, then with a token for this device. */
import type { Address } from '../../../src/core/address.ts'
import type { HostedAccount } from './settings.ts'
import { basicAuthorization } from './sync/remote.ts'
import { hostedAddress } from './sync/target.ts'

export type SignedIn =
  | { readonly account: HostedAccount }
  /** The server refused; a text for the user. */
  | { readonly refused: string }
  /** The server did not answer; the address is for a diagnosis. */
  | { readonly unheard: Address | null }

interface Asked {
  readonly status: number
  readonly body: { readonly reason?: string; readonly id?: string; readonly token?: string }
}

/** The name of an account's own database: `userdb-` and the bytes of the name in hexadecimal (`couch_peruser`). */
export function databaseOf(name: string): string {
  const bytes = [...new TextEncoder().encode(name)]
  return `userdb-${bytes.map((byte) => byte.toString(16).padStart(2, '0')).join('')}`
}

/**
 * Creates the account's database, if it does not exist, and a token for this device.
 * @param server `scheme://host:port`
 * @param device the name in the account's list of tokens; a random suffix makes it unique
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
    // 412: it exists.
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

/** Revokes the device's token. If the server cannot be reached, the token stays in the account's list. */
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
  if (status === 401) return 'The name or the password is wrong.'
  if (status === 429) return 'There were too many attempts. Try again in a few minutes.'
  return body.reason ?? `The server answered ${status}.`
}
