import type { Writable } from 'node:stream'

/** The keyboard, as far as asking touches it: `process.stdin` on a terminal. */
interface Keyboard {
  setRawMode(isRaw: boolean): unknown
  setEncoding(encoding: 'utf8'): unknown
  on(event: 'data', listener: (typed: string) => void): unknown
  on(event: 'end', listener: () => void): unknown
  resume(): unknown
  pause(): unknown
}

const ENTER = /[\r\n]/
const INTERRUPT = '\u0003'
const END = '\u0004'
const ERASE = /[\u007f\b]/
const ERASE_LINE = '\u0015'
/** Arrows and other keys that are no text: CSI and SS3 sequences (ECMA-48). */
const KEYS = new RegExp(`${'\u001b'}(?:\\[[0-?]*[ -/]*[@-~]|O.|.)?`, 'g')

/**
 * Asks people at a terminal. Between questions the terminal is as it was; while a password is typed it shows nothing,
 * since it is in raw mode and nothing is echoed.
 */
export class Terminal {
  readonly #keyboard: Keyboard
  readonly #screen: Pick<Writable, 'write'>
  /** What was typed and belongs to no answer yet. */
  #typed: string[] = []
  #hasEnded = false
  #wake: () => void = () => undefined

  /** @param screen not the standard output, which may go to a file */
  constructor(keyboard: Keyboard, screen: Pick<Writable, 'write'>) {
    this.#keyboard = keyboard
    this.#screen = screen
    keyboard.setEncoding('utf8')
    keyboard.on('data', (typed) => {
      this.#typed.push(...typed.replace(KEYS, ''))
      this.#wake()
    })
    keyboard.on('end', () => {
      this.#hasEnded = true
      this.#wake()
    })
    keyboard.pause()
  }

  /**
   * Asks questions, one after the other; in between nothing is echoed either, however fast somebody types.
   * @param isShown whether the answers are seen while they are typed
   * @throws Error when it is cancelled with Ctrl-C, or by Ctrl-D or the end of input before anything was typed
   */
  async ask(questions: readonly string[], isShown: boolean): Promise<string[]> {
    // Before the first question is seen, since who sees it types.
    this.#keyboard.setRawMode(true)
    this.#keyboard.resume()
    try {
      const answers: string[] = []
      for (const question of questions) answers.push(await this.#answer(question, isShown))
      return answers
    } finally {
      this.#keyboard.pause()
      this.#keyboard.setRawMode(false)
    }
  }

  async #answer(question: string, isShown: boolean): Promise<string> {
    this.#screen.write(question)
    try {
      return await this.#line(isShown)
    } finally {
      this.#screen.write('\r\n')
    }
  }

  async #line(isShown: boolean): Promise<string> {
    const line: string[] = []
    for (;;) {
      const key = await this.#key()
      if (key === INTERRUPT || (key === END && line.length === 0))
        throw new Error('Cancelled; nothing has changed.')
      if (key === END || ENTER.test(key)) return line.join('')
      const before = line.length
      if (ERASE.test(key)) line.pop()
      else if (key === ERASE_LINE) line.length = 0
      else if (!/\p{Cc}/u.test(key)) line.push(key)
      if (isShown) this.#show(key, before, line.length)
    }
  }

  #show(key: string, before: number, after: number): void {
    this.#screen.write(after > before ? key : '\b \b'.repeat(before - after))
  }

  async #key(): Promise<string> {
    while (this.#typed.length === 0) {
      if (this.#hasEnded) return END
      await new Promise<void>((resolve) => {
        this.#wake = resolve
      })
    }
    return this.#typed.shift() as string
  }
}
