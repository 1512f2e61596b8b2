/** The HTTP thread's end of one database thread: calls and streams over its port. */
import { type MessagePort, type TransferListItem, Worker } from 'node:worker_threads'
import { CouchError } from '../core/errors.ts'
import { heartbeatMemory, isLater, type Pulse, readPulse } from '../core/heartbeat.ts'
import { holdOutgoing, releaseOutgoing, Transit } from '../core/outgoing.ts'
import type { DatabaseEntry } from '../storage/catalog.ts'
import { heapLimit } from './thread-stats.ts'
import {
  Outbox,
  outgoingIn,
  packArgs,
  type Reply,
  type Request,
  type ThreadOptions,
  unpackError,
} from './wire.ts'

/** What a thread tells without being asked. */
export type ThreadEvent = Extract<
  Reply,
  { type: 'committed' | 'putBack' | 'secured' | 'alarm' | 'compaction' | 'faulty' | 'full' }
>

/** As it is asked: what else the message needs is added when it is sent. */
type Unnumbered<T> = T extends { call: number } ? Omit<T, 'call' | 'textAt'> : never

/**
 * Flags that mean the same in a thread. V8's own, such as `--max-old-space-size`, are of the whole process, and Node
 * refuses them for a thread; others, such as `--input-type`, are about the main program's own text.
 */
const THREAD_FLAG = /^--(?:cpu-prof|heap-prof|enable-source-maps|trace-warnings|trace-uncaught)/

/** Of Node's flags those that a database thread is started with. */
export function threadFlags(flags: readonly string[]): string[] {
  return flags.filter((flag) => THREAD_FLAG.test(flag))
}

function isEvent(reply: Reply): reply is ThreadEvent {
  return EVENTS.has(reply.type)
}

const EVENTS: ReadonlySet<Reply['type']> = new Set([
  'committed',
  'putBack',
  'secured',
  'alarm',
  'compaction',
  'faulty',
  'full',
])

/**
 * Room for young objects, in MB: V8 lets it grow to 48 under load, in each thread, and gives nothing back
 * (docs/decisions/0030).
 */
const YOUNG_MB = 12
const MB = 1024 * 1024

export class Thread {
  readonly #worker: Worker
  readonly #outbox: Outbox<Request>
  readonly #waiting = new Map<number, Waiting>()
  /** The databases of {@link #waiting}. */
  readonly #asked = new Map<number, string>()
  readonly #heartbeat = heartbeatMemory()
  readonly #transit = new Transit()
  readonly #onEvent: (event: ThreadEvent) => void
  readonly #onSandbox: () => void
  #calls = 0
  #ended = false
  /** Why it was ended from outside. */
  #hung: Error | undefined
  #suspects: readonly string[] = []
  /** Resolves when the thread has ended, with its fault if it died of one. */
  readonly ended: Promise<unknown>

