/** The HTTP thread's end of one database thread: calls and streams over its port. */
import { Worker } from 'node:worker_threads'
import { CouchError } from '../core/errors.ts'
import { Outbox, ownBytes, type Reply, type Request, type ThreadOptions, unpackError } from './wire.ts'

/** What a thread tells without being asked. */
export type ThreadEvent = Extract<Reply, { type: 'committed' | 'secured' }>

interface Waiting {
  answer(value: unknown): void
  chunk(chunk: Uint8Array): void
  end(): void
  failed(error: unknown): void
}

type Unnumbered<T> = T extends { call: number } ? Omit<T, 'call'> : never

export class Thread {
  readonly #worker: Worker
  readonly #outbox: Outbox<Request>
  readonly #waiting = new Map<number, Waiting>()
  readonly #onEvent: (event: ThreadEvent) => void
  #calls = 0
  #ended = false
  /** Resolves when the thread has ended, with its fault if it died of one. */
  readonly ended: Promise<unknown>

  /** @param entry the file that runs host.ts */
  constructor(entry: URL, options: ThreadOptions, onEvent: (event: ThreadEvent) => void) {
    this.#worker = new Worker(entry, { workerData: options })
    this.#outbox = new Outbox<Request>(this.#worker)
    this.#onEvent = onEvent
    this.#worker.on('message', (replies: readonly Reply[]) => {
      for (const reply of replies) this.#take(reply)
    })
    this.ended = new Promise((resolve) => {
      this.#worker.once('error', (fault) => this.#end(fault, resolve))
      this.#worker.once('exit', () => this.#end(undefined, resolve))
    })
  }

  get isRunning(): boolean {
    return !this.#ended
  }

  #end(fault: unknown, resolve: (fault: unknown) => void): void {
    this.#ended = true
    const error = new CouchError('unavailable', undefined, { cause: fault })
    for (const waiting of this.#waiting.values()) waiting.failed(error)
    this.#waiting.clear()
    resolve(fault)
  }

  #take(reply: Reply): void {
    if (reply.type === 'committed' || reply.type === 'secured') {
      this.#onEvent(reply)
      return
    }
    const waiting = this.#waiting.get(reply.call)
    if (waiting === undefined) return
    if (reply.type === 'chunk') {
      waiting.chunk(reply.chunk)
      return
    }
    this.#waiting.delete(reply.call)
    if (reply.type === 'answer') waiting.answer(reply.value)
    else if (reply.type === 'end') waiting.end()
    else waiting.failed(unpackError(reply.error))
  }

  /** Tells the thread something that has no answer. */
  tell(request: Extract<Request, { type: 'limits' }>): void {
    if (!this.#ended) this.#outbox.post(request)
  }

  /** Asks for one answer. */
  ask(request: Unnumbered<Request>): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const refuse = () => reject(new Error('a stream answered a call'))
      this.#send(request, { answer: resolve, failed: reject, chunk: refuse, end: refuse })
    })
  }

  /** Asks for chunks. Nothing is sent before the first is pulled; one chunk is under way ahead of the reader. */
  async *stream(request: Unnumbered<Request>): AsyncGenerator<Uint8Array> {
    const arrived: (Uint8Array | { readonly error: unknown } | null)[] = []
    let wake: () => void = () => undefined
    const arrive = (item: Uint8Array | { readonly error: unknown } | null) => {
      arrived.push(item)
      wake()
    }
    const call = this.#send(request, {
      answer: () => arrive(null),
      chunk: arrive,
      end: () => arrive(null),
      failed: (error) => arrive({ error }),
    })
    let isOver = false
    const next = async () => {
      while (arrived.length === 0) {
        await new Promise<void>((resolve) => {
          wake = resolve
        })
      }
      const item = arrived.shift() as (typeof arrived)[number]
      isOver = !(item instanceof Uint8Array)
      return item
    }
    try {
      for (let item = await next(); item !== null; item = await next()) {
        if (!(item instanceof Uint8Array)) throw item.error
        this.#follow({ type: 'next', call })
        yield item
      }
    } finally {
      if (!isOver) this.#follow({ type: 'cancel', call })
      // The thread may still read what the request brought, a spooled body for one, until it says that it has ended.
      while (!isOver) await next()
    }
  }

  #follow(request: Extract<Request, { type: 'next' | 'cancel' }>): void {
    if (!this.#ended) this.#outbox.post(request)
  }

  #send(request: Unnumbered<Request>, waiting: Waiting): number {
    this.#calls += 1
    const call = this.#calls
    if (this.#ended) {
      waiting.failed(new CouchError('unavailable'))
      return call
    }
    this.#waiting.set(call, waiting)
    if (request.type === 'call') {
      const args = request.args.map(ownBytes)
      this.#outbox.post({ ...request, call, args }, ...args)
    } else this.#outbox.post({ ...request, call } as Request)
    return call
  }

  /** Finishes the thread's writes, closes its files and ends it. */
  async stop(): Promise<void> {
    if (!this.#ended) await this.ask({ type: 'stop' }).catch(() => undefined)
    await this.#worker.terminate()
  }
}
