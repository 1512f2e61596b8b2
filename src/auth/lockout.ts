import { createHash } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import type { Logger } from 'pino'
import type { Config } from '../config/config.ts'
import { atMost } from '../core/cache.ts'
import { networkOf } from '../core/network.ts'

/** How often a login may fail, and what then; CouchDB's section `[chttpd_auth_lockout]`. */
export interface LockoutPolicy {
  /** `warn`: counted and told of, and nobody refused. */
  readonly mode: 'off' | 'warn' | 'enforce'
  /** Failures that lock an account for an address. */
  readonly threshold: number
  /** How long failures are counted, and how long a lock lasts, in milliseconds. */
  readonly lifetimeMs: number
}

/** A login that was refused. */
export interface FailedLogin {
  readonly address: string
  readonly name: string
  /** This one brought the lock on: of the account, or of every account for the address. */
  readonly locks: 'account' | 'address' | null
}

interface LockoutOptions {
  policy(): LockoutPolicy
  /** Told of each failure but those in a lock. */
  onFailure?(failure: FailedLogin): void
  /** How many accounts, and how many addresses, are counted; the least recently failed are forgotten first. */
  readonly maxObjects: number
  /** Milliseconds, of a clock that never goes back; for tests. */
  readonly now?: () => number
}

/** An address that tries names instead of passwords is locked after so many times an account's failures. */
const NAMES_PER_ADDRESS = 20
/** Of a longer name its digest is kept: a header may hold 64 kB of it. */
const LONG_NAME = 128

/**
 * Counts failed logins by (client address, account), as CouchDB does, and beside that by address alone: who tries one
 * password on many accounts never fails often with any. An IPv6 address stands for its network, since a client has
 * 2^64 of them.
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

  /** @returns false while nobody has failed of late: then there is no need to ask for anybody's address */
  get isWatching(): boolean {
    return this.#addresses.size > 0
  }

  /** @returns whether no password opens the account from this address now */
  isLocked(address: string, name: string): boolean {
    return this.#isFull(this.#accounts, keyOf(address, name), this.#options.policy().threshold)
  }

  /** @returns whether no password that is not known to be right already is tried from this address now */
  isAddressLocked(address: string): boolean {
    const most = this.#options.policy().threshold * NAMES_PER_ADDRESS
    return this.#isFull(this.#addresses, networkOf(address), most)
  }

  /** Notes a failed login. */
  failed(address: string, name: string): void {
    const { policy, onFailure } = this.#options
    const { mode, threshold, lifetimeMs } = policy()
    const wasLocked = this.isAddressLocked(address)
    const locks = mode === 'off' ? null : this.#count(address, name, threshold, lifetimeMs)
    if (!wasLocked) onFailure?.({ address, name, locks })
  }

  /** Notes a device token that was refused: told of so often, and locking nothing, since nobody guesses one. */
  tokenRefused(address: string, name: string): void {
    const { policy, onFailure } = this.#options
    const { threshold, lifetimeMs } = policy()
    const count = add(this.#accounts, `${keyOf(address, name)} token`, threshold, lifetimeMs)
    if (count <= threshold) onFailure?.({ address, name, locks: null })
  }

  /** Notes that the account was opened: its failures from this address are forgotten. */
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

/** The failures of one key are counted from its first; the one that makes it full begins the time of the lock. */
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

/** Names in the log are cut: a header may hold 64 kB of one. */
const MAX_LOGGED = 128

/** What the line says that a filter of fail2ban looks for; docs/operating.md has the filter. */
const FAILED = 'a login failed'

/**
 * @returns the lockout as it is configured, which writes a line to the log for each login that fails: the client's
 * address and the account, never the password
 */
export function loginGuard(config: Config, logger: Logger): Lockout {
  return new Lockout({
    policy: () => lockoutPolicy(config),
    maxObjects: config.integer('chttpd_auth_lockout', 'max_objects'),
    onFailure: ({ address, name, locks }) => {
      const account = name.slice(0, MAX_LOGGED)
      // The address first: what stands behind it is the client's to choose.
      if (locks === null) logger.warn({ address, account }, FAILED)
      else logger.warn({ address, account, locks }, FAILED)
    },
  })
}
