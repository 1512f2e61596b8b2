/** The HTTP thread's end of a database thread: starts it, calls it, and ends it. */
import { type MessagePort, type TransferListItem, Worker } from 'node:worker_threads'
import { BytesInTransit } from '../core/bytes.ts'
import { type Heartbeat, heartbeatMemory, isLater, readHeartbeat } from '../core/event-loop.ts'
import type { DatabaseEntry } from '../storage/catalog.ts'
import type { LastKnownSequence } from '../storage/sequence.ts'
import { packArgs } from './message-bytes.ts'
import { RpcClient } from './rpc.ts'
import type { RemoteStream } from './rpc-stream.ts'
import type {
  Answers,
  CallMethod,
  DatabaseCall,
  HoldRequest,
  Notice,
  Query,
  ServedDatabase,
  StreamMethod,
  ThreadEvent,
  ThreadOptions,
} from './thread-protocol.ts'
import { heapLimit } from './thread-stats.ts'

/**
 * Flags that also apply to a single thread. V8's own, such as `--max-old-space-size`, apply to the whole process, and
 * Node refuses them for a thread. Others, such as `--input-type`, concern only the main program.
 */
const THREAD_FLAG = /^--(?:cpu-prof|heap-prof|enable-source-maps|trace-warnings|trace-uncaught)/

/** The subset of Node's flags that apply to a thread. */
export function threadFlags(flags: readonly string[]): string[] {
  return flags.filter((flag) => THREAD_FLAG.test(flag))
}

/**
 * The size of V8's young generation, in MB. By default it grows to 48 MB in each thread under load, and never shrinks
 * (docs/decisions/0030).
 */
const YOUNG_MB = 12
const MB = 1024 * 1024
/** A thread that has not answered for so long is held up, in ms: short reads take a few hundredths of it. */
const HELD_UP_MS = 1

export class Thread {
  readonly #worker: Worker
  readonly #rpc: RpcClient<ThreadEvent>
  readonly #heartbeat = heartbeatMemory()
  readonly #transit = new BytesInTransit()
  #hasExited = false
  /** Why the watchdog has ended the thread. */
  #hangError: Error | undefined
  #suspects: readonly string[] = []
  /** Resolves when the thread has exited, with the fault that ended it, if any. */
  readonly ended: Promise<unknown>

