/**
 * The scrub: reads everything that is stored, a database after the other, on a thread of its own, and remembers what is
 * damaged. A pass over all databases is due once in `settee/scrub_interval`; a check on request goes before it.
 */
import { setTimeout as delay } from 'node:timers/promises'
import type { Logger } from 'pino'
import type { Config } from '../config/config.ts'
import { asCouchError, CouchError, isFileFault } from '../core/errors.ts'
import { Schedule, type ScheduleFacts, type WallClock, wallClock } from '../core/schedule.ts'
import { SYSTEM_USER } from '../core/types.ts'
import type { PartOutcome, Repairs } from '../healing/repairs.ts'
import { type Damage, type DamagedPart, FoundDamage } from '../storage/damage.ts'
import type { CheckStep } from '../storage/storage-engine.ts'
import type { Claim, Claims, Duty } from '../threads/claims.ts'
import { type Checker, DamagedCopy } from '../threads/copies.ts'
import type { Databases } from '../threads/databases.ts'
import { DamageRecords, type RememberedDamage } from './damage-records.ts'
import { readPart } from './part-reader.ts'
import { noteServerFault, type OpenPass, type PassTimes, readPass, writePass } from './scrub-pass.ts'

const HOUR_MS = 3_600_000
/** How often the progress of a pass is stored, in ms. */
const SAVE_MS = 10_000
/** The claim of the node that makes a pass. */
const CLAIM = 'scrub'
/** Pause of a pass between two databases, in ms. */
const PAUSE_MS = 100
/** How often a database that is replaced while it is checked is begun again, and the wait before that, in ms. */
const MAX_TRIES = 5
/** How often a database is checked again after a repair: a check names no more than `MAX_NAMED_PARTS`. */
const MAX_ROUNDS = 20
/** How many repaired parts an outcome names. */
const MAX_REPAIRED = 1000
const REPLACED_MS = 200

interface ScrubOptions {
  readonly config: Config
  readonly databases: Pick<
    Databases,
    | 'checks'
    | 'allNames'
    | 'count'
    | 'has'
    | 'get'
    | 'readRecords'
    | 'listRecords'
    | 'writeRecords'
    | 'noteWhole'
    | 'watchCatalog'
  >
  /** Finds good copies of what is damaged. Absent: there are none. */
  readonly repairs?: Pick<Repairs, 'run'>
  readonly claims: Pick<Claims, 'take'>
  readonly logger: Pick<Logger, 'info' | 'warn' | 'error'>
  /** For tests. */
  readonly clock?: WallClock
}

export interface ScrubProgress {
  /** The database that is being read; null: none yet. */
  readonly database: string | null
  readonly databases_done: number
  readonly databases_total: number
  /** Of all of them, 0 to 100. */
  readonly percent: number
}

/** The progress of the check under way, for `_active_tasks`; times in ms since 1970. */
export interface ScrubTask extends ScrubProgress {
  readonly startedAt: number
  readonly updatedAt: number
}

export interface ScrubState {
  /** ms between two passes; 0: none are scheduled. */
  readonly interval: number
  /** The last pass that has read everything. */
  readonly last: PassTimes | null
  readonly task: ScrubTask | null
  /** Why the last pass could not go on; null: it could. */
  readonly failure: string | null
  /** Databases that were checked since the process started. */
  readonly checked: number
  /** The first damaged databases. */
  readonly damaged: readonly RememberedDamage[]
  /** What the last pass of this process has found damaged in the server's own data. */
  readonly server: string | null
  /** When the process started, in ms since 1970. */
  readonly startedAt: number
  readonly now: number
}

/** A part that was stored again. */
export interface RepairedPart {
  readonly database: string
  readonly part: DamagedPart
  /** Where the good copy was, for people. */
  readonly copy: string
}

/** How a check on request is made. */
export interface CheckRequest {
  /** null: all databases, which counts as a pass. */
  readonly names: readonly string[] | null
  /** Whether what has a good copy is stored again at once. */
  readonly repairs?: boolean
}

/** What a check on request has found. */
export interface CheckOutcome {
  /** How many databases were read. */
  readonly checked: number
  /** The damaged ones among the databases that were asked for, without what was repaired. */
  readonly damaged: readonly RememberedDamage[]
  /** What was repaired, the first {@link MAX_REPAIRED}. */
  readonly repaired: readonly RepairedPart[]
  /** What is damaged in the server's own data; null: nothing is, or only some databases were checked. */
  readonly server: string | null
}

