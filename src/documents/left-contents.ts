/**
 * Contents of attachments that a document's text was read without: it has a name in place of each. They stay in the file of
 * the request's body until they are decoded.
 */
import { randomUUID } from 'node:crypto'
import { CouchError } from '../core/errors.ts'
import type { Yielder } from '../core/event-loop.ts'

/** Where contents of attachments, of ASCII alone, begin and end in a JSON text, without their quotes, in bytes; without short ones. */
export interface ContentRanges {
  readonly starts: readonly number[]
  readonly ends: readonly number[]
}

/** A JSON string without its quotes, of which parts can be read. */
export interface ContentText {
  readonly length: number
  slice(start: number, end: number): string
}

/** Reads a part of the document, in bytes, which has ASCII alone. */
type ReadPart = (start: number, end: number) => string

const DIGITS = 9

export class LeftContents {
  /** No client can guess it. */
  readonly #prefix = `${randomUUID()}-`
  readonly #ranges: ContentRanges
  readonly #read: ReadPart

  constructor(ranges: ContentRanges, read: ReadPart) {
    this.#ranges = ranges
    this.#read = read
  }

  /** The length of each name, in bytes. */
  get nameLength(): number {
    return this.#prefix.length + DIGITS
  }

  /** What stands for a content in the text. */
  nameOf(at: number): string {
    return this.#prefix + String(at).padStart(DIGITS, '0')
  }

  /** @param string of the text, without its quotes @returns the content that it stands for; itself if it is no name */
  find(string: string): ContentText {
    if (!string.startsWith(this.#prefix)) return string
    const at = Number(string.slice(this.#prefix.length))
    const [start, end] = [this.#ranges.starts[at], this.#ranges.ends[at]] as const
    if (start === undefined || end === undefined) return string
    return { length: end - start, slice: (from, to) => this.#read(start + from, Math.min(start + to, end)) }
  }

  /** Reads all contents, in steps, also those that nobody will decode. @throws invalid_json unless all are JSON strings */
  async check(yielder: Yielder): Promise<void> {
    for (const at of this.#ranges.starts.keys()) {
      for (const { text } of stringSteps(this.find(this.nameOf(at)))) {
        if (!isString(text)) throw new CouchError('invalid_json')
        if (yielder.isDue) await yielder.yieldIfDue()
      }
    }
  }
}

function isString(json: string): boolean {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: JSON strings have none
  if (!json.includes('\\')) return !/[\u0000-\u001f]/.test(json)
  try {
    return (JSON.parse(`"${json}"`) as string).isWellFormed()
  } catch {
    return false
  }
}

/** Characters of one step, which take less than 1 ms to decode. */
const STEP = 1024 * 1024
/** Characters of the longest escape in a JSON string, `\\u002b`. */
const LONGEST_ESCAPE = 6

/** Reads a content in steps that do not end inside an escape. */
export function* stringSteps(
  content: ContentText,
): Generator<{ readonly text: string; readonly isLast: boolean }> {
  for (let at = 0; at < content.length; ) {
    const text = content.slice(at, at + STEP)
    const isLast = at + text.length >= content.length
    const backslash = isLast ? -1 : text.indexOf('\\', text.length - LONGEST_ESCAPE)
    const step = backslash < 0 ? text : text.slice(0, backslash)
    yield { text: step, isLast }
    at += step.length
  }
}
