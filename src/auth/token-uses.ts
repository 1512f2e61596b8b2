import { CouchError } from '../core/errors.ts'
import type { RecordWrite } from '../storage/records.ts'
import type { Accounts } from './accounts.ts'
import { type DevicePosition, DevicePositions } from './device-positions.ts'
import { recordOfToken, type TokenTable } from './token-record.ts'

/** The use of a token is written this often, for all used tokens together. */
const USE_MS = 60_000
/** Records in one write: about 200 kB. */
const MAX_WRITES = 500
/** Characters of the header User-Agent; browsers and Electron name the app behind the first 100. */
const MAX_CLIENT = 200

export interface UseOptions {
  /** Milliseconds since 1970; replaced in tests. */
  readonly now?: () => number
  /** How long uses may wait to be written, in ms. Default 60,000. */
  readonly writeMs?: number
  onFault(fault: unknown): void
}

/**
 * When and from where each token was last used, to the minute, and how far its device has read. A request only sets
 * fields, and a crash loses at most the last minute.
 */
export class TokenUses {
  readonly positions = new DevicePositions()
  readonly #table: TokenTable
  readonly #write: (writes: () => readonly RecordWrite[]) => Promise<void>
  readonly #now: () => number
  readonly #writeMs: number
  readonly #onFault: (fault: unknown) => void
  readonly #unwritten = new Set<string>()
  #timer: NodeJS.Timeout | undefined

  /** @param write calls its argument for the records when it is time to write */
  constructor(
    table: TokenTable,
    write: (writes: () => readonly RecordWrite[]) => Promise<void>,
    { now = Date.now, writeMs = USE_MS, onFault }: UseOptions,
  ) {
    this.#table = table
    this.#write = write
    this.#now = now
    this.#writeMs = writeMs
    this.#onFault = onFault
  }

  note(id: string, client: string | undefined, address: string): void {
    const token = this.#table.get(id)
    const now = this.#now()
    // The clock may have been set back.
    if (token === undefined || Math.abs(now - (token.lastUse?.time ?? 0)) < USE_MS) return
    const lastUse = { time: now, client: (client ?? '').slice(0, MAX_CLIENT), address }
    this.#table.set({ ...token, lastUse })
    this.#writeLater(id)
  }

  /** Notes how far a device has read; nothing for a token that was revoked meanwhile. */
  notePosition(id: string, database: string, token: string): void {
    if (this.#table.get(id) === undefined) return
    const position: DevicePosition = { database, token, time: this.#now() }
    this.positions.note(id, position)
    this.#writeLater(id)
  }

  #writeLater(id: string): void {
    this.#unwritten.add(id)
    this.#timer ??= setTimeout(() => void this.#flush(), this.#writeMs).unref()
  }

  async #flush(): Promise<void> {
    this.#timer = undefined
    try {
      while (this.#unwritten.size > 0) await this.#writeSome()
    } catch (fault) {
      this.#onFault(fault)
    }
  }

  /** Uses that fail are written with the next ones. */
  async #writeSome(): Promise<void> {
    const ids = [...this.#unwritten].slice(0, MAX_WRITES)
    for (const id of ids) this.#unwritten.delete(id)
    try {
      await this.#write(() => ids.flatMap((id) => this.#recordOf(id)))
    } catch (fault) {
      for (const id of ids) this.#unwritten.add(id)
      throw fault
    }
  }

  /** Nothing for a token that was revoked meanwhile. */
  #recordOf(id: string): RecordWrite[] {
    const token = this.#table.get(id)
    return token === undefined ? [] : [recordOfToken(token, this.positions.of(id))]
  }

  async close(): Promise<void> {
    clearTimeout(this.#timer)
    await this.#flush()
  }
}

/** Wait after an account could not be read, in ms. */
const RETRY_MS = 10_000

export interface OwnerOptions {
  readonly accounts: Pick<Accounts, 'find' | 'onChange'>
  onFault(fault: unknown): void
}

/**
 * Revokes the tokens of deleted accounts. Without their account they give no access, but a later account of the same
 * name may belong to somebody else.
 */
export class TokenOwnerCheck {
  readonly #table: TokenTable
  readonly #revokeAll: (account: string) => Promise<void>
  readonly #options: OwnerOptions
  readonly #forget: () => void
  /** Accounts with tokens whose existence must be checked. */
  readonly #unchecked: Set<string>
  #running: Promise<void> | undefined
  #timer: NodeJS.Timeout | undefined
  #isClosed = false

  /** Checks all accounts once, and then those that change. */
  constructor(table: TokenTable, revokeAll: (account: string) => Promise<void>, options: OwnerOptions) {
    this.#table = table
    this.#revokeAll = revokeAll
    this.#options = options
    this.#unchecked = new Set(table.accounts())
    this.#forget = options.accounts.onChange((names) => this.#recheck(names))
    this.#start()
  }

  #recheck(names: ReadonlySet<string> | 'all'): void {
    for (const name of names === 'all' ? this.#table.accounts() : names) {
      if (this.#table.hasAccount(name)) this.#unchecked.add(name)
    }
    this.#start()
  }

  #start(): void {
    if (this.#running !== undefined || this.#isClosed || this.#unchecked.size === 0) return
    clearTimeout(this.#timer)
    this.#running = this.#checkAll().then(
      () => {
        this.#running = undefined
        this.#start()
      },
      (fault: unknown) => {
        this.#running = undefined
        this.#options.onFault(fault)
        if (!this.#isClosed) this.#timer = setTimeout(() => this.#start(), RETRY_MS).unref()
      },
    )
  }

  async #checkAll(): Promise<void> {
    for (const name of this.#unchecked) {
      if (this.#isClosed) return
      // If the account changes meanwhile, it is checked again.
      this.#unchecked.delete(name)
      await this.#checkOwner(name)
    }
  }

  async #checkOwner(name: string): Promise<void> {
    try {
      if ((await this.#options.accounts.find(name)) === null) await this.#revokeAll(name)
    } catch (fault) {
      // The account exists, and its devices have access again once the conflict is resolved.
      if (fault instanceof CouchError && fault.code === 'account_conflicts') return
      this.#unchecked.add(name)
      throw fault
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true
    this.#forget()
    clearTimeout(this.#timer)
    await this.#running
  }
}
