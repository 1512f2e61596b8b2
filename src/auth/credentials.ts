import { createHash, createHmac, hash, randomBytes, timingSafeEqual } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import type { Logger } from 'pino'
import type { Config } from '../config/config.ts'
import { atMost } from '../core/cache.ts'
import { Limiter } from '../core/concurrency.ts'
import { CouchError } from '../core/errors.ts'
import { networkOf } from '../core/network.ts'
import type { UserCtx } from '../core/types.ts'
import type { Account, Accounts } from './accounts.ts'
import { verifyPassword } from './password.ts'
import { digestsOf, sessionSecret } from './sessions.ts'

/** The client that sent the credentials; a request is one. */
interface Client {
  /** Its IP address; a request computes it only when it is read. */
  readonly address: string
}

export interface CheckerOptions {
  /** Hashes that are computed at once. libuv has four threads, and file access needs some of them. Default 2. */
  readonly concurrency?: number
  /** Checks that may wait. Above that, the client with the most waiting checks loses its newest. Default 64. */
  readonly queue?: number
  /** Verified pairs that are remembered, and as many refused ones. Default 1000. */
  readonly remembered?: number
  /** Time for which a refused pair is refused without a computation, in ms. Default 5000. */
  readonly refusedMs?: number
  /** Refuses clients after too many failures. Absent: no lockout. */
  readonly lockout?: Lockout
  /** Called for each password that a computation verified, but not for remembered ones. */
  readonly onVerified?: (account: Account, password: string) => void
  /** Replaces the hash function, for tests. */
  readonly verify?: (password: string, stored: string) => Promise<boolean>
}

