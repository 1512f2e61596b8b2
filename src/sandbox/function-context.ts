/** One function of a design document in a QuickJS of its own. */
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
import { ENVIRONMENT } from './environment.ts'
import type { Call, CallKind, UserFunction } from './messages.ts'
import type { FunctionLimits } from './slot-table.ts'

/** What may be called of {@link ENVIRONMENT}. */
type Entry = 'load' | 'share' | 'give' | Exclude<CallKind, 'compile'>

/** Begins a result of a function that threw. */
const THREW = '!'

const ENTRIES: readonly Entry[] = ['load', 'share', 'give', 'filter', 'map', 'reduce', 'validate']

export class FunctionContext {
  readonly limits: FunctionLimits
  readonly #context: QuickJSContext
  readonly #instance: Instance
  readonly #clock: Clock
  readonly #entries: ReadonlyMap<Entry, QuickJSHandle>
  #shared: string | undefined
  #calls = 0
  #isSpent = false

  private constructor(limits: FunctionLimits, instance: Instance, clock: Clock) {
    this.limits = limits
    this.#instance = instance
    this.#context = instance.context
    this.#clock = clock
    const environment = this.#context.unwrapResult(this.#context.evalCode(ENVIRONMENT))
    this.#entries = new Map(ENTRIES.map((entry) => [entry, this.#context.getProp(environment, entry)]))
  }

