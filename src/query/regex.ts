/**
 * `$regex` of selectors, and the limit on the work of a selector for one document. Patterns run on RE2's automata
 * instead of JavaScript's backtracking, in which 28 characters can block a thread for seconds. RE2's time is linear in
 * the text.
 */
import { createRequire } from 'node:module'
import type { RE2JS } from 're2js'
import { CouchError } from '../core/errors.ts'

const require = createRequire(import.meta.url)

/** The longest pattern, in characters. */
const MAX_PATTERN = 2000
/** The maximum number of instructions in a compiled pattern; most patterns have fewer than 50. */
const MAX_PROGRAM = 3000
/** The cost of compiling one instruction, in steps. It limits a selector to 4000 instructions. */
const COMPILE_STEPS = 2000

/**
 * Compiles a pattern. Without anchors it matches anywhere in a text. Lookaround, backreferences and possessive
 * quantifiers are refused: CouchDB's PCRE has them, but RE2 does not.
 * @param spend called with the cost of the compilation, in steps, and before each search with its maximum cost: every
 *   instruction for every character
 * @throws bad_arg for a pattern that is invalid, unknown to RE2 or too large
 */
export function compileRegex(pattern: string, spend: Spend): (text: string) => boolean {
  if (pattern.length > MAX_PATTERN) throw refusal(`it is longer than ${MAX_PATTERN} characters`)
  const compiled = parse(pattern)
  const size = compiled.programSize()
  if (size > MAX_PROGRAM) throw refusal('it is too large')
  spend(size * COMPILE_STEPS)
  return (text) => {
    spend(size * text.length)
    return compiled.test(text)
  }
}

function parse(pattern: string): RE2JS {
  // Loaded with the first pattern, since it takes 0.9 MB in each thread.
  const { RE2JS }: typeof import('re2js') = require('re2js')
  try {
    return RE2JS.compile(pattern)
  } catch (cause) {
    const message = cause instanceof Error ? cause.message.slice(0, 200) : ''
    throw refusal(`it is not a valid RE2 pattern (${message})`, cause)
  }
}

function refusal(why: string, cause?: unknown): CouchError {
  return new CouchError('bad_arg', `Bad argument for operator $regex: ${why}`, { cause })
}

/** About 80 ms, at about 10 ns per step. Two patterns on a text of 1 MB need this many steps. */
const MAX_STEPS = 8_000_000
/** The cost of testing a condition or reading an array element, in steps. */
export const LOOKUP = 10
/** The cost of reading a member of a large object, in steps. */
const MEMBER = 100

/** Takes steps from the budget. */
export type Spend = (steps: number) => void

/** Limits the work of a selector for one document, so that no selector blocks a thread for long. */
export class Budget {
  #left = MAX_STEPS

  /** Call it before each document. */
  restart(): void {
    this.#left = MAX_STEPS
  }

  /** @throws invalid_selector if the budget of the document is used up */
  readonly spend: Spend = (steps) => {
    this.#left -= steps
    if (this.#left < 0)
      throw new CouchError('invalid_selector', 'Selector error: it is too much work for one document')
  }
}

/** The cost of comparing two values, in steps. */
export function stepsToCompare(value: unknown, other: unknown): number {
  if (typeof value === 'string' && typeof other === 'string') {
    // The collation copies both strings and reads them up to the first difference.
    return LOOKUP + (value.length >> 6) + (Math.min(value.length, other.length) >> 2)
  }
  const areNested = typeof value === 'object' && typeof other === 'object' && value !== null && other !== null
  return areNested ? stepsThrough(value) : LOOKUP
}

/** The cost of visiting all parts of a value, in steps. */
export function stepsThrough(value: unknown): number {
  if (typeof value === 'string') return LOOKUP + (value.length >> 2)
  if (typeof value !== 'object' || value === null) return LOOKUP
  let steps = LOOKUP
  if (Array.isArray(value)) for (const element of value) steps += stepsThrough(element)
  else
    for (const name of Object.keys(value)) {
      steps += MEMBER + (name.length >> 2) + stepsThrough((value as Record<string, unknown>)[name])
    }
  return steps
}