  /** @param entry the file that runs host.ts */
  constructor(entry: URL, options: ThreadOptions, onEvent: (event: ThreadEvent) => void) {
    this.#worker = new Worker(entry, {
      workerData: { ...options, transit: this.#transit.memory, heartbeat: this.#heartbeat },
      execArgv: threadFlags(process.execArgv),
      resourceLimits: {
        maxYoungGenerationSizeMb: YOUNG_MB,
        maxOldGenerationSizeMb: heapLimit(options.settings.limits.threadHeap) / MB,
      },
    })
    this.#rpc = new RpcClient(this.#worker, onEvent, this.#transit)
    this.#worker.on('message', (messages) => this.#rpc.receive(messages))
    let fault: unknown
    this.#worker.on('error', (thrown) => {
      fault ??= thrown
    })
    // A message that cannot be read may be an answer that a caller waits for.
    this.#worker.on('messageerror', (thrown) => {
      fault ??= thrown
      this.#worker.terminate()
    })
    // Resolves at the exit, not before: until then the thread may still have its files open.
    this.ended = new Promise((resolve) => {
      this.#worker.once('exit', () => {
        if (isOutOfMemory(fault)) this.#suspects = this.#databasesBeingServed()
        const cause = this.#hangError ?? fault
        this.#hasExited = true
        // First, so that nobody calls the next thread for a database that goes into quarantine.
        resolve(cause)
        this.#rpc.close(cause)
        this.#transit.lose()
      })
    })
  }

  get isRunning(): boolean {
    return !this.#hasExited
  }

  /** Calls and streams that have not ended. */
  get callsUnderWay(): number {
    return this.#rpc.callsUnderWay
  }

  /** Whether calls wait for the thread, which waits for its disk or is in a long piece of work. */
  get isHeldUp(): boolean {
    return this.#rpc.callsUnderWay > 0 && performance.now() - this.#rpc.waitingSince > HELD_UP_MS
  }

  /** Seconds that the thread's event loop was busy; 0 once it has ended. Needs no answer from the thread. */
  get busySeconds(): number {
    return this.#worker.performance.eventLoopUtilization().active / 1000
  }

  /** The thread's signs of life, which need no answer. */
  pulse(): Heartbeat {
    return readHeartbeat(this.#heartbeat)
  }

  /** Sends a message whose arrival shows that the thread's event loop turns. */
  ping(): void {
    this.notify({ type: 'ping' })
  }

  /**
   * Ends the thread because it hangs. All calls fail at once; {@link ended} resolves when the thread has exited.
   * @param fault why
   */
  endHung(fault: Error): void {
    if (this.#hangError !== undefined || this.#hasExited) return
    this.#suspects = this.#databasesBeingServed()
    this.#hangError = fault
    this.#rpc.close(fault)
    this.#worker.terminate()
  }

  /** The databases that were being served when the thread hung or ran out of memory. */
  get suspects(): readonly string[] {
    return this.#suspects
  }

  /** Databases of calls that have reached the thread and have not ended. */
  #databasesBeingServed(): string[] {
    const { lastCall } = this.pulse()
    return this.#rpc.databasesUnderWay((call) => !isLater(call, lastCall))
  }

  /** Sends a message that has no answer. */
  notify(notice: Notice, ...ports: MessagePort[]): void {
    this.#rpc.send(notice, ports)
  }

  /** Asks for one answer. */
  ask<Q extends Query>(query: Q): Promise<Answers[Q['type']]> {
    return this.#rpc.call({ ...query }) as Promise<Answers[Q['type']]>
  }

  /** Calls a method of a database. @throws as the method; unavailable when the thread ends */
  callMethod(
    entry: DatabaseEntry,
    lastKnown: LastKnownSequence | undefined,
    method: CallMethod,
    args: readonly unknown[],
  ): Promise<unknown> {
    const transfers: TransferListItem[] = []
    const answer = this.#rpc.call(methodCall(entry, lastKnown, method, args, transfers), transfers)
    // Posted at once, because feeds wait for it: the rest of a turn that has woken a hundred feeds takes 0.2 ms.
    if (method === 'changes') this.#rpc.flush()
    return answer
  }

  /** As {@link callMethod}, for a method that answers with a stream. */
  streamMethod(
    entry: DatabaseEntry,
    lastKnown: LastKnownSequence | undefined,
    method: StreamMethod,
    args: readonly unknown[],
  ): RemoteStream {
    const transfers: TransferListItem[] = []
    return this.#rpc.stream(methodCall(entry, lastKnown, method, args, transfers), transfers)
  }

  /**
   * Keeps a database open until it is released or deleted, even if too many are open.
   * @returns a function that releases it
   */
  async hold({ name: database, incarnation, lastKnown }: DatabaseEntry): Promise<() => void> {
    let hold = 0
    const request: HoldRequest = { type: 'hold', database, incarnation, lastKnown }
    await this.#rpc.numberedCall(request, (call) => {
      hold = call
    })
    return () => this.notify({ type: 'release', hold })
  }

  /** Finishes the thread's writes, closes its files and ends it. */
  async stop(): Promise<void> {
    if (!this.#rpc.isClosed) await this.ask({ type: 'stop' }).catch(() => undefined)
    await this.#worker.terminate()
  }
}

function methodCall(
  { name: database, incarnation }: DatabaseEntry,
  lastKnown: LastKnownSequence | undefined,
  method: keyof ServedDatabase,
  given: readonly unknown[],
  transfers: TransferListItem[],
): DatabaseCall {
  const { args, textAt } = packArgs(given, transfers)
  return { type: 'call', database, incarnation, lastKnown, method, args, textAt }
}

function isOutOfMemory(fault: unknown): boolean {
  return fault instanceof Error && 'code' in fault && fault.code === 'ERR_WORKER_OUT_OF_MEMORY'
}
