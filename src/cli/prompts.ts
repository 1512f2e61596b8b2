/** Questions to whoever sits at the terminal. */
import { randomInt } from 'node:crypto'
import { createReadStream } from 'node:fs'
import type { Readable, Writable } from 'node:stream'
import type { Terminal } from './terminal.ts'

interface Choice<Value extends string> {
  readonly value: Value
  readonly label: string
}

/** What is wrong with an answer, in a sentence; undefined: nothing. */
type Check = (answer: string) => string | undefined

/** Each throws an Error when it is cancelled. */
export interface Asker {
  /** @param options.initial what is answered by Enter alone */
  text(question: string, options: { readonly initial?: string; readonly check?: Check }): Promise<string>
  /** Shows nothing of what is typed. */
  password(question: string, check?: Check): Promise<string>
  choose<Value extends string>(question: string, choices: readonly Choice<Value>[]): Promise<Value>
  /** Enter alone is no. */
  confirm(question: string): Promise<boolean>
}

interface AskerStreams {
  readonly input: Readable
  readonly output: Writable
}

/**
 * The one at the terminal of this process; null where none sits there. The questions go to the standard error, since the
 * standard output may go to a file.
 */
export async function terminalAsker(): Promise<Asker | null> {
  if (!process.stdin.isTTY) return null
  return clackAsker({ input: process.stdin, output: process.stderr })
}

/** @returns one that asks by @clack/prompts */
export async function clackAsker(streams: AskerStreams): Promise<Asker> {
  const { confirm, isCancel, password, select, text } = await import('@clack/prompts')
  const answered = async <Answer>(answer: Promise<Answer>): Promise<Exclude<Answer, symbol>> => {
    const given = await answer
    if (isCancel(given)) throw new Error('Cancelled; nothing has changed.')
    return given as Exclude<Answer, symbol>
  }
  const checked = (check?: Check) => ({ validate: (answer?: string) => check?.(answer ?? '') })
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
    password: async (message, check) =>
      (await answered(password({ message, ...streams, ...checked(check) }))) ?? '',
    choose: async <Value extends string>(message: string, choices: readonly Choice<Value>[]) => {
      const options = choices.map(({ value, label }) => ({ value: value as string, label }))
      return (await answered(select({ message, options, ...streams }))) as Value
    },
    confirm: (message) => answered(confirm({ message, initialValue: false, ...streams })),
  }
}

/** Bytes of a secret: a file given by mistake is not read to its end. */
const MAX_BYTES = 4096

/**
 * Asks for a new password, twice.
 * @throws Error when the two differ, or as `Terminal.ask`
 */
export async function askPassword(terminal: Terminal, name: string): Promise<string> {
  const [password = '', again] = await terminal.ask(
    [`New password for ${name}: `, 'Repeat the password: '],
    false,
  )
  if (password !== again) throw new Error('The passwords do not match; nothing has changed.')
  if (password === '') throw new Error('The password must not be empty.')
  return password
}

/**
 * Reads a password to the end of the input: one line, whose end is no part of it.
 * @throws Error when it is empty, too long, several lines or no UTF-8
 */
export async function readPassword(input: Readable): Promise<string> {
  const password = await readSecret(input, 'The password on standard input')
  if (password === '') throw new Error('There is no password on standard input.')
  return password
}

/**
 * Reads a secret to the end of the input: one line, whose end is no part of it.
 * @param what it is, the subject of the sentence that says what is wrong with it
 * @throws Error when it is too long, several lines or no UTF-8; as the input
 */
async function readSecret(input: Readable, what: string): Promise<string> {
  const chunks: Buffer[] = []
  let length = 0
  for await (const chunk of input) {
    chunks.push(chunk as Buffer)
    length += (chunk as Buffer).length
    if (length > MAX_BYTES) throw new Error(`${what} is longer than ${MAX_BYTES} bytes.`)
  }
  const secret = textOf(Buffer.concat(chunks), what).replace(/\r?\n$/, '')
  if (/[\r\n]/.test(secret)) throw new Error(`${what} has more than one line.`)
  return secret
}

function textOf(bytes: Buffer, what: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    throw new Error(`${what} is not valid UTF-8.`)
  }
}

// Passwords and passphrases that are made here, and those that come in a file.

/** Without what looks alike in some type: people copy these by hand. */
const LETTERS = 'abcdefghjkmnpqrstuvwxyz23456789'
const GROUPS = 5

/** @returns five groups of five letters: about 124 random bits */
export function newPassphrase(): string {
  const group = () => Array.from({ length: 5 }, () => LETTERS[randomInt(LETTERS.length)]).join('')
  return Array.from({ length: GROUPS }, group).join('-')
}

/**
 * Reads a passphrase that a file holds: one line, whose end is no part of it.
 * @throws Error with one clear line, when it is not there, empty, too long, several lines or no UTF-8
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
