/** Questions to whoever sits at the terminal. */
import type { Readable, Writable } from 'node:stream'

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
