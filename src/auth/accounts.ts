/** The accounts that can log in: server admins, users of `_users`, or both together. */
import { bytesOfText } from '../core/bytes.ts'
import { CouchError } from '../core/errors.ts'
import { userDocId, userNameOf } from '../core/ids.ts'
import { isJsonObject } from '../core/json.ts'
import { SYSTEM_USER, type UserCtx } from '../core/types.ts'
import type { DatabaseHandle } from '../threads/databases.ts'
import { isHashed } from './password.ts'

/** An account as it is now. */
export interface Account {
  readonly name: string
  readonly roles: readonly string[]
  /** The password's hash, in a form that `verifyPassword` knows; null: no password opens the account. */
  readonly stored: string | null
  /** Goes into the key that signs session cookies: with a new password they end. */
  readonly salt: string
  /** Why the account has no access, for whoever knows its password. Absent: it has access. */
  readonly refusal?: string
  /** The generation of its document's revision. Absent for server admins. */
  readonly generation?: number
  /** The generation of the last deletion of its document, as far as it is stored: an earlier account of the name ended with it. */
  readonly deletion?: number
}

/** Called with the names of changed accounts: deleted, a new password, other roles; `all` if they are unknown. */
export type AccountListener = (names: ReadonlySet<string> | 'all') => void

export interface Accounts {
  /**
   * @returns null if there is no such account
   * @throws unavailable; account_conflicts, which does not count as a failed login
   */
  find(name: string): Promise<Account | null>
  /** A hash that no password matches and that costs as much as a real one, so that an unknown name takes as long. */
  decoy(): string
  /** @returns whether every change so far has been reported to the listeners; false while changes are being read */
  isUpToDate(): boolean
  /** @returns what ends the calls */
  onChange(listener: AccountListener): () => void
}

/** The role of server admins; protocol.md 11.1. */
export const ADMIN_ROLE = '_admin'

/** The server itself, which stores what another server has accepted as it is. */
export const COPYING_USER: UserCtx = { ...SYSTEM_USER, isCopying: true }

/** The role that may read metrics and the like; protocol.md 11.4. */
const METRICS_ROLE = '_metrics'

/** A user who is not logged in. */
export const ANONYMOUS: UserCtx = { name: null, roles: [] }

/** @returns whether the user may do everything */
export function isServerAdmin(user: Pick<UserCtx, 'roles'>): boolean {
  return user.roles.includes(ADMIN_ROLE)
}

/** @returns whether the user is not logged in */
export function isAnonymous(user: UserCtx): boolean {
  return user.name === null && !isServerAdmin(user)
}

/** @throws not_server_admin, which is 401 for logged-in users too (protocol.md 11.6) */
export function requireServerAdmin(user: UserCtx): void {
  if (!isServerAdmin(user)) throw new CouchError('not_server_admin')
}

/** For server admins and those with the role `_metrics`. @throws not_server_admin */
export function requireMetricsReader(user: UserCtx): void {
  if (user.roles.includes(METRICS_ROLE) || isServerAdmin(user)) return
  throw new CouchError('not_server_admin', 'You are not a server admin or read-only metrics user')
}

// A document of `_users` as an account; protocol.md 11.7. Pure.

/** CouchDB's defaults for documents without these members (couch_httpd_auth). */
const OLD_PRF = 'sha'
const OLD_ITERATIONS = 10_000

/**
 * Reads an account.
 * @param name of the account
 * @param doc the document's JSON value, read with its conflicts, and with `_revs_info` if it may have been deleted before
 * @param maxIterations with more, no password opens the account
 * @returns null if the document has another name
 * @throws account_conflicts: the user may know the password of a losing revision. CouchDB refuses such a document as well
 */
export function userAccount(name: string, doc: unknown, maxIterations = Infinity): Account | null {
  if (!isJsonObject(doc) || doc.name !== name) return null
  if (doc._conflicts !== undefined) throw new CouchError('account_conflicts')
  const roles = Array.isArray(doc.roles) ? doc.roles.filter(isGivenRole) : []
  return {
    name,
    roles,
    stored: storedPassword(doc, maxIterations),
    salt: typeof doc.salt === 'string' ? doc.salt : '',
    ...generationsOf(doc),
  }
}

/** A document that was deleted and made again has at least this generation. */
export const MADE_AGAIN = 3

/** @returns the generation of a revision; 0 for anything else */
export function generationOf(rev: unknown): number {
  return typeof rev === 'string' ? Number.parseInt(rev, 10) || 0 : 0
}

function generationsOf({ _rev, _revs_info }: Readonly<Record<string, unknown>>): Partial<Account> {
  const generation = generationOf(_rev)
  const ancestors: readonly unknown[] = Array.isArray(_revs_info) ? _revs_info : []
  // The newest comes first.
  const deleted = ancestors.find((each) => isJsonObject(each) && each.status === 'deleted')
  const deletion = isJsonObject(deleted) ? generationOf(deleted.rev) : 0
  return { ...(generation > 0 && { generation }), ...(deletion > 0 && { deletion }) }
}

