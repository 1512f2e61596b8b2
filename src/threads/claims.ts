/**
 * Claims: which of several nodes does work that only one should do at a time.
 *
 * A claim is a record with its holder and a time at which it ends. The holder renews it; another node takes it over after
 * it has ended, for example because its holder has died. The holder counts its time with its own monotonic clock and
 * stops early, and the others wait longer, so two nodes hold a claim at once only if their clocks differ by more than
 * 10 s. Nothing checks a claim when the work writes: the work must be harmless if it is done twice.
 */
import { randomBytes } from 'node:crypto'
import { type Clock, systemClock } from '../changes/source.ts'
import { jsonObjectIn } from '../core/json.ts'
import { Listeners } from '../core/listeners.ts'
import { RecordSweep } from '../storage/record-sweep.ts'
import { readRecord, type WatchedRecords } from '../storage/records.ts'

const KIND = 'claim'
/** The time of a claim after each renewal, in ms. */
const TERM_MS = 30_000
const RENEW_MS = 10_000
/** The wait after a renewal that failed, and before another node's claim is looked at again, in ms. */
const RETRY_MS = 2000
/** How long before the end the holder stops, and how long after it others take over, in ms. */
const SKEW_MS = 5000
/** How long after the end of its claim the record of a node that died is removed, in ms. */
const FORGOTTEN_MS = 3_600_000

/** Work that this node may do until `ended` is aborted. */
export interface Claim {
  /** Aborted when the claim was lost or released. */
  readonly ended: AbortSignal
  /** Lets another node take it at once. Idempotent; never rejects. */
  release(): Promise<void>
}

/** Work that one node does all the time. */
export interface Duty {
  /** Whether it is this node. */
  readonly isHeld: boolean
  /** Calls the listener whenever {@link isHeld} has changed, until the returned function is called. */
  onChange(listener: () => void): () => void
}

interface ClaimsOptions {
  /** null: there are no other nodes, so that every claim is free, and none costs a write. */
  readonly records: WatchedRecords | null
  /** Called if a claim cannot be read or written; it is tried again. */
  onFault(fault: unknown): void
  readonly clock?: Clock
  /** The time, in ms since 1970. */
  readonly now?: () => number
}

export class Claims {
  readonly #options: ClaimsOptions
  readonly #clock: Clock
  readonly #now: () => number
  readonly #sweep: RecordSweep | null
  readonly #held = new Map<string, Claim>()
  readonly #duties = new Map<string, HeldDuty>()

  constructor(options: ClaimsOptions) {
    this.#options = options
    this.#clock = options.clock ?? systemClock
    this.#now = options.now ?? Date.now
    const { records, onFault } = options
    const isExpired = (value: string) => (holdingOf(value)?.until ?? 0) + FORGOTTEN_MS < this.#now()
    this.#sweep = records === null ? null : new RecordSweep({ records, kind: KIND, isExpired, onFault })
  }

