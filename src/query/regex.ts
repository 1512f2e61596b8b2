/**
 * `$regex` of selectors, in time that grows with the pattern and the text and never with their combinations: RE2's
 * automata instead of JavaScript's backtracking, in which 28 characters can hold a thread for seconds.
 */
import { createRequire } from 'node:module'
import type { RE2JS } from 're2js'
import { CouchError } from '../core/errors.ts'
import type { Spend } from './budget.ts'

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