/**
 * Checks names with passwords. Clients send both with every request, and a hash costs about a quarter of a second, so
 * verified pairs are remembered: as a MAC of name, password and stored hash, with a secret of this process. A changed
 * password therefore never matches a remembered pair. Refused pairs are remembered apart for seconds. They cannot push
 * out verified pairs, nor keep the right password from being tried.
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
   * @returns the user; null if the name or the password is wrong
   */
  async check(name: string, password: string, client: Client | null = null): Promise<UserCtx | null> {
    const account = await this.login(name, password, client)
    return account === null ? null : { name, roles: account.roles }
  }

  /**
   * @param client its failures are counted, and it is refused after too many; null: the server checks a pair again that
   *   was right once
   * @returns the account as it was when its password was compared; null if the name or the password is wrong. An unknown
   *   name takes as long
   * @throws account_locked; forbidden for the right password of an account without access; unavailable if too many
   *   checks are waiting
   */
  async login(name: string, password: string, client: Client | null = null): Promise<Account | null> {
    const watched = client !== null && this.#lockout?.isWatching ? client.address : null
    if (watched !== null) this.#refuseLocked(watched, name)
    const account = await this.#accounts.find(name)
    // An account without a password takes as long.
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

  /** Checks so far by result, the number of computed hashes, and the checks that wait for a hash. */
  get counts(): { right: number; wrong: number; hashed: number; waiting: number } {
    return { right: this.#right, wrong: this.#wrong, hashed: this.#hashed, waiting: this.#limiter.waiting }
  }

  /** Whether failures are being counted, so that each attempt must be checked. */
  get isWatching(): boolean {
    return this.#lockout?.isWatching ?? false
  }

  /** Counts a login that was not checked, since its connection repeats one that was. */
  countRepeated(): void {
    this.#right += 1
  }

  /** Counts a device token that was refused in place of a password. */
  refusedToken(name: string, asker: Client): void {
    this.#lockout?.tokenRefused(asker.address, name)
  }

  #refuseLocked(address: string, name: string): void {
    if (this.#lockout?.isLocked(address, name)) throw new CouchError('account_locked')
  }

  /** Checks a pair that is not remembered as right. */
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
   * SHA-256 behind the secret is as good as an HMAC here: the secret has a fixed length, and no MAC is ever shown. Node
   * allocates an object for each HMAC, which took a fifth of the CPU of a GET.
   */
  #keyOf(...parts: string[]): string {
    return hash('sha256', this.#secret + JSON.stringify(parts), 'base64')
  }

  /** Equal checks at the same time share one computation and count as one failure: apps send their first calls at once. */
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

  /** Of many guesses at once, those after the one that locked the account are not tried. */
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

type Headers = Readonly<Record<string, string | string[] | undefined>>

/**
 * Reads the user that a proxy has authenticated and names in headers; protocol.md 11.2.
 * @param headers their names in lower case
 * @param isTrusted whether the peer is a trusted proxy
 * @returns the user that the proxy names; null if it names none or may not name one
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

/** In constant time. Without a secret there are no valid signatures. */
function isSigned(config: Config, name: string, token: string): boolean {
  const secret = sessionSecret(config)
  if (secret === undefined) return false
  const sent = Buffer.from(token.toLowerCase())
  return digestsOf(config.get('chttpd_auth', 'hash_algorithms') ?? '').some((digest) => {
    const expected = Buffer.from(createHmac(digest, secret).update(name).digest('hex'))
    return expected.length === sent.length && timingSafeEqual(expected, sent)
  })
}

/** The limit for failed logins; CouchDB's section `[chttpd_auth_lockout]`. */
export interface LockoutPolicy {
  /** `warn`: failures are counted and logged, but nobody is refused. */
  readonly mode: 'off' | 'warn' | 'enforce'
  /** Failures that lock an account for an address. */
  readonly threshold: number
  /** Time for which failures count and a lock lasts, in ms. */
  readonly lifetimeMs: number
}

/** A login that was refused. */
export interface FailedLogin {
  readonly address: string
  readonly name: string
  /** This failure locked the account, or all accounts, for the address; null: neither. */
  readonly locks: 'account' | 'address' | null
}

interface LockoutOptions {
  policy(): LockoutPolicy
  /** Called for each failure, except while the address is locked. */
  onFailure?(failure: FailedLogin): void
  /** Called for each lock that refuses clients. @param name identifies it in {@link Lockout.lock} */
  onLock?(name: string, ms: number): void
  /** Accounts that are counted, and as many addresses; the least recent are forgotten first. */
  readonly maxObjects: number
  /** A monotonic clock in ms; for tests. */
  readonly now?: () => number
}

/** An address that tries many names is locked after the threshold of an account, times this factor. */
const NAMES_PER_ADDRESS = 20
/** The count of a lock that another node has reached: above every threshold. */
const LOCKED = 2 ** 40
/** Longer names are kept as digests, since a header can hold 64 kB. */
const LONG_NAME = 128

/**
 * Counts failed logins by client address and account, as CouchDB does, and also by address: a client that tries one
 * password on many accounts fails rarely on each. IPv6 addresses count by network, since a client has 2^64 of them.
 */
export class Lockout {
  readonly #options: LockoutOptions
  readonly #accounts: LRUCache<string, number>
  readonly #addresses: LRUCache<string, number>

  constructor(options: LockoutOptions) {
    this.#options = options
    const { maxObjects, now } = options
    const clock = now === undefined ? {} : { perf: { now }, ttlResolution: 0 }
    this.#accounts = new LRUCache({ ...atMost(maxObjects), ttl: 1, noUpdateTTL: true, ...clock })
    this.#addresses = new LRUCache({ ...atMost(maxObjects), ttl: 1, noUpdateTTL: true, ...clock })
  }

  /** @returns false while there are no recent failures, so that nobody needs to compute a client's address */
  get isWatching(): boolean {
    return this.#addresses.size > 0
  }

  /** @returns whether the account is locked for this address now */
  isLocked(address: string, name: string): boolean {
    return this.#isFull(this.#accounts, keyOf(address, name), this.#options.policy().threshold)
  }

  /** @returns whether the address is locked now: then only remembered passwords are accepted */
  isAddressLocked(address: string): boolean {
    const most = this.#options.policy().threshold * NAMES_PER_ADDRESS
    return this.#isFull(this.#addresses, networkOf(address), most)
  }

  /** Counts a failed login. */
  failed(address: string, name: string): void {
    const { policy, onFailure } = this.#options
    const { mode, threshold, lifetimeMs } = policy()
    const wasLocked = this.isAddressLocked(address)
    const locks = mode === 'off' ? null : this.#count(address, name, threshold, lifetimeMs)
    if (locks !== null && mode === 'enforce') this.#tell(locks, address, name, lifetimeMs)
    if (!wasLocked) onFailure?.({ address, name, locks })
  }

  /** Counts a refused device token. It is logged up to the threshold and locks nothing, since nobody can guess one. */
  tokenRefused(address: string, name: string): void {
    const { policy, onFailure } = this.#options
    const { threshold, lifetimeMs } = policy()
    const count = add(this.#accounts, `${keyOf(address, name)} token`, threshold, lifetimeMs)
    if (count <= threshold) onFailure?.({ address, name, locks: null })
  }

  /** Takes a lock that another node has reached. @param ms for which it lasts */
  lock(name: string, ms: number): void {
    const { isOfAccount, key } = lockNamed(name)
    const ttl = Math.min(ms, this.#options.policy().lifetimeMs)
    const network = isOfAccount ? (key.split(' ', 1)[0] ?? '') : key
    if (isOfAccount) this.#accounts.set(key, LOCKED, { ttl, noUpdateTTL: false })
    // With it, failures are being watched.
    const known = this.#addresses.get(network) ?? 0
    this.#addresses.set(network, isOfAccount ? known : LOCKED, { ttl, noUpdateTTL: isOfAccount && known > 0 })
  }

  /** Forgets the failures of an account from this address. */
  succeeded(address: string, name: string): void {
    this.#accounts.delete(keyOf(address, name))
  }

  #count(address: string, name: string, threshold: number, lifetime: number): FailedLogin['locks'] {
    const ofAddress = add(this.#addresses, networkOf(address), threshold * NAMES_PER_ADDRESS, lifetime)
    const ofAccount = add(this.#accounts, keyOf(address, name), threshold, lifetime)
    if (ofAccount === threshold) return 'account'
    return ofAddress === threshold * NAMES_PER_ADDRESS ? 'address' : null
  }

  #tell(locks: 'account' | 'address', address: string, name: string, lifetimeMs: number): void {
    const key = locks === 'account' ? keyOf(address, name) : networkOf(address)
    this.#options.onLock?.(`${locks} ${key}`, lifetimeMs)
  }

  #isFull(counts: LRUCache<string, number>, key: string, most: number): boolean {
    if (counts.size === 0 || this.#options.policy().mode !== 'enforce') return false
    return (counts.get(key) ?? 0) >= most
  }
}

/** Reads the name of a lock. @returns what it locks, and its key among the counts */
function lockNamed(name: string): { readonly isOfAccount: boolean; readonly key: string } {
  const [scope = '', ...rest] = name.split(' ')
  return { isOfAccount: scope === 'account', key: rest.join(' ') }
}

/** The time counts from the first failure of a key; the failure that reaches the limit starts the time of the lock. */
function add(counts: LRUCache<string, number>, key: string, most: number, ttl: number): number {
  const count = (counts.get(key) ?? 0) + 1
  counts.set(key, count, { ttl, noUpdateTTL: count !== most })
  return count
}

function keyOf(address: string, name: string): string {
  const short = name.length <= LONG_NAME ? name : createHash('sha256').update(name).digest('base64')
  return `${networkOf(address)} ${short}`
}

/** @returns the policy as it is configured now; protocol.md 11.3 */
function lockoutPolicy(config: Config): LockoutPolicy {
  return {
    mode: (config.get('chttpd_auth_lockout', 'mode') || 'enforce') as LockoutPolicy['mode'],
    threshold: config.integer('chttpd_auth_lockout', 'threshold'),
    lifetimeMs: config.integer('chttpd_auth_lockout', 'max_lifetime'),
  }
}

/** Characters of a name in the log, since a header can hold 64 kB. */
const MAX_LOGGED = 128

/** The text that a fail2ban filter looks for; docs/operating.md has the filter. */
const FAILED = 'a login failed'

/**
 * @param onLock as in {@link LockoutOptions}
 * @returns the lockout as it is configured. It logs the client's address and the account of each failed login, but never
 *   the password
 */
export function loginGuard(config: Config, logger: Logger, onLock?: LockoutOptions['onLock']): Lockout {
  return new Lockout({
    ...(onLock !== undefined && { onLock }),
    policy: () => lockoutPolicy(config),
    maxObjects: config.integer('chttpd_auth_lockout', 'max_objects'),
    onFailure: ({ address, name, locks }) => {
      const account = name.slice(0, MAX_LOGGED)
      // The address comes first, because the client chooses the rest.
      if (locks === null) logger.warn({ address, account }, FAILED)
      else logger.warn({ address, account, locks }, FAILED)
    },
  })
}
