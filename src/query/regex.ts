/**
 * `$regex` of selectors, in time that grows with the pattern and the text and never with their combinations: RE2's
 * automata instead of JavaScript's backtracking, in which 28 characters can hold a thread for seconds.
 */
import { createRequire } from 'node:module'
import type { RE2JS } from 're2js'
import { CouchError } from '../core/errors.ts'

const require = createRequire(import.meta.url)

/** Characters of a pattern. */
const MAX_PATTERN = 2000
/** Instructions a pattern may compile to; most have less than fifty. */
const MAX_PROGRAM = 3000
/** Steps in which an instruction is made, so that a selector may have 10,000 of them. */
const STEPS_TO_MAKE = 2000

/**
 * Compiles a pattern. It is found anywhere in a text, unless it says otherwise. RE2 has no lookaround, no
 * backreferences and no possessive quantifiers, as CouchDB's PCRE has: such patterns are refused.
 * @param spend told of the steps in which the pattern is made, and before a search of those that it can take: every
 *   instruction for every character
 * @throws bad_arg for what is no pattern, or one that RE2 does not know, or that is too large
 */
export function compileRegex(pattern: string, spend: Spend): (text: string) => boolean {
  if (pattern.length > MAX_PATTERN) throw refusal(`it is longer than ${MAX_PATTERN} characters`)
  const compiled = parse(pattern)
  const size = compiled.programSize()
  if (size > MAX_PROGRAM) throw refusal('it is too large')
  spend(size * STEPS_TO_MAKE)
  return (text) => {
    spend(size * text.length)
    return compiled.test(text)
  }
}

function parse(pattern: string): RE2JS {
  // Loaded with the first pattern: it takes 0.9 MB in each thread.
  const { RE2JS }: typeof import('re2js') = require('re2js')
  try {
    return RE2JS.compile(pattern)
  } catch (cause) {
    const said = cause instanceof Error ? cause.message.slice(0, 200) : ''
    throw refusal(`it is none that RE2 knows (${said})`, cause)
  }
}

function refusal(why: string, cause?: unknown): CouchError {
  return new CouchError('bad_arg', `Bad argument for operator $regex: ${why}`, { cause })
}

// How much work a selector may be for one document, so that none holds a thread for long.

/** Steps of about ten nanoseconds, so about 80 ms: two patterns on a text of 1 MB need so many. */
const MAX_STEPS = 8_000_000
/** Steps in which a condition is asked, or an element of an array looked at. */
export const LOOK = 10
/** Steps in which a member is taken out of a large object. */
const MEMBER = 100

/** Counts steps. */
export type Spend = (steps: number) => void

export class Budget {
  #left = MAX_STEPS

  /** To be called before each document. */
  restart(): void {
    this.#left = MAX_STEPS
  }

  /** @throws invalid_selector when a document is too much work */
  readonly spend: Spend = (steps) => {
    this.#left -= steps
    if (this.#left < 0)
      throw new CouchError(
        'invalid_selector',
        'Selector error: it is too much work, or a document holds too much for it',
      )
  }
}

/** Steps in which two values are compared: both are gone through where both are long. */
export function stepsToCompare(value: unknown, other: unknown): number {
  if (typeof value === 'string' && typeof other === 'string') {
    // The collation copies both, and looks at them up to where they differ.
    return LOOK + (value.length >> 6) + (Math.min(value.length, other.length) >> 2)
  }
  const areNested = typeof value === 'object' && typeof other === 'object' && value !== null && other !== null
  return areNested ? stepsThrough(value) : LOOK
}

/** Steps in which a value is gone through from end to end. */
export function stepsThrough(value: unknown): number {
  if (typeof value === 'string') return LOOK + (value.length >> 2)
  if (typeof value !== 'object' || value === null) return LOOK
  let steps = LOOK
  if (Array.isArray(value)) for (const element of value) steps += stepsThrough(element)
  else
    for (const name of Object.keys(value)) {
      steps += MEMBER + (name.length >> 2) + stepsThrough((value as Record<string, unknown>)[name])
    }
  return steps
}
