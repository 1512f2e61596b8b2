/** Each term of docs/glossary.md occurs in the file that its row names. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { ROOT } from '../cli/child.ts'
import { pageText } from './fences.ts'

const ROW = /^\| (?!term |-)(.+?) \| .+ \| (.+?) \|$/gm

/** The other names of a term are in parentheses; a comma separates terms of one row. */
function namesOf(term: string): string[] {
  return term.split(/[(),]/).flatMap((name) => name.trim().toLowerCase() || [])
}

/** Whether all words of a name are there, in any form: `fair queue` is in `FairQueue` and in `fair-queue`. */
function mentions(text: string, name: string): boolean {
  return name
    .split(' ')
    .filter((word) => !/^(?:of|a|an|the|on)$/.test(word))
    .every((word) => text.includes(word.replace(/s$/, '')))
}

t.test('terms are in their files', async (t) => {
  const rows = [...pageText('docs/glossary.md').matchAll(ROW)]
  t.ok(rows.length > 100)
  for (const [, term = '', place = ''] of rows) {
    const files = [...place.matchAll(/`([\w./-]+\.ts)`/g)].map(([, file = '']) => file)
    if (files.length === 0) continue
    const text = files.map((file) => `${file} ${readFileSync(join(ROOT, 'src', file), 'utf8')}`).join('\n')
    t.ok(
      namesOf(term).some((name) => mentions(text.toLowerCase(), name)),
      `${term}: ${place}`,
    )
  }
})