  /**
   * Compiles a function.
   * @param stack bytes that its calls may nest
   * @throws not_found, compilation_error, function_timeout, function_memory
   */
  static async make(fn: UserFunction, limits: FunctionLimits, stack: number): Promise<FunctionContext> {
    const clock = new Clock()
    const instance = await newInstance(limits.memory, stack, () => clock.isOver())
    const made = new FunctionContext(limits, instance, clock)
    const failure = JSON.parse(made.#enter('load', fn.source, JSON.stringify(fn.path))) as
      | null
      | [code: 'not_found' | 'compilation_error', reason: string]
    if (failure === null) return made
    const [code, reason] = failure
    throw new CouchError(code, code === 'not_found' ? reason : compilationReason(fn.path, reason))
  }

  /** Bytes that it holds. */
  get bytes(): number {
    return this.#instance.memory.buffer.byteLength
  }

  /** Whether it was called before. */
  get isUsed(): boolean {
    return this.#calls > 0
  }

  /** A call has gone beyond its bounds, or left work for later: nothing more is to be run in it. */
  get isSpent(): boolean {
    return this.#isSpent || this.#context.runtime.hasPendingJob()
  }

  /** Sets what all calls that follow have as a further argument. */
  share(text: string): void {
    if (this.#shared === text) return
    this.#shared = undefined
    this.#enter('share', text)
    this.#shared = text
  }

  /**
   * Calls the function.
   * @returns JSON text
   * @throws function_error, function_timeout, function_memory
   */
  call(kind: Exclude<CallKind, 'compile'>, call: Call): string {
    this.#calls += 1
    const texts = typeof call === 'string' ? [call] : call
    // One by one, so that the text of one is gone when the next comes.
    for (const text of texts) this.#enter('give', text)
    const result = this.#enter(kind)
    if (!result.startsWith(THREW)) return result
    // Where there is not even memory for an error that says so, QuickJS throws null.
    if (this.#instance.memory.isExhausted) throw this.#spent(new CouchError('function_memory'))
    if (kind === 'filter') throw new CouchError('function_error', result.slice(1))
    return result.slice(1)
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

  /** Of what the environment did not catch, or what befell WebAssembly itself. */
  #errorOf(thrown: unknown): CouchError {
    if (this.#clock.hasStopped) return new CouchError('function_timeout')
    if (thrown instanceof OutOfMemory || this.#instance.memory.isExhausted)
      return new CouchError('function_memory')
    if (thrown instanceof Uncaught) {
      const isMemory = thrown.message === '' || thrown.message.startsWith('out of memory')
      return isMemory ? new CouchError('function_memory') : new CouchError('function_error', thrown.message)
    }
    // The stack of the thread came to its end before that of QuickJS.
    if (thrown instanceof RangeError) return new CouchError('function_error', 'InternalError: stack overflow')
    return new CouchError('function_error', undefined, { cause: thrown })
  }
}

/** Something thrown that reached the edge of QuickJS. */
class Uncaught extends Error {}

/** Its own message, without running anything of the user's. */
function messageOf(context: QuickJSContext, error: QuickJSHandle): string {
  if (context.typeof(error) !== 'object') return ''
  const message = context.getProp(error, 'message')
  return context.typeof(message) === 'string' ? context.getString(message).slice(0, 200) : ''
}

/** Tells a call when its time is over. */
class Clock {
  #end = Number.POSITIVE_INFINITY
  /** Whether it has stopped the call. */
  hasStopped = false

  start(ms: number): void {
    this.#end = performance.now() + ms
    this.hasStopped = false
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

/** As CouchDB words it for views; protocol.md 1.2. */
function compilationReason(path: readonly string[], detail: string): string {
  const [kind, name, part] = path
  if (kind === 'views' && part !== undefined) {
    return `Compilation of the ${part} function in the '${name}' view failed: ${detail}`
  }
  return `Compilation of the function ${path.join('.')} failed: ${detail}`
}

// An instance of QuickJS of its own for each function. Its own `setMemoryLimit` counts allocations and not their
// sizes in WebAssembly (the C library there does not tell them), so the bound is the WebAssembly memory's: one that
// cannot grow any more. An instance costs about 0.3 MB and 3 ms, nothing in it is shared with another, and it goes
// with its memory, however broken it is.

const PAGE = 65_536
/** Pages that an instance starts with, and needs. */
const INITIAL_PAGES = 256

/** Memory is exhausted where QuickJS cannot say so itself. */
class OutOfMemory extends Error {}

interface Instance {
  readonly context: QuickJSContext
  readonly memory: BoundedMemory
}

/** A memory that notes when it would not grow any more. */
class BoundedMemory extends WebAssembly.Memory {
  /** Whether the last attempt to let it grow, since this was set to false, was in vain. */
  isExhausted = false

  override grow(pages: number): number {
    this.isExhausted = true
    const before = super.grow(pages)
    this.isExhausted = false
    return before
  }
}

let compiled: Promise<WebAssembly.Module> | undefined

/** QuickJS compiled, once for all instances of a thread. */
function compileQuickJS(): Promise<WebAssembly.Module> {
  compiled ??= readQuickJS()
  return compiled
}

async function readQuickJS(): Promise<WebAssembly.Module> {
  const own = createRequire(import.meta.url)
  // The package that holds the file is one of quickjs-emscripten's, and found from there.
  const path = createRequire(own.resolve('quickjs-emscripten')).resolve(
    '@jitl/quickjs-wasmfile-release-sync/wasm',
  )
  return WebAssembly.compile(await readFile(path))
}

/**
 * @param maximum bytes of memory, at least those it starts with (16 MiB)
 * @param stack bytes that its calls may nest
 * @param shouldStop asked now and then while a function runs
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
 * quickjs-emscripten writes to wherever `malloc` points, also when that is nowhere; and Emscripten's own loops that
 * write a text into the memory take a fifth of a call's time.
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

/** Writes a text and the 0 that ends it. The memory's bytes are asked for anew, since growing replaces them. */
function writeText(memory: BoundedMemory, text: string, pointer: number, size: number): void {
  const room = new Uint8Array(memory.buffer, pointer, size)
  const { written } = encoder.encodeInto(text, room.subarray(0, -1))
  room[written] = 0
}

type Imported = Awaited<ReturnType<QuickJSSyncVariant['importModuleLoader']>>

/** Packages of different kinds wrap what they export once or twice. */
function loaderIn(imported: Imported): Extract<Imported, (...given: never) => unknown> {
  if (typeof imported === 'function') return imported
  return loaderIn(imported.default)
}
