/**
 * What a pattern of RE2 costs, estimated from its text in one pass, before the library reads it. RE2JS expands counted
 * repeats before it looks at their size, folds each code point of a range by itself, and copies the table of each
 * Unicode class: 2000 characters took it 12 s. The estimate may be too high, but not much too low. Pure.
 */

/** An upper bound on the cost of a pattern. */
export interface PatternCost {
  /** Instructions of the compiled program. */
  readonly program: number
  /** The work of compiling it and of preparing the first search, in steps of about 30 ns. */
  readonly steps: number
}

/** What a part of a pattern compiles to. */
interface Part {
  readonly program: number
  /** Ranges of code points, of all instructions together. */
  readonly ranges: number
}

/** A group up to the place that is read. */
interface Group {
  before: Part
  /** The last part, which a repetition may follow. */
  last: Part
}

const NOTHING: Part = { program: 0, ranges: 0 }
/** Every program begins with a failure and ends with a match. */
const FRAME: Part = { program: 2, ranges: 0 }
const CHARACTER: Part = { program: 1, ranges: 4 }
const BRACKETS: Part = { program: 2, ranges: 0 }
/** Between two copies of what is repeated. */
const BRANCH: Part = { program: 1, ranges: 0 }
const PERL_CLASS: Part = { program: 1, ranges: 10 }
/** `\pL` has 650 ranges. */
const UNICODE_CLASS: Part = { program: 1, ranges: 700 }

/** Steps for a pattern of any length. */
const BASE = 2000
/** Steps for a character, such as an element of a class. */
const PER_CHARACTER = 50
/** The same if case is folded: `\w` folds 63 code points. */
const PER_FOLDED_CHARACTER = 100
const PER_INSTRUCTION = 60
const PER_RANGE = 1
/** Steps for copying and sorting the table of a Unicode class. */
const PER_UNICODE_CLASS = 10_000
/** The last code point that has another case. */
const LAST_FOLDED = 0x1e943
/** The largest code point of an escape without braces: `\777`. */
const LAST_SHORT_ESCAPE = 0o777
/** RE2 allows no more repetitions. */
const MAX_REPEAT = 1000

/** The pattern folds case somewhere. The estimate then assumes it everywhere. */
const FOLDING = /\(\?[imsU-]*i/
const GROUP = /\((?:\?P?<[^>]*>|\?[imsU-]*[:)]?)?/y
const REPEAT = /\{(\d+)(,?)(\d*)\}/y
const QUOTED = /\\Q(.*?)(?:\\E|$)/sy
/** A code point may have any number of leading zeros. */
const HEXADECIMAL = /\\x\{([0-9A-Fa-f]*)\}?/y
const UNICODE = /\\[pP](?:\{[^}]*\}?|.)?/suy
const PERL = /\\[dDsSwW]/y
const POSIX = /\[:\^?[a-z]+:\]/y
const ESCAPE = /\\.?/suy
const ANY = /./suy

/**
 * Estimates the cost of a pattern.
 * @param pattern any text, also one that is no valid pattern. The time grows with its length, and hardly with its
 *   content: it has to be short
 */
export function patternCost(pattern: string): PatternCost {
  const isFolded = FOLDING.test(pattern)
  const { program, ranges } = new Estimate(pattern).read()
  const unicodeClasses = pattern.match(/\\[pP]/g)?.length ?? 0
  const steps =
    BASE +
    pattern.length * (isFolded ? PER_FOLDED_CHARACTER : PER_CHARACTER) +
    (isFolded ? foldedCodePoints(pattern) : 0) +
    unicodeClasses * PER_UNICODE_CLASS +
    program * PER_INSTRUCTION +
    ranges * PER_RANGE
  return { program, steps }
}

/** At most so many code points are in the ranges of a pattern. Each hyphen counts, wherever it stands. */
function foldedCodePoints(pattern: string): number {
  let sum = 0
  for (let at = pattern.indexOf('-'); at >= 0; at = pattern.indexOf('-', at + 1)) {
    sum += Math.min(endOfRange(pattern, at + 1), LAST_FOLDED)
  }
  return sum
}

