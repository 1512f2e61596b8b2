/** Where accounts are kept, and how their documents are named; protocol.md 11.7. */

/** The database of accounts, unless `chttpd_auth/authentication_db` names another. */
export const USERS_DATABASE = '_users'

/**
 * Whether documents of a database are accounts, with the hashes of their passwords. Those of `_users` stay guarded
 * also where accounts are in another, as in CouchDB (fabric_util:is_users_db).
 * @param usersDatabase the one that accounts are in
 */
export function holdsAccounts(database: string, usersDatabase: string): boolean {
  return database === USERS_DATABASE || database === usersDatabase
}

const USER_PREFIX = 'org.couchdb.user:'

/** @returns the id of the document in `_users` that describes the account of this name */
export function userDocId(name: string): string {
  return USER_PREFIX + name
}

/** @returns the name of the account that a document of `_users` describes; null for an id of any other form */
export function userNameOf(id: string): string | null {
  return id.startsWith(USER_PREFIX) ? id.slice(USER_PREFIX.length) : null
}
