/** Where accounts are kept, and how their documents are named; protocol.md 11.7. */

/** The database of accounts. */
export const USERS_DATABASE = '_users'

const USER_PREFIX = 'org.couchdb.user:'

/** @returns the id of the document in `_users` that describes the account of this name */
export function userDocId(name: string): string {
  return USER_PREFIX + name
}

/** @returns the name of the account that a document of `_users` describes; null for an id of any other form */
export function userNameOf(id: string): string | null {
  return id.startsWith(USER_PREFIX) ? id.slice(USER_PREFIX.length) : null
}