  /**
   * @param entry the file that runs host.ts
   * @param onSandbox called when functions wait there for a sandbox thread
   */
  constructor(
    entry: URL,
    options: ThreadOptions,
    onEvent: (event: ThreadEvent) => void,
    onSandbox: () => void,
  ) {
    this.#worker = new Worker(entry, {
      workerData: { ...options, transit: this.#transit.memory, heartbeat: this.#heartbeat },
      execArgv: threadFlags(process.execArgv),
      resourceLimits: {
        maxYoungGenerationSizeMb: YOUNG_MB,
        maxOldGenerationSizeMb: heapLimit(options.settings.limits.threadHeap) / MB,
      },
    })
    this.#outbox = new Outbox<Request>(this.#worker)
    this.#onEvent = onEvent
    this.#onSandbox = onSandbox
    this.#worker.on('message', (replies: readonly Reply[]) => {
      for (const reply of replies) this.#take(reply)
    })
    let fault: unknown
    this.#worker.on('error', (thrown) => {
      fault ??= thrown
    })
    // A message that cannot be read may be the answer that somebody waits for.
    this.#worker.on('messageerror', (thrown) => {
      fault ??= thrown
      this.#worker.terminate()
    })
    // Not before: until then the thread may still hold its databases' files.
    this.ended = new Promise((resolve) => {
      this.#worker.once('exit', () => {
        if (isOutOfMemory(fault)) this.#suspects = this.#underWay()
        const cause = this.#hung ?? fault
        this.#end(cause)
        resolve(cause)
      })
    })
  }

  get isRunning(): boolean {
    return !this.#ended
  }

  /** Calls and streams that are not over. */
  get callsUnderWay(): number {
    return this.#waiting.size
  }

  /** Seconds that its event loop was not waiting for anything; 0 once it has ended. Known without its help. */
  get busySeconds(): number {
    return this.#worker.performance.eventLoopUtilization().active / 1000
  }

  /** What the thread shows of itself without being asked. */
  pulse(): Pulse {
    return readPulse(this.#heartbeat)
  }

  /** Sends a message that does nothing, but to show that the thread's event loop turns. */
  ping(): void {
    this.tell({ type: 'ping' })
  }

  /**
   * Ends the thread, which hangs. Whoever waits is refused at once; {@link ended} resolves when the thread is gone.
   * @param fault why
   */
  hang(fault: Error): void {
    if (this.#hung !== undefined || this.#ended) return
    this.#suspects = this.#underWay()
    this.#hung = fault
    this.#refuseAll(fault)
    this.#worker.terminate()
  }

  /** The databases that were being served when the thread hung or ran out of memory. */
  get suspects(): readonly string[] {
    return this.#suspects
  }

  /** Databases of calls that have reached the thread and are not over. */
  #underWay(): string[] {
    const { lastCall } = this.pulse()
    const found = new Set<string>()
    for (const [call, database] of this.#asked) if (!isLater(call, lastCall)) found.add(database)
    return [...found]
  }

  #end(fault: unknown): void {
    this.#ended = true
    this.#refuseAll(fault)
    this.#transit.lose()
  }

  #refuseAll(cause: unknown): void {
    const error = new CouchError('unavailable', undefined, { cause })
    const all = [...this.#waiting.values()]
    this.#waiting.clear()
    this.#asked.clear()
    for (const waiting of all) waiting.failed(error)
  }

  /** Whether nothing can be asked of it any more. */
  get #isOver(): boolean {
    return this.#ended || this.#hung !== undefined
  }

  #take(reply: Reply): void {
    this.#transit.arrive(outgoingIn(reply))
    if (isEvent(reply)) {
      this.#onEvent(reply)
      return
    }
    if (reply.type === 'sandbox') {
      this.#onSandbox()
      return
    }
    const waiting = this.#waiting.get(reply.call)
    if (waiting === undefined) return
    if (reply.type === 'chunk') {
      waiting.chunk(reply.chunk)
      return
    }
    this.#waiting.delete(reply.call)
    this.#asked.delete(reply.call)
    if (reply.type === 'answer') waiting.answer(reply.value)
    else if (reply.type === 'end') waiting.end()
    else waiting.failed(unpackError(reply.error))
  }

  /** Tells the thread something that has no answer. */
  tell(
    request: Extract<Request, { type: 'settings' | 'space' | 'sandbox' | 'ping' }>,
    ...ports: MessagePort[]
  ): void {
    if (!this.#isOver) this.#outbox.post(request, ports)
  }

  /** Asks for one answer. */
  ask(request: Unnumbered<Request>): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.#send(request, new Asked(resolve, reject))
    })
  }

  /**
   * Keeps a database open, however many others are wanted, but not against its deletion.
   * @returns what lets it go
   */
  async hold({ name: database, incarnation, mark }: DatabaseEntry): Promise<() => void> {
    let call = 0
    await new Promise((resolve, reject) => {
      call = this.#send({ type: 'hold', database, incarnation, mark }, new Asked(resolve, reject))
    })
    return () => this.#follow({ type: 'release', call })
  }

  /** Asks for chunks. Nothing is sent before the first is pulled; one chunk is ahead of the one being read (flow.ts). */
  async *stream(request: Unnumbered<Request>): AsyncGenerator<Uint8Array> {
    const arrivals = new Arrivals()
    const call = this.#send(request, arrivals)
    try {
      for (let item = await arrivals.next(); item !== null; item = await arrivals.next()) {
        yield item
        this.#follow({ type: 'next', call })
      }
    } finally {
      if (!arrivals.isOver) this.#follow({ type: 'cancel', call })
      // The thread may still read what the request brought, a spooled body for one, until it says that it has ended.
      await arrivals.over()
      arrivals.drop()
    }
  }

  #follow(request: Extract<Request, { type: 'next' | 'cancel' | 'release' }>): void {
    if (!this.#isOver) this.#outbox.post(request)
  }

  #send(request: Unnumbered<Request>, waiting: Waiting): number {
    this.#calls += 1
    const call = this.#calls
    if (this.#isOver) {
      waiting.failed(new CouchError('unavailable'))
      return call
    }
    if (request.type === 'call') {
      const { database, incarnation, mark, method } = request
      const transfers: TransferListItem[] = []
      const { args, textAt } = packArgs(request.args, transfers)
      this.#outbox.post({ type: 'call', call, database, incarnation, mark, method, args, textAt }, transfers)
      // What feeds wait for goes at once: the rest of a turn that woke a hundred of them takes 0.2 ms.
      if (method === 'changes') this.#outbox.flush()
    } else this.#outbox.post({ ...request, call } as Request)
    this.#waiting.set(call, waiting)
    if ('database' in request) this.#asked.set(call, request.database)
    return call
  }

  /** Finishes the thread's writes, closes its files and ends it. */
  async stop(): Promise<void> {
    if (!this.#isOver) await this.ask({ type: 'stop' }).catch(() => undefined)
    await this.#worker.terminate()
  }
}

