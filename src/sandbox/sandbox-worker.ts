/** A sandbox thread: runs pieces of work, and keeps recently used functions ready. */
import { setPriority } from 'node:os'
import { type MessagePort, parentPort, receiveMessageOnPort, workerData } from 'node:worker_threads'
import { CouchError, packError } from '../core/errors.ts'
import { ENVIRONMENT } from './environment.ts'
import { type Exchange, FunctionContext, newInstance } from './function-context.ts'
import {
  type ExchangeReply,
  type ExchangeRequest,
  type Introduction,
  keyOf,
  type Outcome,
  type Piece,
  type RunReply,
  type RunRequest,
  type SandboxThreadOptions,
} from './messages.ts'
import { type FunctionLimits, MAX_GROWN_BYTES, SlotTable } from './slot-table.ts'

/** How long a piece may run before other pieces have their turn, in ms. */
const SLICE_MS = 25
/** How many characters of results a piece may return before other pieces have their turn. */
const MAX_RESULTS = 1_048_576
/**
 * The maximum number of functions that are kept ready. Each reserves some GB of address space, of which small machines
 * have 512 GB.
 */
const MAX_CONTEXTS = 24

/** How long a list waits at a time, in ms, and how often: longer than an answer may stall (http/transport/json-stream.ts). */
const WAIT_MS = 1000
const MAX_WAITS = 330

interface RunnerOptions {
  /** Called before each piece. */
  limits(): FunctionLimits
  /** Bytes of stack for QuickJS; less than the thread's own stack. */
  readonly stack: number
  /** Called before each call. */
  onCall?(): void
  /** By how much the memories of all functions that are kept ready may have grown, in bytes; by default 32 MiB. */
  readonly maxGrownBytes?: number
}

export class Runner {
  readonly #options: RunnerOptions
  /** Least recently used first. */
  readonly #contexts = new Map<string, FunctionContext>()

  constructor(options: RunnerOptions) {
    this.#options = options
  }

  /**
   * Runs a piece, or its first calls. Pieces do not overlap.
   * @param source the design document, if it was sent
   * @param exchange for a list function
   */
  async run(piece: Piece, source: string | null, exchange?: Exchange): Promise<Outcome> {
    const key = keyOf(piece.fn)
    try {
      const context = this.#known(key) ?? (await this.#make(key, piece, source))
      return context === null ? { type: 'unknown' } : this.#callAll(context, piece, exchange)
    } catch (error) {
      return failed(error)
    } finally {
      if (this.#contexts.get(key)?.isSpent === true) this.#contexts.delete(key)
      this.#dropSpare()
    }
  }

  /** The ready function with this key, if it was made under the current limits. */
  #known(key: string): FunctionContext | undefined {
    const context = this.#contexts.get(key)
    this.#contexts.delete(key)
    const { timeoutMs, memory } = this.#options.limits()
    if (context?.limits.timeoutMs !== timeoutMs || context.limits.memory !== memory) return undefined
    this.#contexts.set(key, context)
    return context
  }

  async #make(key: string, { fn }: Piece, source: string | null): Promise<FunctionContext | null> {
    if (source === null) return null
    this.#options.onCall?.()
    const context = await this.#tryTwice(() =>
      FunctionContext.make({ ...fn, source }, this.#options.limits(), this.#options.stack),
    )
    this.#contexts.set(key, context)
    return context
  }

  /** If no address space is left, drops the ready functions and tries again. */
  async #tryTwice(make: () => Promise<FunctionContext>): Promise<FunctionContext> {
    try {
      return await make()
    } catch (error) {
      if (!(error instanceof RangeError) || this.#contexts.size === 0) throw error
      this.#contexts.clear()
      return make()
    }
  }

  /** Of functions whose memory has grown, the least recently used go first. */
  #dropSpare(): void {
    const most = this.#options.maxGrownBytes ?? MAX_GROWN_BYTES
    let grown = 0
    for (const context of this.#contexts.values()) grown += context.grownBytes
    for (const [key, context] of this.#contexts) {
      if (this.#contexts.size === 1) return
      if (this.#contexts.size <= MAX_CONTEXTS && (grown <= most || context.grownBytes === 0)) continue
      this.#contexts.delete(key)
      grown -= context.grownBytes
    }
  }

  #callAll(context: FunctionContext, { kind, shared, calls }: Piece, exchange?: Exchange): Outcome {
    if (kind === 'compile') return { type: 'done', results: ['null'] }
    const wasUsed = context.isUsed
    const end = performance.now() + SLICE_MS
    const results: string[] = []
    let length = 0
    for (const call of calls) {
      try {
        this.#options.onCall?.()
        if (results.length === 0) context.share(shared)
        const result = context.call(kind, call, exchange)
        results.push(result)
        length += result.length
      } catch (error) {
        if (!isOutOfMemory(error)) throw error
        // Earlier calls may have filled the memory, so the function is tried again in a fresh instance.
        if (results.length > 0) break
        if (wasUsed && exchange === undefined) return { type: 'unknown' }
        throw error
      }
      if (length > MAX_RESULTS || performance.now() > end) break
    }
    return { type: 'done', results }
  }
}

function failed(error: unknown): Outcome {
  return { type: 'failed', error: packError(error) }
}

function isOutOfMemory(error: unknown): boolean {
  return error instanceof CouchError && error.code === 'function_memory'
}

/** Bytes of stack for QuickJS; the thread's own stack (sandbox-pool.ts) is large enough for that. */
const STACK = 512 * 1024
/** Keeps endless functions from slowing down the HTTP and database threads. */
const NICENESS = 5

if (parentPort !== null) {
  const { slotTable: memory, slot } = workerData as SandboxThreadOptions
  const slotTable = new SlotTable(memory)
  const runner = new Runner({
    limits: () => slotTable.limits,
    stack: STACK,
    onCall: () => slotTable.begin(slot),
  })

  parentPort.on('message', ({ client, port }: Introduction) => {
    port.on('message', async ({ job, piece, source, signal }: RunRequest) => {
      const exchange = signal === null ? undefined : exchangeOver(port, job, signal)
      const reply: RunReply = { job, outcome: await runner.run(piece, source, exchange).catch(failed) }
      port.postMessage(reply)
      slotTable.release(slot, client)
    })
  })
  lowerPriority()
  await compile()
  parentPort.postMessage('ready')

  /** While it waits, the thread marks new calls, so that the pool does not take it for hanging. */
  function exchangeOver(port: MessagePort, job: number, signal: SharedArrayBuffer): Exchange {
    const cells = new Int32Array(signal)
    return (output) => {
      const request: ExchangeRequest = { job, output }
      port.postMessage(request)
      for (let left = MAX_WAITS; left > 0; left -= 1) {
        const seen = Atomics.load(cells, 0)
        const received = receiveMessageOnPort(port)
        slotTable.begin(slot)
        if (received !== undefined) return (received.message as ExchangeReply).answer
        Atomics.wait(cells, 0, seen, WAIT_MS)
      }
      return null
    }
  }
}

/** Makes a first instance, which takes far longer than later ones, so that no function's time includes this. */
async function compile(): Promise<void> {
  const { context } = await newInstance(0, STACK, () => false)
  context.unwrapResult(context.evalCode(ENVIRONMENT)).dispose()
}

/** Only on Linux: elsewhere a priority applies to the whole process. */
function lowerPriority(): void {
  if (process.platform !== 'linux') return
  try {
    setPriority(NICENESS)
  } catch {
    // Not permitted; the thread works without it.
  }
}
