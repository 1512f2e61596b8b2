/** The changes that turn one text into another, so that the caret stays where the user put it. Pure. */
import { diff } from '@codemirror/merge'

/** How CodeMirror writes a change: `from` and `to` are places in the text before it. */
export interface TextChange {
  readonly from: number
  readonly to: number
  readonly insert: string
}

/** Bounds the comparison of very different texts: it then finds fewer, longer changes. */
const LIMITS = { scanLimit: 1000, timeout: 20 }

/** @returns the changes in order, few and short for texts that are alike */
export function changesBetween(before: string, after: string): readonly TextChange[] {
  return diff(before, after, LIMITS).map(({ fromA, toA, fromB, toB }) => ({
    from: fromA,
    to: toA,
    insert: after.slice(fromB, toB),
  }))
}
