/** One function of a design document in its own QuickJS instance. */
import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import {
  newQuickJSWASMModuleFromVariant,
  newVariant,
  type QuickJSContext,
  type QuickJSHandle,
  type QuickJSSyncVariant,
  RELEASE_SYNC,
} from 'quickjs-emscripten'
import { CouchError } from '../core/errors.ts'
import { ENVIRONMENT, REALM } from './environment.ts'
import { type Call, type CallKind, THREW, type UserFunction } from './messages.ts'
import type { FunctionLimits } from './slot-table.ts'

/** The entry points of {@link ENVIRONMENT}. */
type Entry = 'load' | 'share' | 'give' | 'connect' | Exclude<CallKind, 'compile'>

/** The kinds of functions that answer requests. */
const RENDERS: ReadonlySet<CallKind> = new Set(['show', 'list', 'update', 'rewrite'])

const ENTRIES: readonly Entry[] = [
  ...(['load', 'share', 'give', 'connect'] as const),
  ...(['filter', 'map', 'mapViews', 'reduce', 'validate', 'show', 'list', 'update', 'rewrite'] as const),
]

/**
 * Sends the output of a list function and waits for rows: render-environment.ts.
 * @returns JSON text; null: the list is not needed any more
 */
export type Exchange = (output: string) => string | null

export class FunctionContext {
  readonly limits: FunctionLimits
  readonly #context: QuickJSContext
  readonly #instance: Instance
  readonly #clock: Clock
  readonly #entries: ReadonlyMap<Entry, QuickJSHandle>
  #shared: string | undefined
  #calls = 0
  #isSpent = false
  #exchange: Exchange | undefined

  private constructor(limits: FunctionLimits, instance: Instance, clock: Clock) {
    this.limits = limits
    this.#instance = instance
    this.#context = instance.context
    this.#clock = clock
    const environment = this.#context.unwrapResult(this.#context.evalCode(ENVIRONMENT))
    this.#entries = new Map(ENTRIES.map((entry) => [entry, this.#context.getProp(environment, entry)]))
    const exchange = this.#context.newFunction('exchange', (output, wants) => this.#answer(output, wants))
    const newRealm = this.#context.newFunction('newRealm', () => this.#newRealm())
    this.#context.callFunction(this.#entries.get('connect')!, this.#context.undefined, exchange, newRealm)
  }