  /**
   * Takes a claim. It renews itself until it is released or lost.
   * @returns null if it is held already, by this node or another
   * @throws as `readRecords` and `writeRecords`
   */
  async take(name: string): Promise<Claim | null> {
    if (this.#held.has(name)) return null
    const claim = new HeldClaim(name, this.#options, this.#clock, this.#now, () => {
      if (this.#held.get(name) === claim) this.#held.delete(name)
    })
    // Before anything is awaited, so that a second call finds it.
    this.#held.set(name, claim)
    if (await claim.take().catch((error: unknown) => this.#drop(name, error))) {
      this.#sweep?.step()
      return claim
    }
    this.#held.delete(name)
    return null
  }

  #drop(name: string, error: unknown): never {
    this.#held.delete(name)
    throw error
  }

  /** Takes a claim whenever it is free, from now on. Calls with one name share it. */
  duty(name: string): Duty {
    const known = this.#duties.get(name)
    if (known !== undefined) return known
    const duty = new HeldDuty({
      name,
      records: this.#options.records,
      clock: this.#clock,
      take: () => this.take(name),
      onFault: this.#options.onFault,
    })
    this.#duties.set(name, duty)
    return duty
  }

  /** Releases all claims. Call it when the work that they allow has ended, and before the databases are closed. */
  async close(): Promise<void> {
    await Promise.all([...this.#duties.values()].map((duty) => duty.close()))
    await Promise.all([...this.#held.values()].map((claim) => claim.release()))
    await this.#sweep?.close()
  }
}

/** Claims of a process that has its data for itself. */
export function claimsOfOne(): Claims {
  return new Claims({ records: null, onFault: () => {} })
}

/** The value of a claim's record. */
interface Holding {
  /** A text that differs for each claim that was ever taken. */
  readonly holder: string
  /** In ms since 1970. */
  readonly until: number
}

class HeldClaim implements Claim {
  readonly #name: string
  readonly #holder = randomBytes(12).toString('base64url')
  readonly #options: ClaimsOptions
  readonly #clock: Clock
  readonly #now: () => number
  readonly #onEnd: () => void
  readonly #ending = new AbortController()
  /** The record as this node has written it. */
  #value: string | null = null
  #cancelRenewal: () => void = () => {}
  #cancelEnd: () => void = () => {}
  #work: Promise<unknown> = Promise.resolve()

  constructor(name: string, options: ClaimsOptions, clock: Clock, now: () => number, onEnd: () => void) {
    this.#name = name
    this.#options = options
    this.#clock = clock
    this.#now = now
    this.#onEnd = onEnd
  }

  get ended(): AbortSignal {
    return this.#ending.signal
  }

  async take(): Promise<boolean> {
    const { records } = this.#options
    if (records === null) return true
    const before = await readRecord(records, KIND, this.#name)
    const holding = holdingOf(before)
    if (holding !== null && this.#now() <= holding.until + SKEW_MS) return false
    return this.#write(records, before)
  }

  async #write(records: WatchedRecords, expected: string | null): Promise<boolean> {
    const begun = this.#clock.now()
    const holding: Holding = { holder: this.#holder, until: this.#now() + TERM_MS }
    const value = JSON.stringify(holding)
    if (!(await records.writeRecords([{ kind: KIND, key: this.#name, value, expected }]))) return false
    this.#value = value
    if (this.ended.aborted) return true
    this.#cancelEnd()
    const left = begun + TERM_MS - SKEW_MS - this.#clock.now()
    this.#cancelEnd = this.#clock.after(Math.max(0, left), () => this.#end())
    this.#renewAfter(RENEW_MS)
    return true
  }

  #renewAfter(ms: number): void {
    this.#cancelRenewal()
    this.#cancelRenewal = this.#clock.after(ms, () => {
      this.#work = this.#renew()
    })
  }

  /** Never rejects. */
  async #renew(): Promise<void> {
    const { records, onFault } = this.#options
    if (records === null || this.ended.aborted) return
    try {
      // Read again, because a write that failed may have been stored.
      const present = await readRecord(records, KIND, this.#name)
      const isMine = holdingOf(present)?.holder === this.#holder
      if (!this.ended.aborted && !(isMine && (await this.#write(records, present)))) this.#end()
    } catch (fault) {
      onFault(fault)
      if (!this.ended.aborted) this.#renewAfter(RETRY_MS)
    }
  }

  #end(): void {
    this.#cancelRenewal()
    this.#cancelEnd()
    this.#ending.abort()
    this.#onEnd()
  }

  async release(): Promise<void> {
    const isFirst = !this.ended.aborted
    this.#end()
    await this.#work
    const { records, onFault } = this.#options
    if (!isFirst || records === null || this.#value === null) return
    const removal = { kind: KIND, key: this.#name, value: null, expected: this.#value }
    await records.writeRecords([removal]).catch(onFault)
  }
}

/** @returns null if there is none, or none that this version understands */
function holdingOf(value: string | null): Holding | null {
  const { holder, until } = jsonObjectIn(value) ?? {}
  return typeof holder === 'string' && typeof until === 'number' ? { holder, until } : null
}

interface DutyOptions {
  readonly name: string
  readonly records: WatchedRecords | null
  readonly clock: Clock
  take(): Promise<Claim | null>
  onFault(fault: unknown): void
}

class HeldDuty implements Duty {
  readonly #options: DutyOptions
  readonly #listeners = new Listeners<[]>()
  readonly #unwatch: () => void
  #claim: Claim | null = null
  #cancel: () => void = () => {}
  #work: Promise<void> = Promise.resolve()
  #isClosed = false

  constructor(options: DutyOptions) {
    this.#options = options
    const { records, name } = options
    if (records === null) {
      this.#unwatch = () => {}
      return
    }
    // A node that stops releases its claims.
    this.#unwatch = records.watchCatalog((change) => {
      if (change.type === 'records' && change.kind === KIND && change.keys.includes(name)) this.#ask()
    })
    this.#ask()
  }

  get isHeld(): boolean {
    return this.#options.records === null ? !this.#isClosed : this.#claim !== null
  }

  onChange(listener: () => void): () => void {
    return this.#listeners.add(listener)
  }

  #ask(): void {
    if (this.#claim === null && !this.#isClosed) this.#work = this.#work.then(() => this.#take())
  }

  /** Never rejects. */
  async #take(): Promise<void> {
    if (this.#claim !== null || this.#isClosed) return
    const { take, onFault, clock } = this.#options
    this.#cancel()
    try {
      const claim = await take()
      if (claim !== null) {
        this.#hold(claim)
        return
      }
    } catch (fault) {
      onFault(fault)
    }
    if (!this.#isClosed) this.#cancel = clock.after(RETRY_MS, () => this.#ask())
  }

  #hold(claim: Claim): void {
    this.#claim = claim
    claim.ended.addEventListener('abort', () => {
      this.#claim = null
      this.#listeners.tell()
      this.#ask()
    })
    this.#listeners.tell()
  }

  async close(): Promise<void> {
    this.#isClosed = true
    this.#unwatch()
    this.#cancel()
    await this.#work
    await this.#claim?.release()
  }
}
