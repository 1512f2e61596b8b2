/**
 * Follows the primary: reads its `_db_updates` once a second, copies the databases that have changed, and compares everything
 * once a minute.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Logger } from 'pino'
import type { Accounts } from '../auth/accounts.ts'
import type { TokenPage } from '../auth/token-copies.ts'
import type { UsedToken } from '../auth/token-record.ts'
import type { Tokens } from '../auth/tokens.ts'
import type { Config } from '../config/config.ts'
import { KeyedMutex, Limiter } from '../core/concurrency.ts'
import { CouchError } from '../core/errors.ts'
import type { BodyFiles } from '../documents/body-files.ts'
import type { SealingKey } from '../replication/documents/sealing-key.ts'
import { PeerError } from '../replication/peer-error.ts'
import type { Position } from '../replication/requests/replication-request.ts'
import type { Databases } from '../threads/databases.ts'
import { Backlog, type Failure } from './backlog.ts'
import { epochOf } from './checkpoint-rule.ts'
import { type CopyOutcome, DatabaseCopies } from './database-copies.ts'
import { type Primary, PrimaryChangedError } from './primary.ts'
import { RemovalGuard } from './removal-guard.ts'
import { applySettings } from './settings-copy.ts'
import type { StandbyRecord, StandbyRecords } from './standby-records.ts'

export interface FollowerOptions {
  readonly primary: Primary
  readonly records: StandbyRecords
  readonly databases: Databases
  readonly config: Config
  readonly tokens: Tokens
  readonly accounts: Accounts
  readonly sealingKey: Pick<SealingKey, 'adopt'>
  /** The room for answers in files. */
  readonly files: BodyFiles
  readonly logger: Logger
  /** Between two reads of the primary's `_db_updates`, in ms. Default 1000. */
  readonly pollMs?: number
  /** Between two comparisons of everything, in ms. Default 60,000. */
  readonly sweepMs?: number
}

export interface FollowerState {
  /** How far it is behind the primary, in ms; null: the initial copy is not complete. */
  readonly lagMs: number | null
  /** Databases that are being copied or wait for it. */
  readonly waiting: number
  /** Why the primary cannot be read now; null: it can. */
  readonly fault: string | null
  readonly failures: readonly Failure[]
}

const POLL_MS = 1000
const SWEEP_MS = 60_000
/** A settee lists a write in `_db_updates` within about a second (threads/database-notes.ts). */
const LISTED_AFTER_MS = 2000
const LONGEST_WAIT_MS = 10_000
/** Databases that are copied at once, and batches of all of them. */
const COPIES = 4
const BATCHES = 8
/** Databases that wait to be copied, beyond which no more updates are read. */
const MAX_WAITING = 2_000_000
/** How often the position is recorded, in ms. */
const RECORD_MS = 30_000
/** A worker looks for databases that failed this often, in ms. */
const IDLE_MS = 1000

export class Follower {
  readonly #options: FollowerOptions
  readonly #copies: DatabaseCopies
  readonly #backlog = new Backlog()
  readonly #abort = new AbortController()
  /** Databases whose next copy is a full one. */
  readonly #full = new Set<string>()
  /** Databases that had something new: once nothing is, the last token can be remembered exactly. */
  readonly #settling = new Set<string>()
  readonly #removals = new RemovalGuard()
  readonly #removing = new KeyedMutex()
  /** Accounts were copied, which may have tokens. */
  #areAccountsNew = false
  /** Databases that the primary has deleted, as far as its feed says. */
  readonly #deleted = new Set<string>()
  /** Everything that the primary had acknowledged by then is copied or in the backlog; ms of `performance.now()`. */
  #listedAt: number
  #updatesSeq: Position | null
  #fault: string | null = null
  #recordedAt = performance.now()
  /** Workers without work. */
  readonly #idlers = new Set<() => void>()
  #running: Promise<void> | null = null

