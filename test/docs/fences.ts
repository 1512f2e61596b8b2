/** The commands that the pages tell their readers to type. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { ROOT } from '../cli/child.ts'

/** A block of a page between two lines of three backticks. */
export interface Fence {
  /** Below the root, such as `docs/operating.md`. */
  readonly page: string
  readonly line: number
  /** The word after the backticks; empty: none. */
  readonly language: string
  readonly text: string
}

/** What no test runs, as docs/testing.md has it. */
export interface NotRun {
  readonly page: string
  /** What the block begins with. */
  readonly words: string
  readonly reason: string
}

/** README.md, and the pages of docs/ but for the decisions, which are history. */
export const PAGES: readonly string[] = [
  'README.md',
  ...readdirSync(join(ROOT, 'docs'))
    .filter((name) => name.endsWith('.md'))
    .sort()
    .map((name) => `docs/${name}`),
]

export function pageText(page: string): string {
  return readFileSync(join(ROOT, page), 'utf8')
}

export function fencesOf(page: string): Fence[] {
  const text = pageText(page)
  // In a list, blocks are indented.
  return [...text.matchAll(/^( *)```(\w*)\n(.*?)^\1```$/gms)].map((match) => ({
    page,
    line: text.slice(0, match.index).split('\n').length,
    language: match[2] ?? '',
    text: (match[3] ?? '').replaceAll(new RegExp(`^${match[1]}`, 'gm'), ''),
  }))
}

/** Lines that a shell would do something with. */
export function commandsOf({ text }: Fence): string[] {
  return text.split('\n').filter((line) => line.trim() !== '' && !line.startsWith('#'))
}

export function notRun(): NotRun[] {
  const rows = pageText('docs/testing.md').matchAll(/^\| `([\w./]+\.md)` \| `(.+?)` \| (.+?) \|$/gm)
  return [...rows].map(([, page = '', words = '', reason = '']) => ({ page, words, reason }))
}

/** Whether a test runs this block. */
export function isRun(fence: Fence, rows: readonly NotRun[]): boolean {
  const [first = ''] = commandsOf(fence)
  return !rows.some(({ page, words }) => page === fence.page && first.startsWith(words))
}
