/** The documents of `_users` that are accounts: made, listed and removed for the accounts API. */
import { addUser, readUser, removeUser, rolesOfUser, userNames } from '../auth/user-documents.ts'
import { HOUSE } from '../auth/users-feed.ts'
import { CouchError } from '../core/errors.ts'
import { USERS_DATABASE } from '../core/user-ids.ts'
import type { DatabaseHandle, Databases } from '../threads/databases.ts'

/** Leaves of one document: conflicts come of replication alone. */
const MAX_LEAVES = 100

export class UserDocuments {
  readonly #databases: Pick<Databases, 'get' | 'names'>

  constructor(databases: Pick<Databases, 'get' | 'names'>) {
    this.#databases = databases
  }

  /** @throws no_database */
  get #users(): DatabaseHandle {
    return this.#databases.get(USERS_DATABASE)
  }

  get #areKept(): boolean {
    return this.#databases.names().includes(USERS_DATABASE)
  }

  /** Makes a user; the database hashes the password. @throws conflict when there is one of that name; no_database */
  create(name: string, password: string, roles: readonly string[]): Promise<void> {
    return addUser(this.#users, { name, password, roles })
  }

  /** @returns the roles of a user; null: there is none */
  async rolesOf(name: string): Promise<readonly string[] | null> {
    const text = this.#areKept ? await readUser(this.#users, name) : null
    return text === null ? null : rolesOfUser(text)
  }

  /** @returns names in their order, at most `limit` behind `after` */
  async list(after: string, limit: number): Promise<string[]> {
    return this.#areKept ? userNames(this.#users, after, limit) : []
  }

  /** Removes a user, and what its document said before. @returns whether there was one */
  async delete(name: string): Promise<boolean> {
    if (!this.#areKept) return false
    for (let leaf = 0; leaf < MAX_LEAVES; leaf++) {
      const text = await readUser(this.#users, name)
      if (text === null) {
        if (leaf > 0) await this.#users.compact(HOUSE)
        return leaf > 0
      }
      await removeUser(this.#users, name, text)
    }
    throw new CouchError('contended')
  }
}
