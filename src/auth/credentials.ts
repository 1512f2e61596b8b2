import { createHmac, hash, randomBytes, timingSafeEqual } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import type { Config } from '../config/config.ts'
import { atMost } from '../core/cache.ts'
import { Limiter } from '../core/concurrency.ts'
import { CouchError } from '../core/errors.ts'
import { networkOf } from '../core/network.ts'
import type { UserCtx } from '../core/types.ts'
import type { Account, Accounts } from './accounts.ts'
import type { Lockout } from './lockout.ts'
import { verifyPassword } from './password.ts'
import { digestsOf, sessionSecret } from './sessions.ts'

/** Who brings the credentials, as far as it is known; a request is one. */
interface Client {
  /** The client's IP address; looked at only where it matters. */
  readonly address: string
}

export interface CheckerOptions {
  /** How many hashes are computed at once; libuv has four threads, and files need some of them. Default 2. */
  readonly concurrency?: number
  /** How many checks may wait for their turn; of more, the newest of whoever asks most is refused. Default 64. */
  readonly queue?: number
  /** How many verified, and how many refused, pairs are remembered. Default 1000. */
  readonly remembered?: number
  /** How long a refused pair is refused without a computation, in milliseconds. Default 5000. */
  readonly refusedMs?: number
  /** Refuses who has failed too often. Absent: nobody is refused for that. */
  readonly lockout?: Lockout
  /** Told of each password that was found right by a computation, never of one that is remembered. */
  readonly onVerified?: (account: Account, password: string) => void
  /** Replaces the hash function, for tests. */
  readonly verify?: (password: string, stored: string) => Promise<boolean>
}

/**
 * Says who somebody with a name and a password is. Clients send both with every request, and a hash costs about a
 * quarter of a second, so pairs that were verified are remembered: not as they are, but as a MAC, under a secret
 * of this process, of name, password and stored hash. A changed password therefore never meets a remembered pair.
 * Refused pairs are remembered apart and for seconds: they can neither push out verified ones nor keep the right
 * password from being tried.
 */
export class CredentialChecker {
  readonly #accounts: Pick<Accounts, 'find' | 'decoy'>
  readonly #secret = randomBytes(32).toString('hex')
  readonly #verified: LRUCache<string, true>
  readonly #refused: LRUCache<string, true>
  readonly #running = new Map<string, Promise<boolean>>()
  readonly #limiter: Limiter
  readonly #lockout: Lockout | undefined
  readonly #verify: (password: string, stored: string) => Promise<boolean>
  readonly #onVerified: (account: Account, password: string) => void
  #right = 0
  #wrong = 0
  #hashed = 0

  constructor(accounts: Pick<Accounts, 'find' | 'decoy'>, options: CheckerOptions = {}) {
    const { concurrency = 2, queue = 64, remembered = 1000, refusedMs = 5000 } = options
    this.#accounts = accounts
    this.#verified = new LRUCache(atMost(remembered))
    this.#refused = new LRUCache({ ...atMost(remembered), ttl: refusedMs })
    this.#limiter = new Limiter(concurrency, queue)
    this.#lockout = options.lockout
    this.#verify = options.verify ?? verifyPassword
    this.#onVerified = options.onVerified ?? (() => {})
  }

  /**
   * As {@link login}.
   * @returns the user; null when the name or the password is wrong
   */
  async check(name: string, password: string, client: Client | null = null): Promise<UserCtx | null> {
    const account = await this.login(name, password, client)
    return account === null ? null : { name, roles: account.roles }
  }

  /**
   * @param client whose failures are counted, and who is refused after too many; null: a pair that was right once is
   *   looked at again, which is nobody's guess
   * @returns the account as it was when its password was compared; null when the name or the password is wrong, which
   *   takes as long for an unknown name
   * @throws account_locked; forbidden for the right password of an account that is let in nowhere; unavailable when too many checks are waiting already
   */
  async login(name: string, password: string, client: Client | null = null): Promise<Account | null> {
    const watched = client !== null && this.#lockout?.isWatching ? client.address : null
    if (watched !== null) this.#refuseLocked(watched, name)
    const account = await this.#accounts.find(name)
    // An account without a password takes as long, too.
    const stored = account?.stored ?? this.#accounts.decoy()
    const key = this.#keyOf(name, password, stored)
    const known = this.#verified.get(key)
    const right = known ?? (await this.#checkUnknown(key, { name, password, stored, client }))
    if (!right || !account?.stored) {
      this.#wrong += 1
      return null
    }
    this.#right += 1
    if (watched !== null) this.#lockout?.succeeded(watched, name)
    if (known === undefined) this.#onVerified(account, password)
    if (account.refusal !== undefined) throw new CouchError('forbidden', account.refusal)
    return account
  }

  /** The checks so far, by how they ended; those that had to be computed; and those that wait for that. */
  get counts(): { right: number; wrong: number; hashed: number; waiting: number } {
    return { right: this.#right, wrong: this.#wrong, hashed: this.#hashed, waiting: this.#limiter.waiting }
  }

  /** Notes a device token that was refused in the place of a password. */
  refusedToken(name: string, asker: Client): void {
    this.#lockout?.tokenRefused(asker.address, name)
  }

  #refuseLocked(address: string, name: string): void {
    if (this.#lockout?.isLocked(address, name)) throw new CouchError('account_locked')
  }

  /** Of a pair that is not known to be right. */
  #checkUnknown(key: string, attempt: Attempt): Promise<boolean> | false {
    const { name, client: asker } = attempt
    if (asker !== null && this.#lockout?.isAddressLocked(asker.address)) {
      this.#lockout.failed(asker.address, name)
      throw new CouchError('account_locked')
    }
    if (!this.#refused.get(key)) return this.#compute(key, attempt)
    if (asker !== null) this.#lockout?.failed(asker.address, name)
    return false
  }

  /**
   * The secret has a fixed length, and nobody is shown a MAC, so that SHA-256 behind the secret does what HMAC would; but
   * Node makes and collects an object for each HMAC, which took a fifth of the CPU of a GET.
   */
  #keyOf(...parts: string[]): string {
    return hash('sha256', this.#secret + JSON.stringify(parts), 'base64')
  }

  /** Equal checks at the same time share one computation, and are one failure: apps send their first calls together. */
  #compute(key: string, attempt: Attempt): Promise<boolean> {
    const running = this.#running.get(key)
    if (running) return running
    const share = attempt.client === null ? '' : networkOf(attempt.client.address)
    this.#hashed += 1
    const started = this.#limiter
      .run(() => this.#verifyInTurn(attempt), share)
      .then((right) => {
        ;(right ? this.#verified : this.#refused).set(key, true)
        return right
      })
      .finally(() => this.#running.delete(key))
    this.#running.set(key, started)
    return started
  }

  /** Of many guesses that came at once, those behind the one that locked the account are not tried any more. */
  async #verifyInTurn({ name, password, stored, client: asker }: Attempt): Promise<boolean> {
    if (asker !== null) this.#refuseLocked(asker.address, name)
    const right = await this.#verify(password, stored)
    if (!right && asker !== null) this.#lockout?.failed(asker.address, name)
    return right
  }
}

interface Attempt {
  readonly name: string
  readonly password: string
  readonly stored: string
  readonly client: Client | null
}

// A proxy in front that has found out who asks, and says so in headers; protocol.md 11.2.

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