  constructor(options: FollowerOptions, record: StandbyRecord) {
    const { databases, primary, records, config, files, logger } = options
    this.#options = options
    const batches = new Limiter(BATCHES, Number.POSITIVE_INFINITY)
    this.#copies = new DatabaseCopies({
      databases,
      primary,
      records,
      config,
      files,
      logger,
      inTurn: (database, batch) => batches.run(batch, database),
    })
    this.#updatesSeq = record.updatesSeq
    const { syncedAt } = record
    this.#listedAt =
      syncedAt === null ? Number.NEGATIVE_INFINITY : performance.now() - Math.max(0, Date.now() - syncedAt)
  }

  /** Begins to follow. @param onHalt called once if the primary is not what it was; following has ended then */
  start(onHalt: (reason: string) => void): void {
    this.#running = this.#run().catch((error: unknown) => {
      if (error instanceof PrimaryChangedError) onHalt(error.message)
      else if (!this.#abort.signal.aborted) this.#options.logger.error({ err: error }, 'following ended')
    })
  }

  /** Stops; resolves when nothing is written any more. Idempotent. */
  async close(): Promise<void> {
    this.#abort.abort(new Error('following has ended'))
    this.#wake()
    await this.#running
    await this.#record(true).catch(() => undefined)
  }

  /** Soon copies again what is damaged in a database. */
  restore(database: string): void {
    this.#copies.compareNext(database)
    this.#mark(database, null)
  }

  get state(): FollowerState {
    const at = this.#backlog.oldest ?? this.#listedAt
    const lagMs = performance.now() - at
    return {
      lagMs: Number.isFinite(lagMs) ? Math.round(lagMs) : null,
      waiting: this.#backlog.size,
      fault: this.#fault,
      failures: this.#backlog.failures(),
    }
  }

  get #signal(): AbortSignal {
    return this.#abort.signal
  }

  async #run(): Promise<void> {
    try {
      await this.#persistently(() => this.#begin())
      const workers = Array.from({ length: COPIES }, () => this.#work())
      await Promise.all([this.#poll(), this.#sweepRegularly(), ...workers])
    } finally {
      this.#abort.abort(new Error('following has ended'))
      this.#wake()
    }
  }

  /** Everything is compared, from the position that was recorded or from now. */
  async #begin(): Promise<void> {
    const since = this.#listedAt
    this.#updatesSeq ??= await this.#options.primary.updatesEnd(this.#signal)
    await this.#sweep(since)
  }

  async #poll(): Promise<void> {
    const { pollMs = POLL_MS } = this.#options
    for (;;) {
      await sleep(pollMs, undefined, { signal: this.#signal })
      await this.#persistently(() => this.#readUpdates())
      await this.#record(false)
    }
  }

  async #readUpdates(): Promise<void> {
    const { primary } = this.#options
    const asked = performance.now()
    const before = epochOf(this.#updatesSeq)
    const wasDown = this.#fault !== null
    // What is not read now is read by a later poll.
    while (this.#backlog.size < MAX_WAITING) {
      const page = await primary.server.updates(this.#updatesSeq, {
        waits: false,
        signal: this.#signal,
      })
      if (page === null) throw new PeerError('invalid_answer', 'the primary has no _db_updates')
      for (const { database, type, seq } of page.updates) {
        primary.requireName(database)
        // A feed that begins again, since the primary was restored, has deletions from before.
        if (type === 'deleted' && epochOf(seq) === before) this.#deleted.add(database)
        this.#mark(database, this.#listedAt)
      }
      this.#updatesSeq = page.lastSeq
      if (page.updates.length === 0) break
    }
    // A primary that has crashed may not list its last writes (architecture.md, "The path of a feed").
    if (wasDown || epochOf(this.#updatesSeq) !== before) await this.#sweep(this.#listedAt)
    if (this.#areAccountsNew) {
      await this.#copyTokens()
      this.#areAccountsNew = false
    }
    for (const database of this.#settling) this.#mark(database, null)
    this.#settling.clear()
    this.#listedAt = asked - LISTED_AFTER_MS
  }

  #mark(database: string, since: number | null): void {
    this.#backlog.mark(database, since)
    this.#wake()
  }

  async #sweepRegularly(): Promise<void> {
    const { sweepMs = SWEEP_MS } = this.#options
    for (;;) {
      await sleep(sweepMs, undefined, { signal: this.#signal })
      await this.#persistently(() => this.#sweep(null))
    }
  }

  /** Copies what belongs to no database, and marks all databases for a full copy. */
  async #sweep(since: number | null): Promise<void> {
    const { primary, records } = this.#options
    await this.#requireIdentity()
    // Limits come before the documents that they allow.
    const damaged = await this.#copyServer()
    const names = await primary.databaseNames(this.#signal)
    for (const name of names) {
      this.#full.add(name)
      this.#mark(name, records.databases().has(name) ? since : this.#listedAt)
    }
    await this.#removeMissing(names)
    for (const [name, ids] of damaged) await this.#sendBack(name, ids)
  }

  /** Sends documents back to the primary, whose disk has damaged them. */
  async #sendBack(name: string, ids: readonly string[]): Promise<void> {
    const { records, logger } = this.#options
    if (!records.databases().has(name)) return
    try {
      const sent = await this.#copies.sendBack(name, ids, this.#signal)
      if (sent > 0)
        logger.warn({ database: name, documents: sent }, 'the primary got back what its disk had damaged')
    } catch (error) {
      if (this.#signal.aborted) throw error
      logger.warn(
        { database: name, reason: reasonOf(error) },
        'what is damaged on the primary could not be sent back',
      )
    }
  }

  /** @throws PrimaryChangedError */
  async #requireIdentity(): Promise<void> {
    const { primary, records } = this.#options
    const uuid = await primary.uuid(this.#signal)
    if (uuid === records.current?.uuid) return
    throw new PrimaryChangedError(`${primary.address} is another server than before: its uuid is ${uuid}`)
  }

  /**
   * Removes the copies of databases that the primary no longer has.
   * @param names of all databases of the primary
   * @throws PrimaryChangedError if most of them are gone
   */
  #removeMissing(names: ReadonlySet<string>): Promise<void> {
    return this.#removing.run('', () => this.#removeAllBut(names))
  }

  async #removeAllBut(names: ReadonlySet<string>): Promise<void> {
    const { databases, records } = this.#options
    const followed = [...records.databases().keys()].filter((name) => name !== databases.usersDatabase)
    const missing = followed.filter((name) => !names.has(name))
    this.#requireFew(missing.length, followed.length)
    for (const name of missing) {
      this.#signal.throwIfAborted()
      this.#backlog.forget(name)
      await this.#setAside(name)
    }
  }

  /** @throws PrimaryChangedError if the primary has lost more than an operator would delete */
  #requireFew(missing: number, followed: number): void {
    const refusal = this.#removals.refusal(missing, followed, performance.now())
    if (refusal !== null && !this.#options.records.current?.acceptsOthers)
      throw new PrimaryChangedError(refusal)
  }

  async #setAside(name: string): Promise<void> {
    await this.#copies.setAside(name)
    this.#deleted.delete(name)
    this.#removals.note(performance.now())
  }

  /** Settings and device tokens. @returns the documents that the primary has damaged */
  async #copyServer(): Promise<ReadonlyMap<string, readonly string[]>> {
    const { primary, records, config, sealingKey, logger } = this.#options
    const found = await primary.settings(this.#signal)
    const before = records.current?.settings ?? []
    const { keys, refused } = await applySettings(config, found.settings, before)
    if (refused.length > 0) logger.warn({ refused }, 'the standby could not take settings of its primary')
    await records.note({ settings: keys })
    if (found.sealingKey !== null) await sealingKey.adopt(found.sealingKey)
    await this.#copyTokens()
    return found.damaged
  }

  async #copyTokens(): Promise<void> {
    await this.#options.tokens.replaceAll(this.#knownTokens())
  }

  /** A token without its account would be revoked; the account may arrive later. */
  async *#knownTokens(): AsyncGenerator<TokenPage> {
    const { primary, accounts } = this.#options
    for await (const { tokens, last } of primary.tokens(this.#signal)) {
      const known: UsedToken[] = []
      for (const token of tokens) {
        const account = await accounts.find(token.account).catch(() => null)
        if (account !== null) known.push(token)
      }
      this.#signal.throwIfAborted()
      yield { tokens: known, last }
    }
  }

  async #work(): Promise<void> {
    for (;;) {
      this.#signal.throwIfAborted()
      const name = this.#backlog.take(performance.now())
      if (name === null) await this.#idle()
      else await this.#copy(name)
    }
  }

  /** Waits for a database that is due. */
  async #idle(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    const timer = setTimeout(resolve, IDLE_MS)
    this.#idlers.add(resolve)
    await promise
    this.#idlers.delete(resolve)
    clearTimeout(timer)
  }

  #wake(): void {
    for (const wake of this.#idlers) wake()
  }

  /** @throws PrimaryChangedError */
  async #copy(name: string): Promise<void> {
    const isFull = this.#full.delete(name)
    try {
      const outcome = await this.#copyOrReplace(name, isFull)
      this.#backlog.done(name)
      if (outcome === 'gone' && this.#options.records.databases().has(name)) await this.#look()
      this.#deleted.delete(name)
      if (outcome !== 'changed') return
      this.#settling.add(name)
      this.#areAccountsNew ||= name === this.#options.databases.usersDatabase
    } catch (error) {
      if (isFull) this.#full.add(name)
      if (error instanceof PrimaryChangedError || this.#signal.aborted) throw error
      const reason = reasonOf(error)
      if (!this.#backlog.fail(name, performance.now(), reason)) return
      this.#options.logger.warn(
        { database: name, reason },
        'a database could not be copied, and is tried again',
      )
    }
  }

  /** If the primary has deleted the database and made another one, or an operator has accepted it, the copy is replaced. */
  async #copyOrReplace(name: string, isFull: boolean): Promise<CopyOutcome> {
    try {
      return await this.#copies.copy(name, isFull, this.#signal)
    } catch (error) {
      const mayReplace = this.#deleted.has(name) || this.#options.records.current?.acceptsOthers === true
      if (!(error instanceof PrimaryChangedError && mayReplace)) throw error
      await this.#requireIdentity()
      this.#requireFew(1, this.#options.records.databases().size)
      await this.#setAside(name)
      return this.#copies.copy(name, true, this.#signal)
    }
  }

  /** A database was not found: looks which ones are missing. */
  async #look(): Promise<void> {
    await this.#requireIdentity()
    const names = await this.#options.primary.databaseNames(this.#signal)
    await this.#removeMissing(names)
  }

  /** Records how far the copy has come, so that a restart neither looks nor starts later than it must. */
  async #record(isLast: boolean): Promise<void> {
    const { records } = this.#options
    const isIdle = this.#backlog.size === 0
    if (isIdle && records.current?.acceptsOthers) await records.note({ acceptsOthers: false })
    if (!isLast && performance.now() - this.#recordedAt < RECORD_MS) return
    this.#recordedAt = performance.now()
    const { lagMs } = this.state
    if (lagMs === null) return
    const syncedAt = Date.now() - lagMs
    const isComplete = this.#backlog.oldest === null && this.#updatesSeq !== null
    await records.note({ syncedAt, ...(isComplete && { updatesSeq: this.#updatesSeq }) })
  }

  /** Repeats a step until it succeeds. @throws PrimaryChangedError; what the signal is aborted with */
  async #persistently(step: () => Promise<void>): Promise<void> {
    for (let wait = POLL_MS; ; wait = Math.min(wait * 2, LONGEST_WAIT_MS)) {
      try {
        await step()
        this.#fault = null
        return
      } catch (error) {
        this.#signal.throwIfAborted()
        if (error instanceof PrimaryChangedError) throw error
        const reason = reasonOf(error)
        if (reason !== this.#fault) this.#options.logger.warn({ reason }, 'the primary cannot be read')
        this.#fault = reason
        await sleep(wait, undefined, { signal: this.#signal })
      }
    }
  }
}

function reasonOf(error: unknown): string {
  if (error instanceof PeerError || error instanceof CouchError) return error.message
  return `internal error: ${(error as Error).message}`
}
