/** One run of a replication: from where it was interrupted to the end of the feed, or continuously; protocol.md 16.1. */
import { setTimeout as sleep } from 'node:timers/promises'
import { Limiter } from '../core/concurrency.ts'
import { newUuid } from '../core/ids.ts'
import { type ChangesBatch, readChanges } from './changes-reader.ts'
import { BEGINNING, type CouchStatistics } from './checkpoint.ts'
import { Checkpoints } from './checkpoints.ts'
import type { Intake } from './intake.ts'
import type { ChangesRequest, Peer } from './peer.ts'
import { PeerError } from './peer-error.ts'
import type { Position, ReplicationOptions } from './requests/replication-request.ts'
import { noStatistics, type Statistics, type TransferEnds, transfer } from './transfer.ts'

export interface ReplicationContext {
  readonly source: Peer
  readonly target: Peer
  readonly options: ReplicationOptions
  /** The id of CouchDB's checkpoints, with `_local/`. */
  readonly checkpointId: string
  readonly intake: Intake
  readonly signal: AbortSignal
  /**
   * Nothing is written to the source, not even a checkpoint; false by default. A later run goes on from the target's
   * checkpoint alone, so `checkpointId` must change when the source is another database.
   */
  readonly isSourceReadOnly?: boolean
  /** Runs a batch when its turn among all replications has come. */
  inTurn<T>(batch: () => Promise<T>): Promise<T>
  /** Something failed, and is tried again. */
  onRetry(error: PeerError): void
  onRefused(id: string, reason: string): void
}

/** How far a run has come. */
export interface ReplicationProgress {
  readonly stats: CouchStatistics
  /** The end of the last page that was read. */
  readonly sourceSeq: Position
  /** Everything up to here is at the target. */
  readonly throughSeq: Position
  readonly checkpointedSeq: Position
  /** Changes that have not been read yet; null: unknown. */
  readonly pending: number | null
}

/** The members of a finished replication's answer, protocol.md 14.1. */
export type ReplicationResult = Readonly<Record<string, unknown>>

/** The first wait before a step is repeated, in ms; each further one is twice as long. */
const FIRST_WAIT_MS = 250
const LONGEST_WAIT_MS = 60_000
/** The least time between two requests for a feed without changes, in ms. */
const LEAST_POLL_MS = 1000

export class Replication {
  readonly #context: ReplicationContext
  readonly #stats: Statistics = noStatistics()
  readonly #ends: TransferEnds
  /** Ends everything that still waits when the run ends. */
  readonly #stop = new AbortController()
  readonly #signal: AbortSignal
  readonly #sessionId = newUuid()
  readonly #startedAt = new Date()
  /** Batches in the order of the feed; those before the first unfinished one are done. */
  readonly #batches: { seq: Position; isDone: boolean }[] = []
  #from: Position = BEGINNING
  #through: Position = BEGINNING
  #sourceSeq: Position = BEGINNING
  #pending: number | null = null
  #checkpoints: Checkpoints | null = null

  constructor(context: ReplicationContext) {
    this.#context = context
    const { source, target, intake, onRefused, options } = context
    this.#signal = AbortSignal.any([context.signal, this.#stop.signal])
    const signal = this.#signal
    const largeFetches = new Limiter(source.largeFetches, Number.POSITIVE_INFINITY)
    const { usesBulkGet } = options
    this.#ends = { source, target, intake, signal, onRefused, usesBulkGet, largeFetches }
  }

  get progress(): ReplicationProgress {
    return {
      stats: this.#stats,
      sourceSeq: this.#sourceSeq,
      throughSeq: this.#through,
      checkpointedSeq: this.#checkpoints?.recorded ?? BEGINNING,
      pending: this.#pending,
    }
  }

