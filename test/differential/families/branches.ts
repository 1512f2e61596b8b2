/** Revision trees whose revisions requests can name. */
import { createHash } from 'node:crypto'
import type { CarefulChoices as Choices } from '../careful.ts'

const DEEPEST = 6

/** A branch: a letter for each generation. Few letters, so that branches meet and part. */
export function branch(c: Choices): string {
  return Array.from({ length: 1 + c.below(DEEPEST) }, () => (c.chance(0.8) ? 'a' : 'b')).join('')
}

/** As in reality, a revision says by its hash which ancestors it has. */
export function hash(branch: string): string {
  return createHash('md5').update(branch).digest('hex')
}

/** What a revision holds is decided by its hash, too: a number from 0 to 1, another one for each question. */
export function share(hash: string, question: string): number {
  return createHash('md5').update(`${question} ${hash}`).digest().readUInt32BE() / 2 ** 32
}

/** The path to the leaf of a branch, now and then without its beginning. */
export function pathOf(c: Choices, branch: string): { start: number; ids: string[] } {
  const ids = Array.from(branch, (_, at) => hash(branch.slice(0, branch.length - at)))
  return { start: branch.length, ids: c.chance(0.25) ? ids.slice(0, 1 + c.below(ids.length)) : ids }
}
