import { createHmac, randomBytes } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import { CouchError } from '../core/errors.ts'
import type { UserCtx } from '../core/types.ts'
import type { Accounts } from './accounts.ts'
import { verifyPassword } from './password.ts'

export interface CheckerOptions {
  /** How many hashes are computed at once; libuv has four threads, and files need some of them. Default 2. */
  readonly concurrency?: number
  /** How many checks may wait for their turn; one more is refused. Default 64. */
  readonly queue?: number
  /** How many verified, and how many refused, pairs are remembered. Default 1000. */
  readonly remembered?: number
  /** How long a refused pair is refused without a computation, in milliseconds. Default 5000. */
  readonly refusedMs?: number
  /** Replaces the hash function, for tests. */
  readonly verify?: (password: string, stored: string) => Promise<boolean>
}

/**
 * Says who somebody with a name and a password is. Clients send both with every request, and a hash costs about a
 * quarter of a second, so pairs that were verified are remembered: not as they are, but as an HMAC, under a secret
 * of this process, of name, password and stored hash. A changed password therefore never meets a remembered pair.
 * Refused pairs are remembered apart and for seconds: they can neither push out verified ones nor keep the right
 * password from being tried.
 */
export class CredentialChecker {
  readonly #accounts: Pick<Accounts, 'find' | 'decoy'>
  readonly #secret = randomBytes(32)
  readonly #verified: LRUCache<string, true>
  readonly #refused: LRUCache<string, true>
  readonly #running = new Map<string, Promise<boolean>>()
  readonly #turns: Turns
  readonly #verify: (password: string, stored: string) => Promise<boolean>

  constructor(accounts: Pick<Accounts, 'find' | 'decoy'>, options: CheckerOptions = {}) {
    const { concurrency = 2, queue = 64, remembered = 1000, refusedMs = 5000 } = options
    this.#accounts = accounts
    this.#verified = new LRUCache({ max: remembered })
    this.#refused = new LRUCache({ max: remembered, ttl: refusedMs })
    this.#turns = new Turns(concurrency, queue)
    this.#verify = options.verify ?? verifyPassword
  }

  /**
   * @returns the user; null when the name or the password is wrong, which takes as long for an unknown name
   * @throws forbidden for the right password of an account that is let in nowhere; unavailable when too many checks are waiting already
   */
  async check(name: string, password: string): Promise<UserCtx | null> {
    const account = await this.#accounts.find(name)
    // An account without a password takes as long, too.
    const stored = account?.stored ?? this.#accounts.decoy()
    const key = this.#keyOf(name, password, stored)
    const right = this.#remembered(key) ?? (await this.#compute(key, password, stored))
    if (!right || !account?.stored) return null
    if (account.refusal !== undefined) throw new CouchError('forbidden', account.refusal)
    return { name, roles: account.roles }
  }

  #keyOf(...parts: string[]): string {
    return createHmac('sha256', this.#secret).update(JSON.stringify(parts)).digest('base64')
  }

  #remembered(key: string): boolean | undefined {
    if (this.#verified.get(key)) return true
    return this.#refused.get(key) ? false : undefined
  }

  /** Equal checks at the same time share one computation. */
  #compute(key: string, password: string, stored: string): Promise<boolean> {
    const running = this.#running.get(key)
    if (running) return running
    const started = this.#turns
      .take(() => this.#verify(password, stored))
      .then((right) => {
        ;(right ? this.#verified : this.#refused).set(key, true)
        return right
      })
      .finally(() => this.#running.delete(key))
    this.#running.set(key, started)
    return started
  }
}

/** Runs so many pieces of work at once, lets so many wait in order, and refuses the rest. */
class Turns {
  readonly #queue: (() => void)[] = []
  readonly #atOnce: number
  readonly #mayWait: number
  #busy = 0

  constructor(atOnce: number, mayWait: number) {
    this.#atOnce = atOnce
    this.#mayWait = mayWait
  }

  async take<T>(work: () => Promise<T>): Promise<T> {
    if (this.#busy < this.#atOnce) this.#busy += 1
    else await this.#wait()
    try {
      return await work()
    } finally {
      // The turn is handed on, so that nobody who comes in between can take it.
      const next = this.#queue.shift()
      if (next) next()
      else this.#busy -= 1
    }
  }

  #wait(): Promise<void> {
    if (this.#queue.length >= this.#mayWait) throw new CouchError('unavailable')
    return new Promise((resolve) => this.#queue.push(resolve))
  }
}
