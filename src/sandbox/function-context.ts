/** One function of a design document in a QuickJS of its own. */
import type { QuickJSContext, QuickJSHandle } from 'quickjs-emscripten'
import { CouchError } from '../core/errors.ts'
import type { FunctionLimits } from './board.ts'
import { ENVIRONMENT } from './environment.ts'
import { type Instance, newInstance, OutOfMemory } from './quickjs.ts'
import type { UserFunction } from './sandbox.ts'
import type { Call, CallKind } from './work.ts'

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