interface Run {
  /** null: all databases. */
  readonly names: readonly string[] | null
  readonly repairs: boolean
  readonly repaired: RepairedPart[]
  /** Of the pass over all databases: one node makes it. */
  readonly claim: Claim | null
  readonly ending: AbortController
  onProgress?(progress: ScrubProgress): void
}

export class Scrub {
  readonly #options: ScrubOptions
  readonly #clock: WallClock
  readonly #damage: DamageRecords
  readonly #startedAt: number
  #schedule: Schedule | undefined
  /** The run under way. */
  #run: Run | null = null
  #running: Promise<unknown> = Promise.resolve()
  /** When the check began that was asked for, in ms since 1970; null: there is none. */
  #askedAt: number | null = null
  #task: ScrubTask | null = null
  /** `reason` is null if another node was making a pass. */
  #failure: { readonly time: number; readonly reason: string | null } | null = null
  #checked = 0
  /** What is damaged in the server's own data. The next start replaces it, so that it need not be remembered. */
  #server: string | null = null
  /** Databases that were repaired since they were checked. */
  readonly #repaired = new Set<string>()
  #isClosed = false

  constructor(options: ScrubOptions) {
    this.#options = options
    this.#clock = options.clock ?? wallClock
    this.#damage = new DamageRecords(options.databases)
    this.#startedAt = this.#clock.now()
  }

