import { createHash } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import type { Logger } from 'pino'
import type { Config } from '../config/config.ts'
import { atMost } from '../core/cache.ts'
import { networkOf } from '../core/network.ts'

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
  /** Accounts that are counted, and as many addresses; the least recent are forgotten first. */
  readonly maxObjects: number
  /** A monotonic clock in ms; for tests. */
  readonly now?: () => number
}

/** An address that tries many names is locked after the threshold of an account, times this factor. */
const NAMES_PER_ADDRESS = 20
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
    if (!wasLocked) onFailure?.({ address, name, locks })
  }

  /** Counts a refused device token. It is logged up to the threshold and locks nothing, since nobody can guess one. */
  tokenRefused(address: string, name: string): void {
    const { policy, onFailure } = this.#options
    const { threshold, lifetimeMs } = policy()
    const count = add(this.#accounts, `${keyOf(address, name)} token`, threshold, lifetimeMs)
    if (count <= threshold) onFailure?.({ address, name, locks: null })
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

  #isFull(counts: LRUCache<string, number>, key: string, most: number): boolean {
    if (counts.size === 0 || this.#options.policy().mode !== 'enforce') return false
    return (counts.get(key) ?? 0) >= most
  }
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
 * @returns the lockout as it is configured. It logs the client's address and the account of each failed login, but never
 *   the password
 */
export function loginGuard(config: Config, logger: Logger): Lockout {
  return new Lockout({
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
