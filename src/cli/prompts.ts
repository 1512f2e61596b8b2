/** Questions to the user at the terminal, and passwords and passphrases from standard input and files. */
import { createReadStream } from 'node:fs'
import type { Readable, Writable } from 'node:stream'

interface Choice<Value extends string> {
  readonly value: Value
  readonly label: string
}

/** @returns the fault of an answer, as a sentence; undefined: none */
type Check = (answer: string) => string | undefined

/** Each method throws an Error if the user cancels. */
export interface Prompts {
  /** @param options.initial the answer if the user only presses Enter */
  text(question: string, options: { readonly initial?: string; readonly check?: Check }): Promise<string>
  /** Does not show what the user types. */
  password(question: string, check?: Check): Promise<string>
  choose<Value extends string>(question: string, choices: readonly Choice<Value>[]): Promise<Value>
  /** Enter without an answer means no. */
  confirm(question: string): Promise<boolean>
}

interface PromptStreams {
  readonly input: Readable
  readonly output: Writable
}

/**
 * @returns prompts at this process's terminal; null if standard input is not a terminal. The questions go to standard
 *   error, because standard output may go to a file
 */
export async function terminalPrompts(): Promise<Prompts | null> {
  if (!process.stdin.isTTY) return null
  // Serial consoles and some containers report a width of 0, at which clack would wrap after each letter.
  process.stderr.columns ||= 80
  return clackPrompts({ input: process.stdin, output: process.stderr })
}

/** @returns prompts that use @clack/prompts */
export async function clackPrompts({ input, output }: PromptStreams): Promise<Prompts> {
  const { confirm, isCancel, password, select, text } = await import('@clack/prompts')
  // clack cancels at Ctrl-C and Escape, but would wait forever at Ctrl-D and at the end of input.
  const ended = new AbortController()
  input.on('end', () => ended.abort())
  input.on('keypress', (_text, key?: { readonly ctrl: boolean; readonly name: string }) => {
    if (key?.ctrl && key.name === 'd') ended.abort()
  })
  const streams = { input, output, signal: ended.signal }
  const answered = async <Answer>(answer: Promise<Answer>): Promise<Exclude<Answer, symbol>> => {
    const given = await answer
    if (isCancel(given)) throw new Error('Cancelled; nothing has changed.')
    return given as Exclude<Answer, symbol>
  }
  return {
    text: async (message, { initial, check }) => {
      const given = await answered(
        text({
          message,
          ...streams,
          ...(initial !== undefined && { placeholder: initial, defaultValue: initial }),
          validate: (answer) => check?.(answer || (initial ?? '')),
        }),
      )
      return given ?? initial ?? ''
    },
    password: async (message, check) => {
      const validate = (answer?: string) => check?.(answer ?? '')
      return (await answered(password({ message, ...streams, validate }))) ?? ''
    },
    choose: async <Value extends string>(message: string, choices: readonly Choice<Value>[]) => {
      const options = choices.map(({ value, label }) => ({ value: value as string, label }))
      return (await answered(select({ message, options, ...streams }))) as Value
    },
    confirm: (message) => answered(confirm({ message, initialValue: false, ...streams })),
  }
}

/** @throws Error if the user says no */
export async function confirmOrStop(prompts: Pick<Prompts, 'confirm'>, question: string): Promise<void> {
  if (!(await prompts.confirm(question))) throw new Error('Nothing has changed.')
}

/**
 * Asks for a new password, twice.
 * @throws Error if the two differ, or the user cancels
 */
export async function askNewPassword(prompts: Pick<Prompts, 'password'>, name: string): Promise<string> {
  const password = await prompts.password(`New password for ${name}`, (typed) =>
    typed === '' ? 'The password must not be empty.' : undefined,
  )
  if ((await prompts.password('Repeat the password')) === password) return password
  throw new Error('The passwords do not match; nothing has changed.')
}

/** The maximum length of a secret in bytes, so that a wrong file is not read to its end. */
const MAX_BYTES = 4096

/**
 * Reads a password from a stream: one line, without its line end.
 * @throws Error if it is empty, too long, several lines or not UTF-8
 */
export async function readPassword(input: Readable): Promise<string> {
  const password = await readSecret(input, 'The password on standard input')
  if (password === '') throw new Error('There is no password on standard input.')
  return password
}

/**
 * Reads a passphrase from a file: one line, without its line end.
 * @throws Error with a one-line message if the file is missing, empty, too long, several lines or not UTF-8
 */
export async function readPassphrase(file: string): Promise<string> {
  const what = `The passphrase in ${file}`
  const passphrase = await readSecret(createReadStream(file), what).catch((error: NodeJS.ErrnoException) => {
    if (error.code === undefined) throw error
    throw new Error(`The file ${file} given with --passphrase-file cannot be read (${error.code}).`, {
      cause: error,
    })
  })
  if (passphrase.trim() === '') throw new Error(`${what} is empty.`)
  return passphrase
}

/**
 * @param what the subject of error messages
 * @throws Error if it is too long, several lines or not UTF-8; as the input
 */
async function readSecret(input: Readable, what: string): Promise<string> {
  const chunks: Buffer[] = []
  let length = 0
  for await (const chunk of input) {
    chunks.push(chunk as Buffer)
    length += (chunk as Buffer).length
    if (length > MAX_BYTES) throw new Error(`${what} is longer than ${MAX_BYTES} bytes.`)
  }
  const secret = decodeUtf8(Buffer.concat(chunks), what).replace(/\r?\n$/, '')
  if (/[\r\n]/.test(secret)) throw new Error(`${what} has more than one line.`)
  return secret
}

function decodeUtf8(bytes: Buffer, what: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    throw new Error(`${what} is not valid UTF-8.`)
  }
}