  /**
   * Compiles a function.
   * @param stack the size of the QuickJS stack, in bytes
   * @throws not_found, compilation_error, function_timeout, function_memory
   */
  static async make(fn: UserFunction, limits: FunctionLimits, stack: number): Promise<FunctionContext> {
    const clock = new Clock()
    const instance = await newInstance(limits.memory, stack, () => clock.isOver())
    const made = new FunctionContext(limits, instance, clock)
    const failure = JSON.parse(made.#enter('load', fn.source, JSON.stringify(fn.path), fn.ddoc)) as
      | null
      | [code: 'not_found' | 'compilation_error', reason: string]
    if (failure === null) return made
    if (instance.memory.isExhausted) throw new CouchError('function_memory')
    throw new CouchError(...failure)
  }

  /** By how much its memory has grown beyond what every function has, in bytes. */
  get grownBytes(): number {
    return this.#instance.memory.buffer.byteLength - INITIAL_PAGES * PAGE
  }

  /** Whether the function has been called. */
  get isUsed(): boolean {
    return this.#calls > 0
  }

  /** Whether a call has exceeded its limits or left pending work, so that no further call may run here. */
  get isSpent(): boolean {
    return this.#isSpent || this.#context.runtime.hasPendingJob()
  }

  /** Sets an additional argument for all later calls. */
  share(text: string): void {
    if (this.#shared === text) return
    this.#shared = undefined
    this.#enter('share', text)
    this.#shared = text
  }

  /**
   * Calls the function.
   * @param exchange for a list function
   * @returns JSON text; of a function that answers a request, with {@link THREW} in front if it threw
   * @throws function_error, function_timeout, function_memory
   */
  call(kind: Exclude<CallKind, 'compile'>, call: Call, exchange?: Exchange): string {
    this.#calls += 1
    this.#exchange = exchange
    const texts = typeof call === 'string' ? [call] : call
    // Texts are passed one by one, so that only one is in memory at a time.
    for (const text of texts) this.#enter('give', text)
    const result = this.#enter(kind)
    if (!result.startsWith(THREW)) return result
    // QuickJS throws null when there is no memory left even for an error.
    if (this.#instance.memory.isExhausted) throw this.#spent(new CouchError('function_memory'))
    if (kind === 'filter') throw new CouchError('function_error', result.slice(1))
    return RENDERS.has(kind) ? result : result.slice(1)
  }

  /**
   * Waits for the answer to a list function. The wait does not count as its time, which begins anew only with rows: a
   * function that sends text without end is stopped.
   */
  #answer(output: QuickJSHandle, wants: QuickJSHandle): QuickJSHandle {
    const text = this.#context.getString(output)
    const left = this.#clock.left
    this.#clock.stop()
    const answer = this.#exchange?.(text) ?? null
    const time = this.#context.dump(wants) === true ? this.limits.timeoutMs : left
    this.#clock.start(answer === null ? 0 : time)
    return this.#context.newString(answer ?? 'null')
  }

  /** Built-in objects for one function, as {@link REALM} lists them. They are freed with the instance. */
  #newRealm(): QuickJSHandle {
    const realm = this.#context.runtime.newContext()
    if (this.#instance.memory.isExhausted) throw new OutOfMemory()
    return realm.unwrapResult(realm.evalCode(REALM))
  }

  #enter(entry: Entry, ...texts: readonly string[]): string {
    this.#clock.start(this.limits.timeoutMs)
    this.#instance.memory.isExhausted = false
    try {
      return this.#run(entry, texts)
    } catch (thrown) {
      throw this.#spent(this.#errorOf(thrown))
    } finally {
      this.#clock.stop()
    }
  }

  #run(entry: Entry, texts: readonly string[]): string {
    const context = this.#context
    const given = texts.map((text) => context.newString(text))
    const called = context.callFunction(this.#entries.get(entry)!, context.undefined, ...given)
    for (const handle of given) handle.dispose()
    if (called.error !== undefined) throw new Uncaught(messageOf(context, called.error))
    const result = context.getString(called.value)
    called.value.dispose()
    return result
  }

  #spent(error: CouchError): CouchError {
    this.#isSpent = true
    return error
  }

  /** Converts errors that the environment did not catch, and errors of WebAssembly itself. */
  #errorOf(thrown: unknown): CouchError {
    if (this.#clock.hasStopped) return new CouchError('function_timeout')
    if (thrown instanceof OutOfMemory || this.#instance.memory.isExhausted)
      return new CouchError('function_memory')
    if (thrown instanceof Uncaught) {
      const isMemory = thrown.message === '' || thrown.message.startsWith('out of memory')
      return isMemory ? new CouchError('function_memory') : new CouchError('function_error', thrown.message)
    }
    // The thread's stack overflowed before that of QuickJS.
    if (thrown instanceof RangeError) return new CouchError('function_error', 'InternalError: stack overflow')
    return new CouchError('function_error', undefined, { cause: thrown })
  }
}

/** An error that left QuickJS. */
class Uncaught extends Error {}

/** The error's own message, read without running any of the user's code. */
function messageOf(context: QuickJSContext, error: QuickJSHandle): string {
  if (context.typeof(error) !== 'object') return ''
  const message = context.getProp(error, 'message')
  return context.typeof(message) === 'string' ? context.getString(message).slice(0, 200) : ''
}

/** Stops a call when its time is over. */
class Clock {
  #end = Number.POSITIVE_INFINITY
  /** Whether it has stopped the call. */
  hasStopped = false

  start(ms: number): void {
    this.#end = performance.now() + ms
    this.hasStopped = false
  }

  /** The time that is left, in ms. */
  get left(): number {
    return this.#end - performance.now()
  }

  stop(): void {
    this.#end = Number.POSITIVE_INFINITY
  }

