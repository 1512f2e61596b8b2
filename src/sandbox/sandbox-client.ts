/**
 * The sandbox on a database thread. Work waits here in a queue per database. It is sent piece by piece when this thread
 * can claim a sandbox thread, so no work waits behind a function that blocks its thread.
 */
import type { MessagePort } from 'node:worker_threads'
import { CouchError, unpackError } from '../core/errors.ts'
import { type Job, JobQueue } from './job-queue.ts'
import {
  type Call,
  type ExchangeReply,
  type ExchangeRequest,
  lengthOf,
  nameOf,
  type Outcome,
  type RunReply,
  type RunRequest,
  type Sandbox,
  type SandboxAccess,
  type SandboxNotice,
  sandboxOver,
  type Work,
} from './messages.ts'
import { type Slot, SlotTable } from './slot-table.ts'

/** How long the first job waits before another thread is requested, in ms. */
const LONG_WAIT_MS = 20
/** How long a free thread is reserved for a database thread that has waited longer, in ms. */
const YIELD_MS = 5
const MAX_PIECE_CALLS = 256
/** The maximum number of characters in a piece's calls; a single call may be longer. */
const MAX_PIECE_TEXT = 1_048_576
/** The maximum number of characters in one job's results. A function that returns more counts as out of memory. */
const MAX_RESULT_TEXT = 134_217_728
/** How long a job may wait for its next piece, in ms, in addition to the time limit of a call. */
const MAX_WAIT_MS = 60_000
/** How often the queue is checked for jobs that have waited too long, in ms. */
const CHECK_MS = 1000
/** The number of functions whose last thread is remembered. */
const MAX_REMEMBERED = 256

interface SandboxThread {
  readonly slot: Slot
  readonly port: MessagePort
  /** The job of the piece that it runs. */
  job: Job | undefined
}

/** Counters of function calls. */
export interface FunctionCounts {
  /** Calls with a result, including errors that the function has thrown. */
  readonly done: number
  /** Pieces of work that failed: the function took too long or too much memory, or does not compile. */
  readonly failed: number
}

export class SandboxClient {
  /** The interface for other layers. */
  readonly sandbox: Sandbox
  readonly #slotTable: SlotTable
  readonly #number: number
  readonly #requestThread: () => void
  readonly #queue = new JobQueue()
  /** Threads by the index of their slot. The lowest index is used first, so that surplus threads become idle. */
  readonly #threads = new Map<number, SandboxThread>()
  /** The slot where a function is ready, by function; least recently used first. */
  readonly #lastSlots = new Map<string, number>()
  readonly #maxWaitMs: number
  #look: NodeJS.Timeout | undefined
  #isWaiting = false
  /** Whether a free thread was reserved for another database thread, which did not claim it. */
  #mayOvertake = false
  #done = 0
  #failed = 0
  #isClosed = false

  /**
   * @param requestThread notifies the main thread that work is waiting for a sandbox thread
   * @param maxWaitMs for tests
   */
  constructor({ slotTable, client }: SandboxAccess, requestThread: () => void, maxWaitMs = MAX_WAIT_MS) {
    this.#slotTable = new SlotTable(slotTable)
    this.#number = client
    this.#requestThread = requestThread
    this.#maxWaitMs = maxWaitMs
    this.sandbox = sandboxOver((work) => this.#run(work))
  }

  get counts(): FunctionCounts {
    return { done: this.#done, failed: this.#failed }
  }

  /** Calls that wait or run. */
  get callsUnderWay(): number {
    return this.#queue.calls
  }

  #run(work: Work): Promise<readonly string[]> {
    if (this.#isClosed) return Promise.reject(new CouchError('unavailable'))
    if (work.calls.length === 0) return Promise.resolve([])
    const done = this.#queue.add(work)
    this.#checkLater()
    // While others wait, no thread is free.
    if (!this.#isWaiting) this.#pump()
    return done
  }

  /** While there is work, checks at intervals for jobs that have waited too long. */
  #checkLater(): void {
    this.#look ??= setTimeout(() => {
      this.#look = undefined
      const longest = this.#maxWaitMs + this.#slotTable.limits.timeoutMs
      this.#queue.failWaiting(performance.now() - longest, new CouchError('unavailable'))
      if (!this.#queue.isEmpty) this.#checkLater()
    }, CHECK_MS).unref()
  }

  /** Fails the jobs of a database that was closed, without waiting for running ones. */
  forget(database: number): void {
    this.#queue.failAllOf(database, new CouchError('no_database'))
    this.#pump()
  }

  /** Handles a notice from the main thread. */
  notice(notice: SandboxNotice): void {
    if (notice.type === 'thread' && this.#isClosed) notice.port.close()
    else if (notice.type === 'thread') this.#join(notice.slot, notice.port)
    else if (notice.type === 'lost') this.#lose(notice.slot, notice.reason)
    else if (this.#threads.size === 0) this.#queue.failAll(new CouchError('unavailable', undefined, notice))
    this.#pump()
  }

  #join(slot: Slot, port: MessagePort): void {
    const thread: SandboxThread = { slot, port, job: undefined }
    port.on('message', (message: RunReply | ExchangeRequest) => {
      if ('output' in message) this.#exchange(thread, message)
      else this.#receive(thread, message)
    })
    this.#threads.set(slot.index, thread)
  }

  #lose(slot: Slot, reason: 'timeout' | 'died' | 'ended'): void {
    const thread = this.#threads.get(slot.index)
    if (thread?.slot.thread !== slot.thread) return
    this.#threads.delete(slot.index)
    thread.port.close()
    const { job } = thread
    if (job === undefined) return
    if (reason === 'timeout') {
      this.#failed += 1
      this.#queue.fail(job, new CouchError('function_timeout'))
    } else if (job.wasLost || job.signal !== null) this.#queue.fail(job, new CouchError('unavailable'))
    else {
      job.wasLost = true
      this.#queue.putBack(job)
    }
  }

  /** Sends jobs to sandbox threads while there are any. */
  #pump(): void {
    for (;;) {
      const { freed } = this.#slotTable
      const job = this.#queue.next()
      if (job === undefined) {
        this.#slotTable.stopWaiting(this.#number)
        return
      }
      const yields = !this.#mayOvertake && this.#slotTable.overtakes(this.#number)
      const thread = yields ? undefined : this.#claim(job)
      this.#mayOvertake = false
      if (thread === undefined) {
        this.#queue.putFirst(job)
        this.#wait(freed, job, yields)
        return
      }
      this.#slotTable.stopWaiting(this.#number)
      this.#send(thread, job)
    }
  }

