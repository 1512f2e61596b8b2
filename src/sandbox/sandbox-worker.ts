/** Runs pieces of work, and keeps the functions that were run last ready for the next. */
import { setPriority } from 'node:os'
import { parentPort, workerData } from 'node:worker_threads'
import { CouchError, packError } from '../core/errors.ts'
import { ENVIRONMENT } from './environment.ts'
import { FunctionContext, newInstance } from './function-context.ts'
import {
  type Introduction,
  keyOf,
  type Outcome,
  type Piece,
  type RunReply,
  type RunRequest,
  type SandboxThreadOptions,
} from './messages.ts'
import { type FunctionLimits, SlotTable } from './slot-table.ts'

/** After so long a piece gives way to others, in ms. */
const SLICE_MS = 25
/** Characters of results from which on a piece gives way. */
const MAX_RESULTS = 1_048_576
/** Functions kept ready. Each reserves some GB of addresses, of which small machines have 512. */
const MAX_CONTEXTS = 24
/** Bytes of memory of all functions that are kept ready, more than one only. */
const MAX_BYTES = 512 * 1_048_576

interface RunnerOptions {
  /** Asked before each piece. */
  limits(): FunctionLimits
  /** Bytes that calls may nest in QuickJS: less than the stack of the thread holds. */
  readonly stack: number
  /** Called before each call. */
  onCall?(): void
  /** Bytes of all functions that are kept ready; by default 512 MiB. */
  readonly maxBytes?: number
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
   * @param source the design document, if it came along
   */
  async run(piece: Piece, source: string | null): Promise<Outcome> {
    const key = keyOf(piece.fn)
    try {
      const context = this.#known(key) ?? (await this.#make(key, piece, source))
      return context === null ? { type: 'unknown' } : this.#callAll(context, piece)
    } catch (error) {
      return failed(error)
    } finally {
      if (this.#contexts.get(key)?.isSpent === true) this.#contexts.delete(key)
      this.#dropSpare()
    }
  }

  /** A function that is ready, and was made under the limits of now. */
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

  /** Where there are no addresses left for a memory, those of the functions that are ready are given up. */
  async #tryTwice(make: () => Promise<FunctionContext>): Promise<FunctionContext> {
    try {
      return await make()
    } catch (error) {
      if (!(error instanceof RangeError) || this.#contexts.size === 0) throw error
      this.#contexts.clear()
      return make()
    }
  }

  #dropSpare(): void {
    let bytes = 0
    for (const context of this.#contexts.values()) bytes += context.bytes
    for (const [key, context] of this.#contexts) {
      if (this.#contexts.size === 1) return
      if (this.#contexts.size <= MAX_CONTEXTS && bytes <= (this.#options.maxBytes ?? MAX_BYTES)) return
      this.#contexts.delete(key)
      bytes -= context.bytes
    }
  }

  #callAll(context: FunctionContext, { kind, shared, calls }: Piece): Outcome {
    if (kind === 'compile') return { type: 'done', results: ['null'] }
    const wasUsed = context.isUsed
    const end = performance.now() + SLICE_MS
    const results: string[] = []
    let length = 0
    for (const call of calls) {
      try {
        this.#options.onCall?.()
        if (results.length === 0) context.share(shared)
        const result = context.call(kind, call)
        results.push(result)
        length += result.length
      } catch (error) {
        if (!isOutOfMemory(error)) throw error
        // It may have filled its memory with what earlier calls left: a fresh one will show.
        if (results.length > 0) break
        if (wasUsed) return { type: 'unknown' }
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

// A sandbox thread: runs functions for whichever database thread has claimed it.

/** Bytes that calls may nest in QuickJS; the thread's own stack (sandbox-pool.ts) is large enough for whatever fits in it. */
const STACK = 512 * 1024
/** Functions that count for ever shall not slow down the threads that serve. */
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
    port.on('message', async ({ job, piece, source }: RunRequest) => {
      const reply: RunReply = { job, outcome: await runner.run(piece, source).catch(failed) }
      port.postMessage(reply)
      slotTable.release(slot, client)
    })
  })
  lowerPriority()
  await compile()
  parentPort.postMessage('ready')
}

/** The first instance takes far longer than the next: that is no time of a function's. */
async function compile(): Promise<void> {
  const { context } = await newInstance(0, STACK, () => false)
  context.unwrapResult(context.evalCode(ENVIRONMENT)).dispose()
}

/** Only Linux knows a priority for a thread; elsewhere it would be the whole process's. */
function lowerPriority(): void {
  if (process.platform !== 'linux') return
  try {
    setPriority(NICENESS)
  } catch {
    // Forbidden here: it works without.
  }
}