/** Whether a role is one that a document can give: none of the server's but the one that reads metrics. */
function isGivenRole(role: unknown): role is string {
  return typeof role === 'string' && (!role.startsWith('_') || role === '_metrics')
}

/**
 * The password of a document in a form that `verifyPassword` knows; null: no password opens the account. A second
 * factor (`totp`) is something settee does not ask for, and an account that has one must not open without it.
 */
function storedPassword(doc: Readonly<Record<string, unknown>>, maxIterations: number): string | null {
  if (doc.totp !== undefined || Number(doc.iterations ?? OLD_ITERATIONS) > maxIterations) return null
  const { password_scheme: scheme = 'simple', salt = '' } = doc
  const stored =
    scheme === 'simple'
      ? `-hashed-${doc.password_sha},${salt}`
      : scheme === 'pbkdf2' || scheme === 'simple+pbkdf2'
        ? `-${scheme}:${doc.pbkdf2_prf ?? OLD_PRF}-${doc.derived_key},${salt},${doc.iterations ?? OLD_ITERATIONS}`
        : ''
  return isHashed(stored) ? stored : null
}

// The documents of `_users` as the operator reads and writes them; protocol.md 11.7.

/** The first id behind those of users: `;` is the character after `:`. */
const END = 'org.couchdb.user;'

/** @returns the document's text; null when there is none */
export async function readUser(
  users: DatabaseHandle,
  name: string,
  conflicts = false,
): Promise<string | null> {
  try {
    const { json } = await users.open(SYSTEM_USER, userDocId(name), { conflicts })
    return Buffer.from(typeof json === 'string' ? bytesOfText(json) : json)
      .toString()
      .trim()
  } catch (error) {
    if (error instanceof CouchError && error.status === 404) return null
    throw error
  }
}

/** Makes a user document, with a password or without. @throws conflict when there is one; what the rules of `_users` throw */
export async function addUser(
  users: DatabaseHandle,
  user: { readonly name: string; readonly password: string | null; readonly roles: readonly string[] },
): Promise<void> {
  const { name, password, roles } = user
  await put(
    users,
    name,
    JSON.stringify({ name, type: 'user', roles, ...(password !== null && { password }) }),
  )
}

/**
 * Gives a user another password. The rest of the document stays the text that it was, and the old hash in it is
 * replaced where the new one is made. Conflicting revisions, with which nobody can log in, are deleted.
 * @param text the document, as {@link readUser} gave it
 * @throws conflict when it has changed since
 */
export async function setUserPassword(
  users: DatabaseHandle,
  name: string,
  text: string,
  password: string,
): Promise<void> {
  // Of a member that is there twice the last one counts.
  await put(users, name, `${text.replace(/\}$/, '')},"password":${JSON.stringify(password)}}`)
  const { _conflicts: losing = [] } = JSON.parse((await readUser(users, name, true)) ?? '{}') as {
    readonly _conflicts?: readonly string[]
  }
  for (const rev of losing) await users.remove(SYSTEM_USER, userDocId(name), rev)
}

async function put(users: DatabaseHandle, name: string, json: string): Promise<void> {
  await users.put(SYSTEM_USER, userDocId(name), { bytes: Buffer.from(json) }, {})
}

/** @param text the document, as {@link readUser} gave it */
export async function removeUser(users: DatabaseHandle, name: string, text: string): Promise<void> {
  const { _rev } = JSON.parse(text) as { _rev: string }
  await users.remove(SYSTEM_USER, userDocId(name), _rev)
}

/** @returns the names of users behind `after` that begin with `prefix`, in the order of their bytes, at most `limit` */
export async function userNames(
  users: DatabaseHandle,
  after: string | null,
  limit: number,
  prefix = '',
): Promise<string[]> {
  const isBefore = after === null || Buffer.compare(Buffer.from(after), Buffer.from(prefix)) < 0
  const startKey = isBefore ? userDocId(prefix) : `${userDocId(after)}\u0000`
  const endKey = prefix === '' ? END : `${userDocId(prefix)}\u{10FFFF}`
  const query = { startKey, endKey, inclusiveEnd: false, limit }
  const chunks: Uint8Array[] = []
  for await (const chunk of users.allDocs(SYSTEM_USER, 'all', query, null)) chunks.push(chunk)
  const { rows } = JSON.parse(Buffer.concat(chunks).toString()) as { rows: readonly { id: string }[] }
  return rows.flatMap(({ id }) => userNameOf(id) ?? [])
}

/** @returns the roles that a user document grants; none where it holds no list of texts */
export function rolesOfUser(text: string): readonly string[] {
  const { roles } = JSON.parse(text) as { roles?: unknown }
  return Array.isArray(roles) ? roles.filter((role): role is string => typeof role === 'string') : []
}