  #claim({ key }: Job): SandboxThread | undefined {
    const last = this.#threads.get(this.#lastSlots.get(key) ?? -1)
    if (last !== undefined && this.#tryClaim(last)) return last
    const indexes = [...this.#threads.keys()].sort((a, b) => a - b)
    for (const index of indexes) {
      const thread = this.#threads.get(index) as SandboxThread
      if (this.#tryClaim(thread)) return thread
    }
    return undefined
  }

  #tryClaim(thread: SandboxThread): boolean {
    return thread.job === undefined && this.#slotTable.claim(thread.slot, this.#number)
  }

  /** Tries again when a thread becomes free, and requests another thread if that takes long. */
  #wait(freed: number, job: Job, yields: boolean): void {
    this.#slotTable.wait(this.#number)
    if (this.#threads.size === 0 || performance.now() - job.since > LONG_WAIT_MS) this.#requestThread()
    if (this.#isWaiting) return
    this.#isWaiting = true
    this.#slotTable.whenFreed(freed, yields ? YIELD_MS : LONG_WAIT_MS).then(
      (isFreed) => {
        this.#isWaiting = false
        this.#mayOvertake = yields && !isFreed
        this.#pump()
      },
      (error: unknown) => this.#queue.failAll(error),
    )
  }

  #send(thread: SandboxThread, job: Job): void {
    thread.job = job
    this.#remember(job.key, thread.slot.index)
    const { kind, fn, shared } = job.work
    const request: RunRequest = {
      job: job.number,
      piece: { kind, fn: nameOf(fn), shared, calls: nextCalls(job) },
      source: job.needsSource ? fn.source : null,
      signal: job.signal,
    }
    thread.port.postMessage(request)
  }

  #remember(key: string, index: number): void {
    this.#lastSlots.delete(key)
    this.#lastSlots.set(key, index)
    if (this.#lastSlots.size <= MAX_REMEMBERED) return
    for (const oldest of this.#lastSlots.keys()) {
      this.#lastSlots.delete(oldest)
      return
    }
  }

  /** Passes the output of a list function on, and its rows back. */
  #exchange({ port, job }: SandboxThread, { job: number, output }: ExchangeRequest): void {
    const reply = (answer: string | null) => {
      const message: ExchangeReply = { answer }
      port.postMessage(message)
      if (job?.signal == null) return
      const cells = new Int32Array(job.signal)
      Atomics.add(cells, 0, 1)
      Atomics.notify(cells, 0)
    }
    if (job?.number !== number || job.work.exchange === undefined) reply(null)
    else job.work.exchange(output).then(reply, () => reply(null))
  }

  #receive(thread: SandboxThread, { job: number, outcome }: RunReply): void {
    const { job } = thread
    if (job?.number !== number) return
    thread.job = undefined
    this.#complete(job, outcome)
    this.#pump()
  }

  #complete(job: Job, outcome: Outcome): void {
    job.needsSource = outcome.type === 'unknown'
    if (outcome.type === 'failed') {
      this.#failed += 1
      this.#queue.fail(job, unpackError(outcome.error))
    } else if (outcome.type === 'unknown') this.#queue.putFirst(job)
    else {
      this.#done += outcome.results.length
      job.results.push(...outcome.results)
      for (const result of outcome.results) job.resultText += result.length
      if (job.resultText > MAX_RESULT_TEXT) this.#queue.fail(job, new CouchError('function_memory'))
      else if (job.results.length < job.work.calls.length) this.#queue.putBack(job)
      else this.#queue.finish(job)
    }
  }

  /** Refuses new work, and fails all unfinished work. Idempotent. */
  close(): void {
    this.#isClosed = true
    clearTimeout(this.#look)
    this.#slotTable.stopWaiting(this.#number)
    this.#queue.failAll(new CouchError('unavailable'))
    for (const { port } of this.#threads.values()) port.close()
    this.#threads.clear()
  }
}

/** The next calls of a job, up to the maximum size of a piece. */
function nextCalls({ work: { calls }, results }: Job): readonly Call[] {
  const start = results.length
  let end = start
  let length = 0
  while (end < calls.length && end - start < MAX_PIECE_CALLS) {
    length += lengthOf(calls[end] as Call)
    if (length > MAX_PIECE_TEXT && end > start) break
    end += 1
  }
  return calls.slice(start, end)
}