  /** Makes a pass whenever one is due, while this node has the duty. */
  startSchedule(duty: Duty): void {
    const schedule = new Schedule({
      clock: this.#clock,
      facts: () => this.#facts(duty),
      // What fails is in the log, and tried again.
      make: () => this.#runScheduled().catch(() => undefined),
    })
    this.#schedule = schedule
    this.#options.config.onChange((section, key) => {
      if (section === 'settee' && key === 'scrub_interval') schedule.check()
    })
    duty.onChange(() => schedule.check())
    // A restored database is looked at again, if it was damaged.
    this.#options.databases.watchCatalog(({ type }) => {
      if (type === 'databases') schedule.check()
    })
  }

  /** What was damaged, and was replaced or repaired since, goes before a pass. */
  async #runScheduled(): Promise<void> {
    const changed = new Set([...(await this.#damage.replaced()), ...this.#repaired])
    const names = changed.size > 0 ? [...changed] : null
    const claim = names === null ? await this.#options.claims.take(CLAIM) : null
    if (this.#askedAt !== null || this.#isClosed) {
      await claim?.release()
    } else if (names === null && claim === null) {
      this.#failure = { time: this.#clock.now(), reason: null }
    } else {
      this.#repaired.clear()
      await this.#start({ names, repairs: true, repaired: [], claim, ending: new AbortController() })
    }
  }

  /** Has a database checked again soon, because parts of it were repaired. */
  checkAgain(database: string): void {
    if (this.#schedule === undefined || this.#isClosed) return
    this.#repaired.add(database)
    this.#schedule.check()
  }

  /** Never rejects: what cannot be read now is read at the next look. */
  async #facts(duty: Duty): Promise<ScheduleFacts> {
    const pass = await readPass(this.#options.databases).catch(() => null)
    const replaced = await this.#damage.replaced().catch(() => [])
    // A pass in time to come was noted before the clock was set back.
    const begunAt = pass?.last?.begunAt ?? Number.POSITIVE_INFINITY
    const isChanged = replaced.length > 0 || this.#repaired.size > 0
    const isRead = pass?.open === null && !isChanged && begunAt <= this.#clock.now()
    return {
      interval: duty.isHeld && pass !== null ? this.#interval : 0,
      last: isRead ? begunAt : null,
      failed: this.#failure?.time ?? null,
      startedAt: this.#startedAt,
    }
  }

  get #interval(): number {
    return this.#options.config.integer('settee', 'scrub_interval') * HOUR_MS
  }

  /** The check under way; null: none. */
  get task(): ScrubTask | null {
    if (this.#task !== null || this.#askedAt === null) return this.#task
    const times = { startedAt: this.#askedAt, updatedAt: this.#askedAt }
    return { database: null, databases_done: 0, databases_total: 0, percent: 0, ...times }
  }

  /** @throws as `readRecords` */
  async state(): Promise<ScrubState> {
    const [{ last }, damaged] = await Promise.all([readPass(this.#options.databases), this.#damage.list()])
    return {
      interval: this.#interval,
      last,
      task: this.task,
      failure: this.#failure?.reason ?? null,
      checked: this.#checked,
      damaged,
      server: this.#server,
      startedAt: this.#startedAt,
      now: this.#clock.now(),
    }
  }

  /**
   * Checks databases now. A pass under way waits for it, and goes on where it was.
   * @param signal ends the check
   * @throws conflict while another check that was asked for is under way, or another node checks all databases; not_found for an unknown database;
   *   unavailable when the server is stopping or the signal ends the check
   */
  async check(
    request: CheckRequest,
    onProgress?: (progress: ScrubProgress) => void,
    signal?: AbortSignal,
  ): Promise<CheckOutcome> {
    const { finished } = await this.begin(request, onProgress, signal)
    return finished
  }

  /** As {@link check}, but resolves when the check has begun. `finished` rejects as it does; the caller must handle it. */
  async begin(
    { names, repairs = false }: CheckRequest,
    onProgress?: (progress: ScrubProgress) => void,
    signal?: AbortSignal,
  ): Promise<{ readonly finished: Promise<CheckOutcome> }> {
    const { databases } = this.#options
    this.#requireFree()
    const once = names === null ? null : [...new Set(names)].sort()
    for (const name of once ?? [])
      if (!(await databases.has(name))) throw new CouchError('not_found', `There is no database ${name}.`)
    this.#requireFree()
    this.#askedAt = this.#clock.now()
    const ending = new AbortController()
    signal?.addEventListener('abort', () => ending.abort())
    if (signal?.aborted) ending.abort()
    try {
      this.#run?.ending.abort()
      await this.#running
      const claim = once === null ? await this.#claim() : null
      const run = { names: once, repairs, repaired: [], claim, ending, ...(onProgress && { onProgress }) }
      const finished = this.#checkAsked(run)
      finished.catch(() => undefined)
      return { finished }
    } catch (error) {
      this.#askedAt = null
      this.#schedule?.check()
      throw error
    }
  }

  /** @throws conflict; as `readRecords` and `writeRecords` */
  async #claim(): Promise<Claim> {
    const claim = await this.#options.claims.take(CLAIM)
    if (claim === null) throw new CouchError('conflict', 'Another node is checking all databases.')
    return claim
  }

  /** @throws conflict, unavailable */
  #requireFree(): void {
    if (this.#isClosed) throw new CouchError('unavailable')
    if (this.#askedAt !== null) throw new CouchError('conflict', 'Another check is under way.')
  }

  async #checkAsked(run: Run): Promise<CheckOutcome> {
    try {
      if (this.#isClosed) throw new CouchError('unavailable')
      const before = this.#checked
      // A check on request begins at the first database.
      if (run.names === null) await this.#storePass(null)
      await this.#start(run)
      if (run.ending.signal.aborted) throw new CouchError('unavailable')
      const asked = run.names === null ? null : new Set(run.names)
      const damaged = await this.#damage.list()
      return {
        checked: this.#checked - before,
        damaged: damaged.filter(({ database }) => asked === null || asked.has(database)),
        repaired: run.repaired,
        server: asked === null ? this.#server : null,
      }
    } finally {
      await run.claim?.release()
      this.#askedAt = null
      this.#schedule?.check()
    }
  }

  /** Resolves also when the run was ended. @throws the error for which it cannot go on */
  #start(run: Run): Promise<void> {
    this.#run = run
    const lost = () => run.ending.abort()
    run.claim?.ended.addEventListener('abort', lost)
    const running = this.#work(run)
      .then(() => {
        this.#failure = null
      })
      .catch((error: unknown) => {
        if (run.ending.signal.aborted) return
        this.#failure = { time: this.#clock.now(), reason: asCouchError(error).message }
        this.#options.logger.error({ err: error }, 'a check of the databases failed')
        throw error
      })
      .finally(async () => {
        this.#run = null
        this.#task = null
        run.claim?.ended.removeEventListener('abort', lost)
        await run.claim?.release()
      })
    this.#running = running.catch(() => undefined)
    return running
  }

  async #work(run: Run): Promise<void> {
    const checker = this.#options.databases.checks.start()
    const stop = () => void checker.close()
    run.ending.signal.addEventListener('abort', stop)
    try {
      if (run.names === null) await this.#pass(run, checker)
      else await this.#some(run, run.names, checker)
    } finally {
      run.ending.signal.removeEventListener('abort', stop)
      await checker.close()
    }
  }

  async #some(run: Run, names: readonly string[], checker: Checker): Promise<void> {
    const startedAt = this.#clock.now()
    for (const [done, name] of names.entries()) {
      if (run.ending.signal.aborted) return
      const work = new DatabaseWork(name, null)
      await this.#one(work, checker, async (share) => {
        this.#report(run, startedAt, name, done, names.length, share)
      })
    }
  }

  /** Goes on with the pass that has not ended, or begins one. */
  async #pass(run: Run, checker: Checker): Promise<void> {
    const { databases, logger } = this.#options
    const { signal } = run.ending
    const known = (await readPass(databases)).open
    let pass: OpenPass = known ?? { ...NOT_BEGUN, begunAt: this.#clock.now() }
    let savedAt = this.#clock.now()
    const save = async () => {
      savedAt = this.#clock.now()
      await this.#storePass(pass)
    }
    const startedAt = this.#clock.now()
    const total = await databases.count()
    try {
      for await (const name of databases.allNames(pass.database === null ? {} : { from: pass.database })) {
        if (signal.aborted) break
        const work = new DatabaseWork(name, pass.database === name ? pass : null)
        pass = { ...pass, database: name, ...work.progress }
        await this.#one(work, checker, async (share) => {
          pass = { ...pass, ...work.progress }
          this.#report(run, startedAt, name, pass.done, Math.max(total, pass.done + 1), share)
          if (this.#clock.now() - savedAt >= SAVE_MS) await save()
        })
        if (signal.aborted) break
        pass = { ...pass, done: pass.done + 1, ...NOT_CHECKED }
        if (this.#askedAt === null) await delay(PAUSE_MS, undefined, { signal }).catch(() => undefined)
      }
    } catch (error) {
      await save()
      throw error
    }
    if (signal.aborted) {
      await save()
      return
    }
    this.#server = await checker.checkServer()
    await noteServerFault(databases, this.#server)
    if (this.#server !== null)
      logger.error(
        { fault: this.#server },
        'server.sqlite is damaged; restart settee, which then starts from the newest copy of it',
      )
    await this.#damage.removeOld()
    const last = { begunAt: pass.begunAt, endedAt: this.#clock.now() }
    await writePass(databases, { last, open: null })
    const seconds = Math.round((last.endedAt - last.begunAt) / 1000)
    logger.info({ databases: pass.done, seconds }, 'read and checked everything that is stored')
  }

  async #storePass(open: OpenPass | null): Promise<void> {
    const { databases } = this.#options
    const { last } = await readPass(databases)
    await writePass(databases, { last, open })
  }

  /** Checks one database: from its beginning again if it is replaced meanwhile, not at all if it is deleted. */
  async #one(work: DatabaseWork, checker: Checker, onStep: (share: number) => Promise<void>): Promise<void> {
    const { databases } = this.#options
    const signal = this.#run?.ending.signal
    const isEnded = () => signal?.aborted === true
    for (let tries = 0, rounds = 0; tries < MAX_TRIES && !isEnded(); tries++) {
      try {
        await this.#tried(work, checker, onStep)
        if (work.from !== null) return
        const copies = await this.#copiesOf(work)
        if (copies.some(({ isRepaired }) => isRepaired) && rounds < MAX_ROUNDS) {
          rounds += 1
          tries = 0
          work.beginAgain()
          continue
        }
        this.#checked += 1
        if (work.incarnation !== null) await this.#note(work.name, work.incarnation, work.found, copies)
        return
      } catch (error) {
        if (isEnded()) return
        if (!isGone(error)) throw error
        if (!(await databases.has(work.name))) return
        await delay(REPLACED_MS, undefined, { signal }).catch(() => undefined)
      }
    }
  }

  async #tried(
    work: DatabaseWork,
    checker: Checker,
    onStep: (share: number) => Promise<void>,
  ): Promise<void> {
    const { databases, logger } = this.#options
    const signal = this.#run?.ending.signal
    try {
      await onStep(0)
      await checker.check(work.name, work.from, async (step, incarnation) => {
        work.add(step, incarnation)
        for (const signature of step.damagedIndexes ?? []) await this.#discardIndex(work.name, signature)
        if (step.next !== null) await onStep(step.share)
        return signal?.aborted !== true
      })
    } catch (error) {
      if (!isUnreadable(error)) throw error
      logger.error({ err: error, database: work.name }, 'a database cannot be read')
      const { incarnation } = await databases.get(work.name)
      work.add({ next: null, damage: { count: 1, parts: [{ kind: 'file' }] } }, incarnation)
    }
  }

  /** Its rows are made again from the documents. */
  async #discardIndex(name: string, signature: string): Promise<void> {
    const { databases, logger } = this.#options
    const database = await databases.get(name)
    await database.discardIndex(SYSTEM_USER, signature)
    logger.warn({ database: name, index: signature }, 'a damaged index was removed; the next query builds it')
    const repaired = this.#run?.repaired
    if (repaired !== undefined && repaired.length < MAX_REPAIRED)
      repaired.push({ database: name, part: { kind: 'index' }, copy: 'its documents' })
  }

  /** Looks for good copies of what was found, and stores them again if the run repairs. */
  async #copiesOf({ name, found }: DatabaseWork): Promise<readonly PartOutcome[]> {
    const run = this.#run
    const { repairs } = this.#options
    if (run === null || repairs === undefined || found === null) return []
    const outcomes = await repairs.run(name, found.parts, { writes: run.repairs })
    for (const { part, copy, isRepaired } of outcomes) {
      if (isRepaired && copy !== null && run.repaired.length < MAX_REPAIRED)
        run.repaired.push({ database: name, part, copy })
    }
    return outcomes
  }

  async #note(
    name: string,
    incarnation: number,
    damage: Damage | null,
    copies: readonly PartOutcome[],
  ): Promise<void> {
    const { databases, logger } = this.#options
    const fresh = await this.#damage.note({ name, incarnation }, damage, this.#clock.now(), copies)
    if (damage === null) databases.noteWhole(incarnation)
    if (damage === null || fresh.length === 0) return
    logger.error({ database: name, count: damage.count, damaged: fresh }, 'parts of a database are damaged')
    await this.#read(name, incarnation, fresh)
  }

  /** Reads what is damaged as a client does: the store then notes it, and it is healed (healing/device-healing.ts). */
  async #read(name: string, incarnation: number, parts: readonly DamagedPart[]): Promise<void> {
    for (const part of parts) {
      if (!('id' in part) || part.id === null || part.kind === 'local' || this.#isClosed) continue
      const database = await this.#options.databases.get(name).catch(() => null)
      if (database?.incarnation !== incarnation) return
      await readPart(database, part.id, part).catch(() => undefined)
    }
  }

  #report(run: Run, startedAt: number, database: string, done: number, total: number, share: number): void {
    const percent = Math.min(99, Math.floor((100 * (done + share)) / total))
    const progress = { database, databases_done: done, databases_total: total, percent }
    this.#task = { ...progress, startedAt, updatedAt: this.#clock.now() }
    run.onProgress?.(progress)
  }

  /** Ends the check under way and the schedule. Call it before the databases are closed. */
  async close(): Promise<void> {
    this.#isClosed = true
    this.#run?.ending.abort()
    await this.#running
    await this.#schedule?.close()
  }
}

