/** Weak hashes of users, made anew when the plain password is at hand; CouchDB's `upgrade_hash_on_auth`. */
import { CouchError } from '../core/errors.ts'
import { deriveKey, type HashOptions, PRFS } from '../core/pbkdf2.ts'
import { userDocId } from '../core/user-ids.ts'
import { WorkQueue } from '../core/work-queue.ts'
import { withHash } from '../documents/password-hashing.ts'
import type { Databases } from '../threads/databases.ts'
import { ADMIN_ROLE } from './access.ts'
import type { Account } from './accounts.ts'
import { type PasswordHash, parseHash } from './password.ts'
import { userAccount } from './user-account.ts'
import { textOf } from './users.ts'
import { HOUSE } from './users-feed.ts'

/** Upgrades that may wait; of those beyond, another login will come. */
const MAY_WAIT = 100

export interface HashUpgradesOptions {
  readonly databases: Pick<Databases, 'get' | 'usersDatabase'>
  /** Whether hashes are to be made anew. */
  isOn(): boolean
  /** How new passwords are hashed. */
  hashing(): HashOptions
  /** One has failed, for another reason than that somebody else has written the document. */
  onFault(fault: unknown): void
}

export class HashUpgrades {
  readonly #options: HashUpgradesOptions
  readonly #queue = new WorkQueue(1, MAY_WAIT)
  readonly #names = new Set<string>()

  constructor(options: HashUpgradesOptions) {
    this.#options = options
  }

  /**
   * Looks at an account that somebody has just logged in to, and sees in the background to its hash if that is weak.
   * @param password the right one
   */
  consider(account: Account, password: string): void {
    if (account.stored === null || account.roles.includes(ADMIN_ROLE) || !this.#options.isOn()) return
    const hash = parseHash(account.stored)
    if (hash === null || !isWeak(hash, this.#options.hashing()) || this.#names.has(account.name)) return
    this.#names.add(account.name)
    this.#queue
      .take(() => this.#upgrade(account, hash.salt, password))
      .catch((fault: unknown) => {
        if (!isExpected(fault)) this.#options.onFault(fault)
      })
      .finally(() => this.#names.delete(account.name))
      .catch(() => undefined)
  }

  /** The salt stays, and with it the sessions, whose keys hang on it; so it is in CouchDB. */
  async #upgrade({ name, stored }: Account, salt: string, password: string): Promise<void> {
    const { databases } = this.#options
    const database = databases.get(databases.usersDatabase)
    const { json } = await database.open(HOUSE, userDocId(name), { conflicts: true })
    const text = textOf(json)
    if (userAccount(name, JSON.parse(text))?.stored !== stored) return
    const hashing = this.#options.hashing()
    const key = await deriveKey(password, salt, hashing)
    const bytes = Buffer.from(withHash(text, key, salt, hashing))
    await database.put(HOUSE, userDocId(name), { bytes }, {})
  }
}

/** Whether a hash is easier to break than the one that a new password would get. */
function isWeak({ scheme, prf, iterations }: PasswordHash, wanted: HashOptions): boolean {
  if (scheme !== 'pbkdf2' || iterations < wanted.iterations) return true
  return (PRFS[prf]?.length ?? 0) < (PRFS[wanted.prf]?.length ?? 0)
}

/** Somebody else was first, the account or the whole database is gone, or too much is to be done just now. */
function isExpected(fault: unknown): boolean {
  return fault instanceof CouchError && [404, 409, 503].includes(fault.status)
}
