/** What a row expects of an answer, and its comparison with the real answer. Pure. */
import { type Forms, formsOf } from './forms.ts'

export interface Answer extends Forms {
  /** 200 by default. */
  readonly status?: number
  /** The whole JSON; a pattern stands for a string or a number that matches it. */
  readonly json?: unknown
  /** A part of the JSON: of objects the members that are named here, of arrays all. */
  readonly like?: unknown
  /** The whole text, or a pattern in it. */
  readonly text?: string | RegExp
  /** By lower-case name; undefined is for a header that is not there. */
  readonly headers?: Readonly<Record<string, string | RegExp | undefined>>
  /** How long it takes, in milliseconds. */
  readonly took?: readonly [least: number, most: number]
  /** Whether the connection breaks before the answer is whole. */
  readonly broken?: boolean
}

/** The real answer. */
export interface Answered {
  readonly status: number
  readonly headers: Readonly<Record<string, string | string[] | undefined>>
  readonly bytes: Buffer
  readonly text: string
  readonly json: unknown
  readonly took: number
  readonly broken: boolean
}

/**
 * Prepares two answers for a comparison.
 * @returns the parts of the real answer that the expected one mentions, and the expected parts
 */
export function compared(found: Answered, expected: Answer): { seen: unknown; wanted: unknown } {
  const { took: _, broken = false, status = 200, ...others } = expected
  const seen = seenOf(found, others)
  return { seen, wanted: settled({ ...others, broken, status }, seen) }
}

function seenOf(found: Answered, { json, like, text, headers, ...others }: Answer) {
  const { status, broken } = found
  return {
    ...(json !== undefined && { json: found.json }),
    ...(like !== undefined && { like: part(found.json, like) }),
    ...(text !== undefined && { text: found.text }),
    ...(headers !== undefined && { headers: part({ ...found.headers }, headers) }),
    ...Object.fromEntries(formsOf(found, others)),
    broken,
    status,
  }
}

/**
 * The expected value, with the real value in place of each pattern that matches it, and without undefined members:
 * those must be absent.
 */
function settled(expected: unknown, found: unknown): unknown {
  if (expected instanceof RegExp) {
    const isText = typeof found === 'string' || typeof found === 'number'
    return isText && expected.test(String(found)) ? found : expected
  }
  if (Array.isArray(expected)) {
    return expected.map((each, index) => settled(each, Array.isArray(found) ? found[index] : undefined))
  }
  if (!isPlain(expected)) return expected
  const other = isPlain(found) ? found : {}
  const named = Object.entries(expected).filter(([, each]) => each !== undefined)
  return Object.fromEntries(named.map(([key, each]) => [key, settled(each, other[key])]))
}

/** The parts of the real value that the expected value mentions. */
function part(found: unknown, expected: unknown): unknown {
  if (Array.isArray(found) && Array.isArray(expected)) {
    return found.map((each, index) => part(each, expected[index]))
  }
  if (!isPlain(found) || !isPlain(expected)) return found
  const named = Object.entries(found).filter(([key]) => key in expected)
  return Object.fromEntries(named.map(([key, value]) => [key, part(value, expected[key])]))
}

/** Whether it is an object of members. */
export function isPlain(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype
}
