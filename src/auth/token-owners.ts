import { CouchError } from '../core/errors.ts'
import type { Accounts } from './accounts.ts'
import type { TokenTable } from './token-table.ts'

/** After an account could not be asked for, in milliseconds. */
const RETRY_MS = 10_000

export interface OwnerOptions {
  readonly accounts: Pick<Accounts, 'find' | 'onChange'>
  onFault(fault: unknown): void
}

/**
 * Takes the tokens of accounts that are gone. While an account is missing its tokens let nobody in anyway; but a later
 * account of the same name is somebody else's.
 */
export class OwnerWatch {
  readonly #table: TokenTable
  readonly #revokeAll: (account: string) => Promise<void>
  readonly #options: OwnerOptions
  readonly #forget: () => void
  /** Accounts with tokens that are to be looked at. */
  readonly #doubted: Set<string>
  #looking: Promise<void> | undefined
  #timer: NodeJS.Timeout | undefined
  #isClosed = false

  /** Looks at all of them once, and then at those that change. */
  constructor(table: TokenTable, revokeAll: (account: string) => Promise<void>, options: OwnerOptions) {
    this.#table = table
    this.#revokeAll = revokeAll
    this.#options = options
    this.#doubted = new Set(table.accounts())
    this.#forget = options.accounts.onChange((names) => this.#doubt(names))
    this.#look()
  }

  #doubt(names: ReadonlySet<string> | 'all'): void {
    for (const name of names === 'all' ? this.#table.accounts() : names) {
      if (this.#table.hasAccount(name)) this.#doubted.add(name)
    }
    this.#look()
  }

  #look(): void {
    if (this.#looking !== undefined || this.#isClosed || this.#doubted.size === 0) return
    clearTimeout(this.#timer)
    this.#looking = this.#lookAtAll().then(
      () => {
        this.#looking = undefined
        this.#look()
      },
      (fault: unknown) => {
        this.#looking = undefined
        this.#options.onFault(fault)
        if (!this.#isClosed) this.#timer = setTimeout(() => this.#look(), RETRY_MS).unref()
      },
    )
  }

  async #lookAtAll(): Promise<void> {
    for (const name of this.#doubted) {
      if (this.#isClosed) return
      // What changes while the answer is on its way is looked at again.
      this.#doubted.delete(name)
      await this.#lookAt(name)
    }
  }

  async #lookAt(name: string): Promise<void> {
    try {
      if ((await this.#options.accounts.find(name)) === null) await this.#revokeAll(name)
    } catch (fault) {
      // The account is there, and its devices are to get in again once its conflict is resolved.
      if (fault instanceof CouchError && fault.code === 'account_conflicts') return
      this.#doubted.add(name)
      throw fault
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true
    this.#forget()
    clearTimeout(this.#timer)
    await this.#looking
  }
}