  isOver(): boolean {
    if (performance.now() < this.#end) return false
    this.hasStopped = true
    return true
  }
}

// In WebAssembly, QuickJS's `setMemoryLimit` counts allocations, not their sizes, since the C library there does not
// report sizes. So the limit is set on the WebAssembly memory, which cannot grow beyond it. An instance costs about 0.3
// MB and 3 ms, shares nothing, and is freed with its memory in any state.
const PAGE = 65_536
/** The number of pages that an instance needs at the start. */
const INITIAL_PAGES = 256

/** Thrown when memory is exhausted where QuickJS cannot throw an error itself. */
class OutOfMemory extends Error {}

interface Instance {
  readonly context: QuickJSContext
  readonly memory: BoundedMemory
}

/** A memory that records when it could not grow. */
class BoundedMemory extends WebAssembly.Memory {
  /** Whether an attempt to grow has failed since this was last set to false. */
  isExhausted = false

  override grow(pages: number): number {
    this.isExhausted = true
    const before = super.grow(pages)
    this.isExhausted = false
    return before
  }
}

let compiled: Promise<WebAssembly.Module> | undefined

/** QuickJS, compiled once for all instances of a thread. */
function compileQuickJS(): Promise<WebAssembly.Module> {
  compiled ??= readQuickJS()
  return compiled
}

async function readQuickJS(): Promise<WebAssembly.Module> {
  const own = createRequire(import.meta.url)
  // The file is in a dependency of quickjs-emscripten, so it is resolved from there.
  const path = createRequire(own.resolve('quickjs-emscripten')).resolve(
    '@jitl/quickjs-wasmfile-release-sync/wasm',
  )
  return WebAssembly.compile(await readFile(path))
}

/**
 * @param maximum the maximum memory in bytes, at least its initial size (16 MiB)
 * @param stack the size of the QuickJS stack, in bytes
 * @param shouldStop called at intervals while a function runs
 */
export async function newInstance(
  maximum: number,
  stack: number,
  shouldStop: () => boolean,
): Promise<Instance> {
  const pages = Math.max(INITIAL_PAGES, Math.floor(maximum / PAGE))
  const memory = new BoundedMemory({ initial: INITIAL_PAGES, maximum: pages })
  const wasmModule = await compileQuickJS()
  const variant = newVariant(RELEASE_SYNC, { wasmModule, wasmMemory: memory })
  const module = await newQuickJSWASMModuleFromVariant(adapted(variant, memory))
  const runtime = module.newRuntime({ interruptHandler: shouldStop, maxStackSizeBytes: stack })
  return { context: runtime.newContext(), memory }
}

/**
 * Works around two properties of quickjs-emscripten. It writes to the address that `malloc` returns, even if that is 0.
 * And its loops that write a text into the memory take a fifth of a call's time.
 */
function adapted(variant: QuickJSSyncVariant, memory: BoundedMemory): QuickJSSyncVariant {
  const importModuleLoader: QuickJSSyncVariant['importModuleLoader'] = async () => {
    const load = loaderIn(await variant.importModuleLoader())
    return async (options) => {
      const module = await load(options)
      const malloc = module._malloc
      module._malloc = (size) => {
        const pointer = malloc(size)
        if (pointer === 0) throw new OutOfMemory()
        return pointer
      }
      module.lengthBytesUTF8 = (text) => Buffer.byteLength(text)
      module.stringToUTF8 = (text, pointer, size = 0) => writeText(memory, text, pointer, size)
      return module
    }
  }
  return { ...variant, importModuleLoader }
}

const encoder = new TextEncoder()

/**
 * Writes a text with its final 0. The view of the memory is created anew each time, because growing replaces the
 * buffer.
 */
function writeText(memory: BoundedMemory, text: string, pointer: number, size: number): void {
  const room = new Uint8Array(memory.buffer, pointer, size)
  const { written } = encoder.encodeInto(text, room.subarray(0, -1))
  room[written] = 0
}

type Imported = Awaited<ReturnType<QuickJSSyncVariant['importModuleLoader']>>

/** CommonJS and ES packages wrap their export once or twice. */
function loaderIn(imported: Imported): Extract<Imported, (...given: never) => unknown> {
  if (typeof imported === 'function') return imported
  return loaderIn(imported.default)
}
