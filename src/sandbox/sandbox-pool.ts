/**
 * The sandbox threads on the main thread, which starts them when functions wait, watches them, and ends them when they
 * were idle for long. Database threads call them over ports of their own.
 */

import { availableParallelism } from 'node:os'
import { extname } from 'node:path'
import { MessageChannel, type MessagePort, Worker } from 'node:worker_threads'
import type { Introduction, SandboxAccess, SandboxNotice, SandboxThreadOptions } from './messages.ts'
import { type FunctionLimits, MAX_SLOTS, type Slot, SlotTable } from './slot-table.ts'

/** The largest number of threads that are not in a long call. */
const MAX_THREADS = Math.max(2, Math.min(4, availableParallelism()))
/** A call that takes longer than this, in ms, is long: another thread may start beyond {@link MAX_THREADS}. */
const HELD_MS = 100
/** How long after the time limit of a call its thread is ended, in ms. */
const GRACE_MS = 2000
const IDLE_MS = 5 * 60_000
const WATCH_MS = 100
/** How long a new thread may work before another one starts, in ms. */
const SETTLE_MS = 50
/** How long after a failed start the next one is tried, in ms. */
const RETRY_MS = 1000
/** Stack of a thread in MB; WebAssembly's frames are larger than QuickJS counts them. */
const STACK_MB = 32

export interface SandboxPoolOptions {
  /** The file that a thread runs; by default sandbox-worker.ts beside this file. */
  readonly entry?: URL | undefined
  /** Node's flags for the threads. */
  readonly execArgv: readonly string[]
  readonly limits: FunctionLimits
  /** How long a thread may be idle before it ends, in ms; by default five minutes. */
  readonly idleMs?: number
  /** A thread has died by itself. */
  onFault(fault: unknown): void
}

/** Sends a notice to a database thread, with the port in it. */
type Tell = (notice: SandboxNotice, ...ports: MessagePort[]) => void

/** A database thread as a client of the pool. */
interface SandboxMember {
  readonly access: SandboxAccess
  /** Called when work waits there for a thread. */
  need(): void
  /** Called when the database thread has ended. */
  leave(): void
}

interface Client {
  readonly number: number
  readonly tell: Tell
  /** Threads that it has a port to. */
  readonly known: Set<number>
}

interface SandboxThread {
  readonly slot: Slot
  readonly worker: Worker
  isReady: boolean
  /** The mark of the last call that was seen there, and when that call was first seen. */
  call: number | undefined
  callSeen: number
  /** Why the pool has ended it; undefined if it has not. */
  ending: 'timeout' | 'ended' | undefined
}

export class SandboxPool {
  readonly #options: SandboxPoolOptions
  readonly #slotTable = new SlotTable()
  readonly #threads = new Map<number, SandboxThread>()
  /** Database threads that have asked for a thread. */
  readonly #clients = new Map<number, Client>()
  #clientCount = 0
  #threadCount = 0
  readonly #idleMs: number
  #lastReady = Number.NEGATIVE_INFINITY
  #lastFailed = Number.NEGATIVE_INFINITY
  #watch: NodeJS.Timeout | undefined
  #isClosed = false

  constructor(options: SandboxPoolOptions) {
    this.#options = options
    this.#slotTable.limits = options.limits
    this.#idleMs = options.idleMs ?? IDLE_MS
  }

  /** The number of threads. */
  get size(): number {
    return this.#threads.size
  }

  /** Sets the limits of later calls. */
  setLimits(limits: FunctionLimits): void {
    this.#slotTable.limits = limits
  }

  /** Adds a database thread as a client. */
  join(tell: Tell): SandboxMember {
    this.#clientCount += 1
    const client: Client = { number: this.#clientCount, tell, known: new Set() }
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
    client.tell({ type: 'thread', slot, port: port2 }, port2)
  }

  #mayStart(): boolean {
    const threads = [...this.#threads.values()]
    // One at a time; the clients try again when it is ready.
    if (threads.length >= MAX_SLOTS || threads.some(({ isReady }) => !isReady)) return false
    if (threads.some(({ slot }) => this.#slotTable.isFree(slot))) return false
    if (threads.length > 0 && performance.now() - this.#lastReady < SETTLE_MS) return false
    if (performance.now() - this.#lastFailed < RETRY_MS) return false
    const held = threads.filter(({ slot }) => this.#isHeld(slot))
    return threads.length - held.length < MAX_THREADS
  }

  #isHeld(slot: Slot): boolean {
    return this.#slotTable.busyMs(slot) > HELD_MS
  }

  /**
   * How long the current call of a thread has been seen, in ms. The slot table alone is not reason enough to end a
   * thread: between a claim and its mark, the idle time counts as the claim's.
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
    this.#watch ??= setInterval(() => this.#look(), WATCH_MS).unref()
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

  /** Reports that no thread could be started, so that clients without one do not wait in vain. */
  #failed(fault: unknown): void {
    this.#lastFailed = performance.now()
    this.#options.onFault(fault)
    for (const { tell } of this.#clients.values()) tell({ type: 'failed', cause: String(fault) })
  }

  get #entry(): URL {
    return this.#options.entry ?? new URL(`./sandbox-worker${extname(import.meta.url)}`, import.meta.url)
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
    for (const { known, tell } of this.#clients.values()) {
      if (known.delete(slot.thread)) tell({ type: 'lost', slot, reason: ending ?? 'died' })
    }
  }

  /** Ends threads whose call should have been stopped long ago, and idle ones; keeps one thread free. */
  #look(): void {
    const tooLong = this.#slotTable.limits.timeoutMs + GRACE_MS
    for (const thread of this.#threads.values()) {
      if (!thread.isReady || thread.ending !== undefined) continue
      if (this.#callMs(thread) > tooLong) {
        this.#slotTable.close(thread.slot)
        this.#end(thread, this.#hasMovedOn(thread) ? 'ended' : 'timeout')
      } else if (
        this.#slotTable.idleMs(thread.slot) > this.#idleMs &&
        this.#slotTable.closeIfFree(thread.slot)
      ) {
        this.#end(thread, 'ended')
      }
    }
    const threads = [...this.#threads.values()]
    if (threads.every(({ slot }) => this.#isHeld(slot)) && this.#mayStart()) this.#start()
  }

  /** Whether a thread had started another call just before it was closed; that call has not timed out. */
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