const NOT_CHECKED = { checked: null, found: null } as const
const NOT_BEGUN = { done: 0, database: null, ...NOT_CHECKED } as const

/** The check of one database. */
class DatabaseWork {
  readonly name: string
  from: OpenPass['checked']
  incarnation: number | null
  #damage = new FoundDamage()

  /** @param known what an earlier run has done of it */
  constructor(name: string, known: Pick<OpenPass, 'checked' | 'found'> | null) {
    this.name = name
    this.from = known?.checked ?? null
    this.incarnation = this.from?.incarnation ?? null
    if (this.from !== null && known?.found) this.#damage.addAll(known.found)
  }

  /** @param incarnation another one than before began at its beginning */
  add({ next, damage }: Pick<CheckStep, 'next' | 'damage'>, incarnation: number): void {
    if (incarnation !== this.incarnation) this.#damage = new FoundDamage()
    this.incarnation = incarnation
    this.from = next === null ? null : { incarnation, position: next }
    if (damage !== null) this.#damage.addAll(damage)
  }

  beginAgain(): void {
    this.from = null
    this.#damage = new FoundDamage()
  }

  get found(): Damage | null {
    return this.#damage.found
  }

  get progress(): Pick<OpenPass, 'checked' | 'found'> {
    return { checked: this.from, found: this.found }
  }
}

function isGone(error: unknown): boolean {
  return error instanceof CouchError && error.code === 'no_database'
}

function isUnreadable(error: unknown): boolean {
  return error instanceof DamagedCopy || isFileFault(error)
}
