/** A proxy in front that has found out who asks, and says so in headers; protocol.md 11.2. */
import { createHmac, timingSafeEqual } from 'node:crypto'
import type { Config } from '../config/config.ts'
import type { UserCtx } from '../core/types.ts'
import { digestsOf } from './session-cookie.ts'
import { sessionSecret } from './session-secret.ts'

type Headers = Readonly<Record<string, string | string[] | undefined>>

/**
 * @param headers their names in lower case
 * @param isTrusted whether the peer is one whose word alone is taken
 * @returns the user that the proxy names; null when it names none, or has not shown that it may
 */
export function readProxyAuth(config: Config, headers: Headers, isTrusted: () => boolean): UserCtx | null {
  const name = headerOf(config, headers, 'x_auth_username', 'X-Auth-CouchDB-UserName')
  if (name === '') return null
  const may = config.boolean('chttpd_auth', 'proxy_use_secret')
    ? isSigned(config, name, headerOf(config, headers, 'x_auth_token', 'X-Auth-CouchDB-Token'))
    : isTrusted()
  if (!may) return null
  const roles = headerOf(config, headers, 'x_auth_roles', 'X-Auth-CouchDB-Roles')
  return { name, roles: rolesIn(roles) }
}

/** @returns the members of a comma list, as CouchDB reads roles in headers and tokens */
export function rolesIn(list: string): readonly string[] {
  return list
    .split(',')
    .map((role) => role.trim())
    .filter((role) => role !== '')
}

function headerOf(config: Config, headers: Headers, key: string, usual: string): string {
  const value = headers[(config.get('chttpd_auth', key) || usual).toLowerCase()]
  // Node reads headers as Latin-1; names are UTF-8.
  return typeof value === 'string' ? Buffer.from(value, 'latin1').toString().trim() : ''
}

/** In constant time; without a secret nobody can have signed. */
function isSigned(config: Config, name: string, token: string): boolean {
  const secret = sessionSecret(config)
  if (secret === undefined) return false
  const sent = Buffer.from(token.toLowerCase())
  return digestsOf(config.get('chttpd_auth', 'hash_algorithms') ?? '').some((digest) => {
    const expected = Buffer.from(createHmac(digest, secret).update(name).digest('hex'))
    return expected.length === sent.length && timingSafeEqual(expected, sent)
  })
}
