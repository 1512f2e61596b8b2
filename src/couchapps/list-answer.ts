/** Runs a list function: passes rows to it and its output on to the client, a piece at a time. */
import { CouchError } from '../core/errors.ts'
import { type Sandbox, THREW, type UserFunction } from '../sandbox/messages.ts'
import { type AppHead, readListHead, thrownAnswer } from './app-response.ts'
import type { ListRows } from './list-rows.ts'

/** A piece of output, in the form of render-environment.ts. */
interface Output {
  /** The head, if it has changed. */
  readonly response?: unknown
  readonly body: string
  readonly wants: boolean
}

const NO_ROWS = 'null'

/**
 * The answer in chunks: the JSON of its {@link AppHead}, then the body.
 * @param args JSON texts of the function's arguments
 * @throws at its first chunk, the function's error; later, function_error for what it throws
 */
export async function* listAnswer(
  sandbox: Sandbox,
  fn: UserFunction,
  args: readonly string[],
  rows: ListRows,
): AsyncGenerator<Uint8Array> {
  const outputs = new Handover<Output>()
  let failure: unknown
  const exchange = async (text: string): Promise<string> => {
    const output = JSON.parse(text) as Output
    await outputs.give(output)
    if (!output.wants) return NO_ROWS
    try {
      return (await rows.next()) ?? NO_ROWS
    } catch (error) {
      failure = error
      throw error
    }
  }
  const ended = sandbox.list(fn, args, exchange).finally(() => outputs.close())
  // It is awaited below, unless the client leaves before.
  ended.catch(() => undefined)
  let head = readListHead({})
  let isSent = false
  const begin = (): Uint8Array => {
    isSent = true
    return headBytes(head)
  }
  try {
    for (let output = await outputs.take(); output !== null; output = await outputs.take()) {
      if (!isSent && output.response !== undefined) head = readListHead(output.response)
      if (output.body === '') continue
      if (!isSent) yield begin()
      yield Buffer.from(output.body)
    }
    const result = await ended.catch((error: unknown) => {
      throw failure ?? error
    })
    if (result.startsWith(THREW)) {
      const thrown = thrownAnswer(result)
      if (isSent) throw new CouchError('function_error', 'a list function has failed')
      yield headBytes(thrown)
      yield thrown.body
      return
    }
    const { response, body } = JSON.parse(result) as Output
    if (!isSent && response !== undefined) head = readListHead(response)
    if (!isSent) yield begin()
    if (body !== '') yield Buffer.from(body)
  } finally {
    outputs.close()
    await rows.close()
  }
}

function headBytes({ status, headers }: AppHead): Uint8Array {
  return Buffer.from(JSON.stringify({ status, headers } satisfies AppHead))
}

/** Hands values from one task to another, one at a time: the giver waits until the taker has finished with each. */
class Handover<T> {
  #value: T | null = null
  #isClosed = false
  #taken: { resolve(): void; reject(error: Error): void } | null = null
  #waiting: ((value: T | null) => void) | null = null

  /** Resolves when the taker wants the next value. Rejects if it wants none. */
  give(value: T): Promise<void> {
    if (this.#isClosed) return Promise.reject(new CouchError('unavailable'))
    const given = new Promise<void>((resolve, reject) => {
      this.#taken = { resolve, reject }
    })
    if (this.#waiting === null) this.#value = value
    else {
      this.#waiting(value)
      this.#waiting = null
    }
    return given
  }

  /** The next value; null after the last one. */
  take(): Promise<T | null> {
    const value = this.#value
    this.#value = null
    if (value !== null) return Promise.resolve(value)
    if (this.#isClosed) return Promise.resolve(null)
    this.#taken?.resolve()
    this.#taken = null
    return new Promise((resolve) => {
      this.#waiting = resolve
    })
  }

  /** Ends the exchange on both sides. Idempotent. */
  close(): void {
    this.#isClosed = true
    this.#taken?.reject(new CouchError('unavailable'))
    this.#taken = null
    this.#waiting?.(null)
    this.#waiting = null
  }
}
