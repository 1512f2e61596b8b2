import { decodeSendable } from '../core/bytes.ts'
import { Limiter } from '../core/concurrency.ts'
import { CouchError } from '../core/errors.ts'
import { userDocId } from '../core/ids.ts'
import { SYSTEM_USER } from '../core/types.ts'
import { deriveKey, type HashOptions, PRFS, withHash } from '../documents/password-hashing.ts'
import type { Databases } from '../threads/databases.ts'
import { type Account, ADMIN_ROLE, userAccount } from './accounts.ts'
import { type PasswordHash, parseHash } from './password.ts'

/** Upgrades that may wait; others follow with another login. */
const MAY_WAIT = 100

interface HashUpgradesOptions {
  readonly databases: Pick<Databases, 'get' | 'usersDatabase'>
  /** Whether weak hashes are replaced. */
  isOn(): boolean
  /** How new passwords are hashed. */
  hashing(): HashOptions
  /** An upgrade failed, but not because of another write to the document. */
  onFault(fault: unknown): void
}

/** Replaces weak hashes of users after a login, when the password is known: CouchDB's `upgrade_hash_on_auth`. */
export class HashUpgrades {
  readonly #options: HashUpgradesOptions
  readonly #limiter = new Limiter(1, MAY_WAIT)
  readonly #names = new Set<string>()

  constructor(options: HashUpgradesOptions) {
    this.#options = options
  }

  /**
   * Replaces the hash of an account in the background if it is weak. Call it after a login.
   * @param password the right one
   */
  consider(account: Account, password: string): void {
    if (account.stored === null || account.roles.includes(ADMIN_ROLE) || !this.#options.isOn()) return
    const hash = parseHash(account.stored)
    if (hash === null || !isWeak(hash, this.#options.hashing()) || this.#names.has(account.name)) return
    this.#names.add(account.name)
    this.#limiter
      .run(() => this.#upgrade(account, hash.salt, password))
      .catch((fault: unknown) => {
        if (!isExpected(fault)) this.#options.onFault(fault)
      })
      .finally(() => this.#names.delete(account.name))
      .catch(() => undefined)
  }

  /** The salt stays, as in CouchDB, since the keys of sessions depend on it. */
  async #upgrade({ name, stored }: Account, salt: string, password: string): Promise<void> {
    const { databases } = this.#options
    const database = await databases.get(databases.usersDatabase)
    const { json } = await database.open(SYSTEM_USER, userDocId(name), { conflicts: true })
    const text = decodeSendable(json)
    if (userAccount(name, JSON.parse(text))?.stored !== stored) return
    const hashing = this.#options.hashing()
    const key = await deriveKey(password, salt, hashing)
    const bytes = Buffer.from(withHash(text, key, salt, hashing))
    await database.put(SYSTEM_USER, userDocId(name), { bytes }, {})
  }
}

/** Whether a hash is weaker than that of a new password would be. */
function isWeak({ scheme, prf, iterations }: PasswordHash, wanted: HashOptions): boolean {
  if (scheme !== 'pbkdf2' || iterations < wanted.iterations) return true
  return (PRFS[prf]?.length ?? 0) < (PRFS[wanted.prf]?.length ?? 0)
}

/** Another write came first, the account or database is gone, or too many upgrades wait. */
function isExpected(fault: unknown): boolean {
  return fault instanceof CouchError && [404, 409, 503].includes(fault.status)
}