function isOutOfMemory(fault: unknown): boolean {
  return fault instanceof Error && 'code' in fault && fault.code === 'ERR_WORKER_OUT_OF_MEMORY'
}

// Who waits for what a thread answers: for one answer, or for the chunks of a stream.

/** Takes what a thread replies to one call. */
interface Waiting {
  answer(value: unknown): void
  chunk(chunk: Uint8Array): void
  end(): void
  failed(error: unknown): void
}

/** Somebody who waits for one answer. */
class Asked implements Waiting {
  readonly answer: (value: unknown) => void
  readonly failed: (error: unknown) => void

  constructor(resolve: (value: unknown) => void, reject: (error: unknown) => void) {
    this.answer = resolve
    this.failed = reject
  }

  chunk(): void {
    this.failed(new Error('a stream answered a call'))
  }

  end(): void {
    this.chunk()
  }
}

/** What has come of a stream and was not read yet. */
class Arrivals implements Waiting {
  readonly #arrived: (Uint8Array | { readonly error: unknown } | null)[] = []
  #wake: () => void = () => undefined
  /** Whether the stream's end has arrived. */
  isOver: boolean = false

  chunk(chunk: Uint8Array): void {
    holdOutgoing(chunk.length)
    this.#arrived.push(chunk)
    this.#wake()
  }

  answer(): void {
    this.end()
  }

  end(): void {
    this.#last(null)
  }

  failed(error: unknown): void {
    this.#last({ error })
  }

  #last(item: { readonly error: unknown } | null): void {
    this.#arrived.push(item)
    this.isOver = true
    this.#wake()
  }

  /** The next chunk; null at the end. @throws what the stream failed with */
  async next(): Promise<Uint8Array | null> {
    while (this.#arrived.length === 0) await this.#arrival()
    const item = this.#arrived.shift()
    if (item instanceof Uint8Array) {
      releaseOutgoing(item.length)
      return item
    }
    if (item) throw item.error
    return null
  }

  /** Throws away what nobody will read. */
  drop(): void {
    for (const item of this.#arrived.splice(0)) if (item instanceof Uint8Array) releaseOutgoing(item.length)
  }

  /** Resolves when the stream's end has arrived, whatever it is. */
  async over(): Promise<void> {
    while (!this.isOver) await this.#arrival()
  }

  #arrival(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve
    })
  }
}
