/** The documents of `_users` as the operator reads and writes them; protocol.md 11.7. */
import { bytesOfText } from '../core/byte-text.ts'
import { CouchError } from '../core/errors.ts'
import { userDocId, userNameOf } from '../core/user-ids.ts'
import type { DatabaseHandle } from '../threads/databases.ts'
import { PARTY_ADMIN } from './access.ts'

/** The first id behind those of users: `;` is the character after `:`. */
const END = 'org.couchdb.user;'

/** @returns the document's text; null when there is none */
export async function readUser(users: DatabaseHandle, name: string): Promise<string | null> {
  try {
    const { json } = await users.open(PARTY_ADMIN, userDocId(name), {})
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
 * replaced where the new one is made.
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
}

async function put(users: DatabaseHandle, name: string, json: string): Promise<void> {
  await users.put(PARTY_ADMIN, userDocId(name), { bytes: Buffer.from(json) }, {})
}

/** @param text the document, as {@link readUser} gave it */
export async function removeUser(users: DatabaseHandle, name: string, text: string): Promise<void> {
  const { _rev } = JSON.parse(text) as { _rev: string }
  await users.remove(PARTY_ADMIN, userDocId(name), _rev)
}

/** @returns the names of users behind `after`, in the order of their bytes, at most `limit` */
export async function userNames(
  users: DatabaseHandle,
  after: string | null,
  limit: number,
): Promise<string[]> {
  const startKey = after === null ? userDocId('') : `${userDocId(after)}\u0000`
  const query = { startKey, endKey: END, inclusiveEnd: false, limit }
  const chunks: Uint8Array[] = []
  for await (const chunk of users.allDocs(PARTY_ADMIN, 'all', query, null)) chunks.push(chunk)
  const { rows } = JSON.parse(Buffer.concat(chunks).toString()) as { rows: readonly { id: string }[] }
  return rows.flatMap(({ id }) => userNameOf(id) ?? [])
}

/** @returns the roles that a user document grants; none where it holds no list of texts */
export function rolesOfUser(text: string): readonly string[] {
  const { roles } = JSON.parse(text) as { roles?: unknown }
  return Array.isArray(roles) ? roles.filter((role): role is string => typeof role === 'string') : []
}
