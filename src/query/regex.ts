/**
 * `$regex` of selectors, and the limits on the work of a selector. Patterns run on RE2's automata instead of JavaScript's
 * backtracking, in which 28 characters can block a thread for seconds. RE2's time is linear in the text. What compiling
 * a pattern costs is estimated before (docs/decisions/0061).
 */
import { createRequire } from 'node:module'
import type { RE2JS } from 're2js'
import { BoundedCache } from '../core/cache.ts'
import { CouchError } from '../core/errors.ts'
import { patternCost } from './pattern-cost.ts'

const require = createRequire(import.meta.url)

/** The longest pattern, in characters. */
const MAX_PATTERN = 2000
/** The maximum number of instructions in a compiled pattern; most patterns have fewer than 50. */
const MAX_PROGRAM = 3000
/** The maximum number of patterns in a selector. */
const MAX_PATTERNS = 50
/** All patterns of a selector together may take this many steps (pattern-cost.ts) to be compiled: about 10 ms. */
const MAX_PATTERN_STEPS = 350_000
/** The states that searches of a pattern have found are kept up to this size. RE2JS's own limit is 8 MB. */
const STATE_BYTES = 256 * 1024
/** The compiled patterns of a thread take at most this many bytes: 64 patterns at the most. */
const CACHE_BYTES = 64 * STATE_BYTES
/** The memory of a compiled pattern, per step of its estimate. */
const BYTES_PER_STEP = 2

interface Pattern {
  readonly compiled: RE2JS
  /** Instructions. */
  readonly size: number
  readonly steps: number
}

/** Recently used patterns. Selectors find theirs here for each search, so that they hold no memory. */
const patterns = new BoundedCache<Pattern>(
  CACHE_BYTES,
  (_pattern, { steps }) => STATE_BYTES + steps * BYTES_PER_STEP,
)

/**
 * Compiles a pattern. Without anchors it matches anywhere in a text. Lookaround, backreferences and possessive
 * quantifiers are refused: CouchDB's PCRE has them, but RE2 does not.
 * @param budget of the selector: the compilation takes from it, and each search its maximum cost, every instruction for
 *   every character
 * @throws bad_arg for a pattern that is invalid, unknown to RE2 or too large; invalid_selector if the budget is used up
 */
export function compileRegex(pattern: string, budget = new Budget()): (text: string) => boolean {
  if (pattern.length > MAX_PATTERN) throw refusal(`it is longer than ${MAX_PATTERN} characters`)
  const { program, steps } = patternCost(pattern)
  if (program > MAX_PROGRAM || steps > MAX_PATTERN_STEPS) throw refusal('it is too large')
  budget.spendOnPattern(steps)
  const find = () => patterns.get(pattern, () => parse(pattern, steps))
  const { size } = find()
  return (text) => {
    budget.spend(size * text.length)
    return find().compiled.test(text)
  }
}

function parse(pattern: string, steps: number): Pattern {
  // Loaded with the first pattern, since it takes 0.9 MB in each thread.
  const { RE2JS }: typeof import('re2js') = require('re2js')
  try {
    const compiled = RE2JS.compile(pattern)
    const { dfa } = compiled.re2()
    dfa.stateBudget = STATE_BYTES
    dfa.memBudget = STATE_BYTES
    return { compiled, size: compiled.programSize(), steps }
  } catch (cause) {
    const message = cause instanceof Error ? cause.message.slice(0, 200) : ''
    throw refusal(`it is not a valid RE2 pattern (${message})`, cause)
  }
}

function refusal(why: string, cause?: unknown): CouchError {
  return new CouchError('bad_arg', `Bad argument for operator $regex: ${why}`, { cause })
}

/**
 * What testing one document may cost, at 2 to 10 ns per step: 80 ms at the most. Two patterns on a text of 1 MB need
 * this many steps.
 */
const MAX_STEPS = 8_000_000
/** The cost of testing a condition or reading an array element, in steps. */
export const LOOKUP = 10
/** The cost of reading a member of a large object, in steps. */
const MEMBER = 100

/** Takes steps from the budget. */
export type Spend = (steps: number) => void

/** Limits the work of a selector: its patterns, and the test of one document, so that no selector blocks a thread for long. */
export class Budget {
  #left = MAX_STEPS
  #patterns = 0
  #patternSteps = 0

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

  /**
   * Call it before a pattern is compiled.
   * @param steps of its estimate
   * @throws invalid_selector if the selector has too many patterns, or if all of them together are too large
   */
  spendOnPattern(steps: number): void {
    this.#patterns += 1
    this.#patternSteps += steps
    if (this.#patterns > MAX_PATTERNS)
      throw new CouchError(
        'invalid_selector',
        `Selector error: it has more than ${MAX_PATTERNS} patterns of $regex`,
      )
    if (this.#patternSteps > MAX_PATTERN_STEPS)
      throw new CouchError(
        'invalid_selector',
        'Selector error: its patterns of $regex are too large together',
      )
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
