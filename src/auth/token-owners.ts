import { setTimeout as sleep } from 'node:timers/promises'
import { CouchError } from '../core/errors.ts'
import type { Duty } from '../threads/claims.ts'
import type { Account, Accounts } from './accounts.ts'
import type { StoredTokens } from './stored-tokens.ts'
import { isOfEarlier } from './token-record.ts'

/** Wait after an account could not be read, in ms. */
const RETRY_MS = 10_000
/** Accounts of one step of a pass. */
const PAGE = 100
/** A pass over all accounts takes at most this share of the time. */
const SHARE = 0.1
/** Changed accounts that are looked for at once; of more, all are checked one after the other. */
const MAX_LOOKED_FOR = 100
/** Changed accounts that wait for their check; above that, all accounts are checked. */
const MAX_WAITING = 10_000

export interface OwnerOptions {
  /** Of several nodes, the one with the duty checks all accounts. */
  readonly duty: Pick<Duty, 'isHeld' | 'onChange'>
  readonly accounts: Pick<Accounts, 'find' | 'onChange'>
  onFault(fault: unknown): void
}

/**
 * Revokes the tokens of deleted accounts. Without their account they give no access, but a later account of the same
 * name may belong to somebody else. An account that changes is looked for at once, before it can be made again, by each
 * node that hears of it, and its tokens are not accepted until they are revoked or the account was found. One that was made
 * again before that is known by the generation of its deletion ({@link isOfEarlier}). All
 * accounts with tokens are checked after the start, since an account may have been deleted while no server ran, and when
 * nobody knows what has changed.
 */
export class TokenOwnerCheck {
  readonly #stored: Pick<StoredTokens, 'owners' | 'revokeAll' | 'revokeSome'>
  readonly #options: OwnerOptions
  readonly #onRevoked: (account: string) => void
  readonly #stops: readonly (() => void)[]
  /** Accounts that have changed. */
  readonly #changed = new Set<string>()
  /** Accounts that are being looked for since they have changed; resolved when that is over, never rejected. */
  readonly #looking = new Map<string, Promise<void>>()
  /** Accounts that were deleted, whose tokens are to be revoked although there may be an account of that name again. */
  readonly #deleted = new Set<string>()
  /** The last account that the pass has checked; null: it begins; undefined: there is none to do. */
  #passed: string | null | undefined = null
  /** When the pass may go on, in ms of the monotonic clock, however many accounts change meanwhile. */
  #restsUntil = 0
  /** Passes that were begun. */
  #passes = 1
  readonly #ending = new AbortController()
  readonly #running: Promise<void>
  #wake: () => void = () => undefined

  /** @param onRevoked called with each account whose tokens were revoked */
  constructor(
    stored: Pick<StoredTokens, 'owners' | 'revokeAll' | 'revokeSome'>,
    options: OwnerOptions,
    onRevoked: (account: string) => void,
  ) {
    this.#stored = stored
    this.#options = options
    this.#onRevoked = onRevoked
    this.#stops = [
      options.accounts.onChange((names) => this.#onChange(names)),
      options.duty.onChange(() => this.recheck('all')),
    ]
    this.#running = this.#run()
  }

  /**
   * What a check of the account's tokens has to wait for.
   * @returns null: nothing; otherwise resolved with whether they count
   */
  pending(name: string): Promise<boolean> | null {
    const looking = this.#looking.get(name)
    if (looking !== undefined) return looking.then(() => this.pending(name) ?? true)
    return this.#deleted.has(name) ? Promise.resolve(false) : null
  }

  #onChange(names: ReadonlySet<string> | 'all'): void {
    if (names === 'all' || names.size > MAX_LOOKED_FOR) this.recheck(names)
    else for (const name of names) this.#look(name)
  }

  #look(name: string): void {
    const looking = this.#find(name).finally(() => {
      if (this.#looking.get(name) === looking) this.#looking.delete(name)
    })
    this.#looking.set(name, looking)
  }

  async #find(name: string): Promise<void> {
    try {
      await this.#checkOwner(name)
    } catch {
      this.recheck(new Set([name]))
    }
  }

  /** Checks whether accounts still exist. */
  recheck(names: ReadonlySet<string> | 'all'): void {
    if (names === 'all' || this.#changed.size + names.size > MAX_WAITING) {
      this.#passed = null
      this.#passes += 1
    } else for (const name of names) this.#changed.add(name)
    this.#wake()
  }

  async #run(): Promise<void> {
    const { signal } = this.#ending
    while (!signal.aborted) {
      try {
        if (this.#changed.size > 0) await this.#checkChanged()
        else if (this.#passed !== undefined && this.#options.duty.isHeld)
          await this.#continuePass(this.#passed)
        else await this.#changes()
      } catch (fault) {
        if (signal.aborted) return
        this.#options.onFault(fault)
        await this.#pause(RETRY_MS)
      }
    }
  }

  #changes(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve
    })
  }

  async #checkChanged(): Promise<void> {
    for (const name of this.#changed) {
      if (this.#ending.signal.aborted) return
      // If the account changes meanwhile, it is checked again.
      this.#changed.delete(name)
      try {
        await this.#checkOwner(name)
      } catch (fault) {
        this.#changed.add(name)
        throw fault
      }
    }
  }

  async #continuePass(after: string | null): Promise<void> {
    const rest = this.#restsUntil - performance.now()
    await (rest > 0 ? this.#pause(rest) : this.#checkPage(after))
  }

  async #checkPage(after: string | null): Promise<void> {
    const started = performance.now()
    const pass = this.#passes
    const names = await this.#stored.owners(after, PAGE)
    for (const name of names) {
      if (this.#ending.signal.aborted) return
      await this.#checkOwner(name)
    }
    const ended = performance.now()
    this.#restsUntil = ended + ((ended - started) * (1 - SHARE)) / SHARE
    // A pass that has begun anew meanwhile goes on from its beginning.
    if (this.#passes === pass) this.#passed = names.length < PAGE ? undefined : names.at(-1)
  }

  async #checkOwner(name: string): Promise<void> {
    let account: Account | null
    try {
      account = await this.#options.accounts.find(name)
    } catch (fault) {
      // The account exists, and its devices have access again once the conflict is resolved.
      if (fault instanceof CouchError && fault.code === 'account_conflicts') return
      throw fault
    }
    if (account === null) this.#deleted.add(name)
    const revoked = await this.#revoke(name, account)
    this.#deleted.delete(name)
    if (revoked > 0) this.#onRevoked(name)
  }

  async #revoke(name: string, account: Account | null): Promise<number> {
    if (account === null || this.#deleted.has(name)) return this.#stored.revokeAll(name)
    if (account.deletion === undefined) return 0
    return this.#stored.revokeSome(name, (token) => isOfEarlier(account, token))
  }

  /** Ends early if an account has changed. */
  async #pause(ms: number): Promise<void> {
    const ending = new AbortController()
    this.#wake = () => ending.abort()
    await sleep(ms, undefined, {
      signal: AbortSignal.any([ending.signal, this.#ending.signal]),
      ref: false,
    }).catch(() => undefined)
  }

  /** Stops checking; resolves when the check under way has stopped. */
  async close(): Promise<void> {
    for (const stop of this.#stops) stop()
    this.#ending.abort()
    this.#wake()
    await this.#running
    await Promise.all(this.#looking.values())
  }
}
