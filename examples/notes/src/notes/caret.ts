/** Where the caret of a plain field belongs after its text was changed from elsewhere. Pure. */

/**
 * @param at the caret's place in the text before the change
 * @returns its place in the text after it: behind the same characters, or before the same ones
 */
export function movedCaret(before: string, after: string, at: number): number {
  const shorter = Math.min(before.length, after.length)
  let head = 0
  while (head < shorter && before[head] === after[head]) head += 1
  if (at <= head) return at
  let tail = 0
  while (tail < shorter - head && before.at(-1 - tail) === after.at(-1 - tail)) tail += 1
  const fromEnd = before.length - at
  return fromEnd <= tail ? after.length - fromEnd : after.length - tail
}