  /**
   * @returns when the end of the feed was reached; a continuous replication only ends by its signal
   * @throws PeerError; what `signal` is aborted with
   */
  async run(): Promise<ReplicationResult> {
    const { options, signal } = this.#context
    const start = await this.#start()
    try {
      await Promise.race([this.#copy(start), this.#recordRegularly()])
      await this.#persistently(() => this.#record())
    } catch (error) {
      // What was copied stays copied: the next run begins there.
      await this.#recordProgress().catch(() => undefined)
      throw signal.aborted ? signal.reason : error
    } finally {
      this.#stop.abort()
    }
    if (!options.usesCheckpoints) return { use_checkpoints: false }
    return { ...this.#checkpoints?.result }
  }

  /** @returns where the feed is read from */
  async #start(): Promise<Position> {
    const { source, target, options, checkpointId, signal, isSourceReadOnly = false } = this.#context
    const { createsTarget, createTargetParams, usesCheckpoints, sinceSeq } = options
    const sourceInfo = await this.#persistently(() => source.info(signal))
    if (createsTarget) await this.#persistently(() => target.create(createTargetParams, signal))
    const targetInfo = await this.#persistently(() => target.info(signal))
    this.#sourceSeq = sourceInfo.updateSeq
    const checkpoints = new Checkpoints({
      source,
      target,
      checkpointId,
      options,
      signal,
      sourceInfo,
      targetInfo,
      isSourceReadOnly,
    })
    this.#checkpoints = checkpoints
    const found = usesCheckpoints ? await this.#persistently(() => checkpoints.read()) : BEGINNING
    const start = sinceSeq ?? found
    checkpoints.begin(start)
    this.#from = start
    this.#through = start
    // A sequence that the user has named says nothing about the source.
    const wentBack = sinceSeq === undefined && numberOf(sourceInfo.updateSeq) < numberOf(found)
    return wentBack ? this.#beginAgain() : start
  }

  async #copy(start: Position): Promise<void> {
    const { source, options } = this.#context
    const signal = this.#signal
    const { batchSize, isContinuous, filter, isWinningRevsOnly } = options
    const style = isWinningRevsOnly ? 'main_only' : 'all_docs'
    const running = new Set<Promise<void>>()
    let failed: unknown
    let since = start
    // A feed waits only at its end, so that feeds with news take no turn from others.
    let waits = false
    // Once is a restore. Each time all is compared again, so that a server could keep this one busy for ever.
    let wentBack = false
    for (;;) {
      const asked = performance.now()
      const request: ChangesRequest = { since, limit: batchSize, style, filter, waits, signal }
      const page = await Promise.race([
        this.#persistently(() => readChanges(source, request)),
        // Rejects as soon as a batch has failed, even while the feed waits.
        ...[...running].map((batch) => batch.then(() => new Promise<never>(() => undefined))),
      ])
      this.#pending = page.pending
      if (numberOf(page.lastSeq) < numberOf(since)) {
        if (wentBack) throw new PeerError('invalid_answer', `${source.address}: _changes goes back again`)
        wentBack = true
        since = await this.#beginAgain()
        continue
      }
      since = this.#note(page, since)
      if (page.changes.length === 0) {
        if (!isContinuous) break
        // A peer that does not know longpoll answers at once.
        const wait = waits ? LEAST_POLL_MS - (performance.now() - asked) : 0
        waits = true
        if (wait > 0) await sleep(wait, undefined, { signal })
        continue
      }
      waits = isContinuous && page.pending === 0
      const entry = { seq: page.lastSeq, isDone: false }
      this.#batches.push(entry)
      const batch = this.#copyBatch(page, entry).finally(() => running.delete(batch))
      batch.catch((error: unknown) => {
        failed ??= error
      })
      running.add(batch)
      while (running.size >= options.batches) await Promise.race(running)
      if (failed !== undefined) throw failed
    }
    await Promise.all(running)
  }

  /** The source was restored to an earlier state, so its sequences mean something else now. */
  async #beginAgain(): Promise<Position> {
    this.#batches.length = 0
    this.#through = BEGINNING
    if (this.#context.options.usesCheckpoints) {
      await this.#persistently(async () => this.#checkpoints?.reset(this.#session))
    }
    return BEGINNING
  }

  /** @returns where the next page begins */
  #note({ changes, lastSeq }: ChangesBatch, since: Position): Position {
    // A cluster's token may differ each time.
    if (changes.length === 0 && Object.is(numberOf(lastSeq), numberOf(since))) return since
    this.#sourceSeq = lastSeq
    if (changes.length === 0) this.#passed(lastSeq)
    return lastSeq
  }

  async #copyBatch({ changes }: ChangesBatch, entry: { isDone: boolean }): Promise<void> {
    const { inTurn } = this.#context
    const done = await this.#persistently((isLastTry) =>
      inTurn(() => transfer(changes, this.#ends, isLastTry)),
    )
    for (const name of Object.keys(done) as (keyof Statistics)[]) this.#stats[name] += done[name]
    entry.isDone = true
    this.#advance()
  }

  /** Notes that nothing is to be copied up to a position, which counts when the batches before it are done. */
  #passed(seq: Position): void {
    const last = this.#batches.at(-1)
    // Pages without changes may follow each other for long while a batch waits.
    if (last?.isDone) last.seq = seq
    else this.#batches.push({ seq, isDone: true })
    this.#advance()
  }

  #advance(): void {
    while (this.#batches[0]?.isDone) this.#through = this.#batches.shift()?.seq ?? this.#through
  }

  /** Rejects when a checkpoint cannot be written; never resolves. */
  async #recordRegularly(): Promise<never> {
    const { checkpointInterval } = this.#context.options
    for (;;) {
      await sleep(checkpointInterval, undefined, { signal: this.#signal })
      await this.#persistently(() => this.#recordProgress())
    }
  }

  /** A sequence that the user has named, and that the source may refuse, becomes no checkpoint of later runs. */
  async #recordProgress(): Promise<void> {
    if (this.#through !== this.#from) await this.#record()
  }

  async #record(): Promise<void> {
    if (this.#context.options.usesCheckpoints) await this.#checkpoints?.record(this.#through, this.#session)
  }

  get #session() {
    return { sessionId: this.#sessionId, startedAt: this.#startedAt, stats: { ...this.#stats } }
  }

  async #persistently<T>(step: (isLastTry: boolean) => Promise<T>): Promise<T> {
    const { options, onRetry } = this.#context
    const signal = this.#signal
    for (let tries = 0; ; tries++) {
      try {
        return await step(tries >= options.retries)
      } catch (error) {
        signal.throwIfAborted()
        if (!(error instanceof PeerError) || !error.isTemporary || tries >= options.retries) throw error
        onRetry(error)
        const wait = Math.min(FIRST_WAIT_MS * 2 ** tries, LONGEST_WAIT_MS)
        await sleep(error.retryAfterMs ?? wait * (0.5 + Math.random()), undefined, { signal })
      }
    }
  }
}

/** @returns the leading number of a token (clients.md R2); NaN, which is lower than nothing, if it has none */
function numberOf(position: Position): number {
  return Number.parseInt(String(position).replace(/^[^\d]*/, ''), 10)
}
