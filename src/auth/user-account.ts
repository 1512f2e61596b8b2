/** A document of `_users` as an account; protocol.md 11.7. Pure. */
import { CouchError } from '../core/errors.ts'
import { isJsonObject } from '../core/json-object.ts'
import type { Account } from './accounts.ts'
import { isHashed } from './password.ts'

/** What CouchDB takes where a document does not say (couch_httpd_auth). */
const OLD_PRF = 'sha'
const OLD_ITERATIONS = 10_000

/**
 * Reads an account.
 * @param name that it is asked for by
 * @param doc the document's JSON value, read with its conflicts
 * @returns null where there is none: the document is of another name
 * @throws account_conflicts: the password that the user knows may be that of a losing revision, and CouchDB lets nobody
 *   in by such a document either
 */
export function userAccount(name: string, doc: unknown): Account | null {
  if (!isJsonObject(doc) || doc.name !== name) return null
  if (doc._conflicts !== undefined) throw new CouchError('account_conflicts')
  const roles = Array.isArray(doc.roles) ? doc.roles.filter(isGivenRole) : []
  return { name, roles, stored: storedPassword(doc), salt: typeof doc.salt === 'string' ? doc.salt : '' }
}

/** Whether a role is one that a document can give: none of the server's but the one that reads metrics. */
function isGivenRole(role: unknown): role is string {
  return typeof role === 'string' && (!role.startsWith('_') || role === '_metrics')
}

/**
 * The password of a document in a form that `verifyPassword` knows; null: no password opens the account. A second
 * factor (`totp`) is something settee does not ask for, and an account that has one must not open without it.
 */
function storedPassword(doc: Readonly<Record<string, unknown>>): string | null {
  if (doc.totp !== undefined) return null
  const { password_scheme: scheme = 'simple', salt = '' } = doc
  const stored =
    scheme === 'simple'
      ? `-hashed-${doc.password_sha},${salt}`
      : scheme === 'pbkdf2' || scheme === 'simple+pbkdf2'
        ? `-${scheme}:${doc.pbkdf2_prf ?? OLD_PRF}-${doc.derived_key},${salt},${doc.iterations ?? OLD_ITERATIONS}`
        : ''
  return isHashed(stored) ? stored : null
}
