/** The documents of `_users` that are accounts: made, listed and removed for the accounts API. */
import { bytesOfText } from '../core/byte-text.ts'
import { CouchError } from '../core/errors.ts'
import type { DatabaseHandle, Databases } from '../threads/databases.ts'
import { HOUSE } from './tenant-databases.ts'

const DATABASE = '_users'
const PREFIX = 'org.couchdb.user:'
/** The first id behind all that begin with the prefix. */
const END = 'org.couchdb.user;'
/** Leaves of one document: conflicts come of replication alone. */
const MAX_LEAVES = 100

export class UserDocuments {
  readonly #databases: Pick<Databases, 'get'>

  constructor(databases: Pick<Databases, 'get'>) {
    this.#databases = databases
  }

  get #database(): DatabaseHandle {
    return this.#databases.get(DATABASE)
  }

  /** Makes a user; the database hashes the password. @throws conflict when there is one of that name; no_database */
  async create(name: string, password: string, roles: readonly string[]): Promise<void> {
    const user = { name, password, roles, type: 'user' }
    const bytes = Buffer.from(JSON.stringify(user))
    await this.#database.put(HOUSE, PREFIX + name, { bytes }, {})
  }

  /** @returns the roles of a user; null: there is none */
  async rolesOf(name: string): Promise<readonly string[] | null> {
    const user = await this.#open(name)
    if (user === null) return null
    return Array.isArray(user.roles) ? user.roles.filter((role) => typeof role === 'string') : []
  }

  /** @returns names in their order, at most `limit` behind `after` */
  async list(after: string, limit: number): Promise<string[]> {
    // No id is between a text and the same with a NUL behind it.
    const query = { startKey: `${PREFIX}${after}\0`, endKey: END, inclusiveEnd: false, limit }
    const chunks: Uint8Array[] = []
    try {
      for await (const chunk of this.#database.allDocs(HOUSE, 'all', query, null)) chunks.push(chunk)
    } catch (error) {
      if (isMissing(error)) return []
      throw error
    }
    const { rows } = JSON.parse(Buffer.concat(chunks).toString()) as { rows: readonly { id: string }[] }
    return rows.map(({ id }) => id.slice(PREFIX.length))
  }

  /** Removes a user, and what its document said before. @returns whether there was one */
  async delete(name: string): Promise<boolean> {
    for (let leaf = 0; leaf < MAX_LEAVES; leaf++) {
      const user = await this.#open(name)
      if (user === null) {
        if (leaf > 0) await this.#database.compact(HOUSE)
        return leaf > 0
      }
      await this.#database.remove(HOUSE, PREFIX + name, String(user._rev))
    }
    throw new CouchError('contended')
  }

  async #open(name: string): Promise<Record<string, unknown> | null> {
    try {
      const { json } = await this.#database.open(HOUSE, PREFIX + name, {})
      const bytes = typeof json === 'string' ? bytesOfText(json) : json
      return JSON.parse(Buffer.from(bytes).toString()) as Record<string, unknown>
    } catch (error) {
      if (isMissing(error)) return null
      throw error
    }
  }
}

function isMissing(error: unknown): boolean {
  return error instanceof CouchError && error.status === 404
}
