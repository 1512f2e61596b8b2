/**
 * Characters that are sorted together: in Thai a vowel that is written before its consonant, in Cyrillic a letter with a
 * breve. Source: Unicode Technical Standard 10, section 7.1, S2.1. Pure.
 */
import type { CollationTable } from './collation-table.ts'

/** The entry of characters that are sorted together, and where the text behind them begins. */
export interface Contraction {
  readonly entry: number
  readonly end: number
}

/** Places of marks that belong to a contraction before them, and do not count again. */
export type TakenMarks = Set<number>

/**
 * The most marks behind a character that are searched for one that it is sorted with. ICU has no limit, and is slow with a
 * text of thousands of marks. Languages use less than ten.
 */
const MAX_MARKS = 16
const FIRST_MARK = 0x300

/**
 * Finds the longest contraction of the character of `node` with those from `from` on. Marks may stand between if they are
 * of other classes.
 *
 * @param taken gets the places of the marks behind others
 */
export function findContraction(
  table: CollationTable,
  node: number,
  text: string,
  from: number,
  taken: TakenMarks,
): Contraction {
  const { contractions } = table
  let entry = contractions[node]!
  let longest = node
  let end = from
  for (let at = from, next = node; next !== 0 && at < text.length; ) {
    const point = text.codePointAt(at)!
    const size = sizeOf(point)
    if (!taken.has(at)) {
      const branch = findBranch(contractions, next, point)
      if (branch === 0) break
      next = contractions[branch + 2]!
      if (contractions[branch + 1] !== 0) {
        entry = contractions[branch + 1]!
        longest = next
        end = at + size
      }
    }
    at += size
  }
  const marked = longest === 0 ? undefined : findMarks(table, longest, text, end, taken)
  return { entry: marked ?? entry, end }
}

/** Extends a contraction by marks that follow other marks: each that is not behind one of the same class or a higher one. */
function findMarks(
  table: CollationTable,
  start: number,
  text: string,
  from: number,
  taken: TakenMarks,
): number | undefined {
  const { contractions } = table
  let entry: number | undefined
  let node = start
  let last = 0
  for (let at = from, count = 0; at < text.length && count < MAX_MARKS; count++) {
    const point = text.codePointAt(at)!
    if (!taken.has(at)) {
      const mark = findMark(table.marks, point)
      if (mark === undefined) break
      const branch =
        last < (table.marks[mark]! & 0xff) && node !== 0 ? findBranch(contractions, node, point) : 0
      if (branch !== 0 && contractions[branch + 1] !== 0) {
        entry = contractions[branch + 1]!
        node = contractions[branch + 2]!
        taken.add(at)
      } else {
        last = table.markTails[mark]!
      }
    }
    at += sizeOf(point)
  }
  return entry
}

function sizeOf(point: number): number {
  return point > 0xffff ? 2 : 1
}

/** @returns the place of the branch, or 0 */
function findBranch(contractions: Uint32Array, node: number, point: number): number {
  let low = 0
  let high = contractions[node + 1]! - 1
  while (low <= high) {
    const middle = (low + high) >>> 1
    const branch = node + 2 + 3 * middle
    const found = contractions[branch]!
    if (found === point) return branch
    if (found < point) low = middle + 1
    else high = middle - 1
  }
  return 0
}

function findMark(marks: Uint32Array, point: number): number | undefined {
  if (point < FIRST_MARK) return undefined
  let low = 0
  let high = marks.length - 1
  while (low <= high) {
    const middle = (low + high) >>> 1
    const found = marks[middle]! >>> 8
    if (found === point) return middle
    if (found < point) low = middle + 1
    else high = middle - 1
  }
  return undefined
}
