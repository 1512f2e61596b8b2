/**
 * Manages the sandbox threads on the main thread: starts them when functions wait, watches them, and ends them after a
 * long idle time. Database threads call them over their own ports.
 */

import { availableParallelism } from 'node:os'
import { MessageChannel, type MessagePort, Worker } from 'node:worker_threads'
import { programModule } from '../core/program-files.ts'
import type { Introduction, SandboxAccess, SandboxNotice, SandboxThreadOptions } from './messages.ts'
import { type FunctionLimits, MAX_SLOTS, type Slot, SlotTable } from './slot-table.ts'

/** The maximum number of threads that are not in a long call. */
const MAX_THREADS = Math.max(2, Math.min(4, availableParallelism()))
/** A call that takes longer than this, in ms, is long: another thread may then start beyond {@link MAX_THREADS}. */
const LONG_CALL_MS = 100
/** How long after the time limit of a call its thread is terminated, in ms. */
const GRACE_MS = 2000
const IDLE_MS = 5 * 60_000
const WATCH_MS = 100
/** How long a new thread may work before another one starts, in ms. */
const SETTLE_MS = 50
/** How long to wait after a failed start before the next attempt, in ms. */
const RETRY_MS = 1000
/** The stack of a thread in MB. WebAssembly's frames are larger than QuickJS assumes. */
const STACK_MB = 32

export interface SandboxPoolOptions {
  /** The file that a thread runs; by default sandbox-worker.ts in this folder. */
  readonly entry?: URL | undefined
  /** Node's flags for the threads. */
  readonly execArgv: readonly string[]
  readonly limits: FunctionLimits
  /** The maximum number of threads, including those in a long call; by default {@link MAX_SLOTS}. */
  readonly maxThreads?: number
  /** How long a thread may be idle before it ends, in ms; by default five minutes. */
  readonly idleMs?: number
  /** Called when a thread has died unexpectedly. */
  onFault(fault: unknown): void
}

/** Sends a notice to a database thread, with the port in it. */
type Notify = (notice: SandboxNotice, ...ports: MessagePort[]) => void

/** A database thread as a client of the pool. */
interface SandboxMember {
  readonly access: SandboxAccess
  /** Called when work on the database thread waits for a sandbox thread. */
  need(): void
  /** Called when the database thread has ended. */
  leave(): void
}

interface Client {
  readonly number: number
  readonly notify: Notify
  /** The threads to which it has a port. */
  readonly known: Set<number>
}

interface SandboxThread {
  readonly slot: Slot
  readonly worker: Worker
  isReady: boolean
  /** The mark of the last call that was seen on the thread, and when that call was first seen. */
  call: number | undefined
  callSeen: number
  /** Why the pool has ended the thread; undefined if it has not. */
  ending: 'timeout' | 'ended' | undefined
}

export class SandboxPool {
  readonly #options: SandboxPoolOptions
  readonly #slotTable = new SlotTable()
  readonly #threads = new Map<number, SandboxThread>()
  /** Database threads that have requested a sandbox thread. */
  readonly #clients = new Map<number, Client>()
  #clientCount = 0
  #threadCount = 0
  #maxThreads: number
  readonly #idleMs: number
  #lastReady = Number.NEGATIVE_INFINITY
  #lastFailed = Number.NEGATIVE_INFINITY
  #watch: NodeJS.Timeout | undefined
  #isClosed = false

  constructor(options: SandboxPoolOptions) {
    this.#options = options
    this.#slotTable.limits = options.limits
    this.#idleMs = options.idleMs ?? IDLE_MS
    this.#maxThreads = options.maxThreads ?? MAX_SLOTS
  }

  /** The number of threads. */
  get size(): number {
    return this.#threads.size
  }

  /** Sets the limits of later calls, and the maximum number of threads; those beyond it end when they are free. */
  setLimits(limits: FunctionLimits, maxThreads: number = MAX_SLOTS): void {
    this.#slotTable.limits = limits
    this.#maxThreads = maxThreads
  }

