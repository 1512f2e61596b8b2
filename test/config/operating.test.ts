import { readFile } from 'node:fs/promises'
import t from 'tap'
import { KNOWN_KEYS } from '../../src/config/defaults.ts'

t.test('docs/operating.md names every key that is read, with its default', async (t) => {
  const page = await readFile(new URL('../../docs/operating.md', import.meta.url), 'utf8')
  const rows = page.split('\n').filter((line) => line.startsWith('| `'))
  for (const { section, key, value } of KNOWN_KEYS) {
    const row = rows.find((line) => new RegExp(`\`(${section}/)?${key}\``).test(line))
    t.ok(row, `${section}/${key}`)
    if (value !== null && value.length < 30) t.match(row, `\`${value}\``, `the default of ${section}/${key}`)
  }
})