/** The largest code point that the end of a range can be. */
function endOfRange(pattern: string, at: number): number {
  if (pattern[at] !== '\\') return pattern.codePointAt(at) ?? 0
  HEXADECIMAL.lastIndex = at
  const digits = HEXADECIMAL.exec(pattern)?.[1]
  return digits === undefined ? LAST_SHORT_ESCAPE : Number.parseInt(`0${digits}`, 16)
}

class Estimate {
  readonly #pattern: string
  #at = 0
  readonly #outer: Group[] = []
  #group: Group = { before: FRAME, last: NOTHING }

  constructor(pattern: string) {
    this.#pattern = pattern
  }

  read(): Part {
    while (this.#at < this.#pattern.length) this.#readNext()
    while (this.#outer.length > 0) this.#close()
    return sum(this.#group.before, this.#group.last)
  }

  #readNext(): void {
    switch (this.#pattern[this.#at]) {
      case '(': {
        const [opening] = this.#take(GROUP) as RegExpExecArray
        // `(?i)` sets flags and opens no group.
        if (opening.endsWith(')')) return
        this.#outer.push(this.#group)
        this.#group = { before: NOTHING, last: NOTHING }
        return
      }
      case ')':
        this.#at += 1
        this.#close()
        return
      case '*':
      case '+':
      case '?':
        this.#at += 1
        this.#repeat(1)
        return
      case '{': {
        const repeat = this.#take(REPEAT)
        if (repeat === null) this.#add(this.#character())
        else this.#repeat(Math.min(MAX_REPEAT, Math.max(Number(repeat[1]), Number(repeat[3]), 1)) + 1)
        return
      }
      case '[':
        this.#add(this.#class())
        return
      default:
        this.#add(this.#quoted() ?? this.#classEscape() ?? this.#character())
    }
  }

  #add(part: Part): void {
    this.#group = { before: sum(this.#group.before, this.#group.last), last: part }
  }

  #repeat(times: number): void {
    this.#group.last = multiple(sum(this.#group.last, BRANCH), times)
  }

  #close(): void {
    const inner = sum(this.#group.before, this.#group.last)
    this.#group = this.#outer.pop() ?? { before: NOTHING, last: NOTHING }
    this.#add(sum(inner, BRACKETS))
  }

  #class(): Part {
    this.#at += 1
    if (this.#pattern[this.#at] === '^') this.#at += 1
    let ranges = 1
    for (let isFirst = true; this.#at < this.#pattern.length; isFirst = false) {
      if (this.#pattern[this.#at] === ']' && !isFirst) break
      const { ranges: more } = this.#take(POSIX) ? PERL_CLASS : (this.#classEscape() ?? this.#character())
      ranges += more
    }
    this.#at += 1
    return { program: 1, ranges }
  }

  #quoted(): Part | null {
    const quoted = this.#take(QUOTED)
    return quoted && multiple(CHARACTER, (quoted[1] as string).length)
  }

  /** A class without brackets. */
  #classEscape(): Part | null {
    if (this.#take(UNICODE)) return UNICODE_CLASS
    return this.#take(PERL) && PERL_CLASS
  }

  #character(): Part {
    if (!this.#take(HEXADECIMAL) && !this.#take(ESCAPE)) this.#take(ANY)
    return CHARACTER
  }

  #take(expression: RegExp): RegExpExecArray | null {
    expression.lastIndex = this.#at
    const found = expression.exec(this.#pattern)
    if (found !== null) this.#at = expression.lastIndex
    return found
  }
}

function sum(one: Part, other: Part): Part {
  return { program: one.program + other.program, ranges: one.ranges + other.ranges }
}

function multiple({ program, ranges }: Part, times: number): Part {
  return { program: program * times, ranges: ranges * times }
}