  /** Adds a database thread as a client. */
  join(notify: Notify): SandboxMember {
    this.#clientCount += 1
    const client: Client = { number: this.#clientCount, notify, known: new Set() }
    return {
      access: { slotTable: this.#slotTable.memory, client: client.number },
      need: () => this.#need(client),
      leave: () => this.#leave(client),
    }
  }

  #leave({ number }: Client): void {
    this.#clients.delete(number)
    this.#slotTable.stopWaiting(number)
  }

  #need(client: Client): void {
    if (this.#isClosed) return
    this.#clients.set(client.number, client)
    for (const thread of this.#threads.values()) this.#introduce(client, thread)
    if (this.#mayStart()) this.#start()
  }

  #introduce(client: Client, { slot, worker, isReady, ending }: SandboxThread): void {
    if (!isReady || ending !== undefined || client.known.has(slot.thread)) return
    client.known.add(slot.thread)
    const { port1, port2 } = new MessageChannel()
    const introduction: Introduction = { client: client.number, port: port1 }
    worker.postMessage(introduction, [port1])
    client.notify({ type: 'thread', slot, port: port2 }, port2)
  }

  #mayStart(): boolean {
    const threads = [...this.#threads.values()]
    // Threads start one at a time; the clients try again when a new thread is ready.
    if (threads.length >= this.#maxThreads || threads.some(({ isReady }) => !isReady)) return false
    if (threads.some(({ slot }) => this.#slotTable.isFree(slot))) return false
    if (threads.length > 0 && performance.now() - this.#lastReady < SETTLE_MS) return false
    if (performance.now() - this.#lastFailed < RETRY_MS) return false
    const inLongCall = threads.filter(({ slot }) => this.#isInLongCall(slot))
    return threads.length - inLongCall.length < MAX_THREADS
  }

  #isInLongCall(slot: Slot): boolean {
    return this.#slotTable.busyMs(slot) > LONG_CALL_MS
  }

  /**
   * How long the current call of a thread has been seen, in ms. The slot table alone does not justify ending a thread:
   * between a claim and its mark, the table counts the idle time as the call's.
   */
  #callMs(thread: SandboxThread): number {
    const call = this.#slotTable.callOf(thread.slot)
    if (call !== thread.call) thread.callSeen = performance.now()
    thread.call = call
    return call === undefined ? 0 : performance.now() - thread.callSeen
  }

  #start(): void {
    this.#threadCount += 1
    let index = 0
    while (this.#threads.has(index)) index += 1
    const slot: Slot = { index, thread: this.#threadCount }
    const worker = this.#tryStart({ slotTable: this.#slotTable.memory, slot })
    if (worker === undefined) return
    const thread = { slot, worker, isReady: false, call: undefined, callSeen: 0, ending: undefined }
    this.#threads.set(index, thread)
    this.#follow(thread)
    this.#watch ??= setInterval(() => this.#check(), WATCH_MS).unref()
  }

  /** Undefined when the system has no more threads. */
  #tryStart(workerData: SandboxThreadOptions): Worker | undefined {
    try {
      return new Worker(this.#entry, {
        workerData,
        execArgv: [...this.#options.execArgv],
        resourceLimits: { stackSizeMb: STACK_MB },
      })
    } catch (error) {
      this.#failed(error)
      return undefined
    }
  }

  /** Reports that no thread could be started, so that clients without a thread do not wait in vain. */
  #failed(fault: unknown): void {
    this.#lastFailed = performance.now()
    this.#options.onFault(fault)
    for (const { notify } of this.#clients.values()) notify({ type: 'failed', cause: String(fault) })
  }

  get #entry(): URL {
    return this.#options.entry ?? programModule('sandbox/sandbox-worker')
  }

  #follow(thread: SandboxThread): void {
    let fault: unknown
    thread.worker.on('error', (thrown) => {
      fault ??= thrown
    })
    thread.worker.once('message', () => {
      thread.isReady = true
      this.#lastReady = performance.now()
      this.#slotTable.open(thread.slot)
      for (const client of this.#clients.values()) this.#introduce(client, thread)
    })
    thread.worker.once('exit', () => this.#ended(thread, fault))
  }

  #ended(thread: SandboxThread, fault: unknown): void {
    const { slot, ending, isReady } = thread
    this.#slotTable.close(slot)
    this.#threads.delete(slot.index)
    if (this.#threads.size === 0) {
      clearInterval(this.#watch)
      this.#watch = undefined
    }
    if (this.#isClosed) return
    const cause = fault ?? new Error('a sandbox thread has ended')
    if (!isReady) {
      this.#failed(cause)
      return
    }
    if (ending === undefined) this.#options.onFault(cause)
    for (const { known, notify } of this.#clients.values()) {
      if (known.delete(slot.thread)) notify({ type: 'lost', slot, reason: ending ?? 'died' })
    }
  }

  /** Ends threads whose call should have been stopped long ago, and idle threads. Keeps one thread free. */
  #check(): void {
    const tooLong = this.#slotTable.limits.timeoutMs + GRACE_MS
    for (const thread of this.#threads.values()) {
      if (!thread.isReady || thread.ending !== undefined) continue
      if (this.#callMs(thread) > tooLong) {
        this.#slotTable.close(thread.slot)
        this.#end(thread, this.#hasMovedOn(thread) ? 'ended' : 'timeout')
      } else if (
        (this.#threads.size > this.#maxThreads || this.#slotTable.idleMs(thread.slot) > this.#idleMs) &&
        this.#slotTable.closeIfFree(thread.slot)
      ) {
        this.#end(thread, 'ended')
      }
    }
    const threads = [...this.#threads.values()]
    if (threads.every(({ slot }) => this.#isInLongCall(slot)) && this.#mayStart()) this.#start()
  }

  /** Whether a thread started another call just before it was closed. That call has not timed out. */
  #hasMovedOn({ slot, call }: SandboxThread): boolean {
    return this.#slotTable.markOf(slot) !== call
  }

  #end(thread: SandboxThread, reason: 'timeout' | 'ended'): void {
    thread.ending = reason
    thread.worker.terminate()
  }

  /** Terminates all threads, whatever they are doing. */
  async close(): Promise<void> {
    this.#isClosed = true
    clearInterval(this.#watch)
    await Promise.all([...this.#threads.values()].map(({ worker }) => worker.terminate()))
  }
}
