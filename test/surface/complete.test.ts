/**
 * Each parameter in parameters.ts and feed-parameters.ts has a row in a table, a test elsewhere, or a reason why
 * it has none.
 */
import { readdir, readFile } from 'node:fs/promises'
import t from 'tap'
import * as feeds from './feed-parameters.ts'
import * as documents from './parameters.ts'
import type { Row } from './table.ts'

const FOLDER = new URL('./', import.meta.url)
const PARAMETERS = [...documents.PARAMETERS, ...feeds.PARAMETERS]
const OMITTED: Readonly<Record<string, string>> = { ...documents.OMITTED, ...feeds.OMITTED }
const ELSEWHERE = { ...documents.ELSEWHERE, ...feeds.ELSEWHERE }

async function tables(): Promise<[file: string, rows: readonly Row[]][]> {
  const files = (await readdir(FOLDER)).filter((file) => file.endsWith('.rows.ts'))
  const modules = files.map(async (file): Promise<[string, readonly Row[]]> => {
    const exported = (await import(new URL(file, FOLDER).href)) as Record<string, readonly Row[]>
    return [file, Object.values(exported).flat()]
  })
  return Promise.all(modules)
}

async function testTexts(): Promise<string> {
  const files = (await readdir(FOLDER)).filter((file) => file.endsWith('.test.ts'))
  return (await Promise.all(files.map((file) => readFile(new URL(file, FOLDER), 'utf8')))).join('\n')
}

t.test('each parameter has a row, and each row is about a parameter', async (t) => {
  const of = (await tables()).flatMap(([, rows]) => rows.flatMap((row) => row.of))
  const held = new Set([...of, ...Object.keys(ELSEWHERE)])
  const known = new Set(PARAMETERS)
  t.equal(known.size, PARAMETERS.length, 'no parameter is named twice')
  t.same(
    PARAMETERS.filter((key) => !held.has(key) && OMITTED[key] === undefined),
    [],
    'parameters without a row',
  )
  t.same(
    of.filter((key) => !known.has(key)),
    [],
    'rows about no parameter',
  )
  t.same(
    Object.keys(OMITTED).filter((key) => held.has(key) || !known.has(key)),
    [],
    'left out, but not',
  )
})

t.test('what a row cannot express is tested elsewhere', async (t) => {
  for (const [key, [file, test]] of Object.entries(ELSEWHERE)) {
    const text = await readFile(new URL(`../../${file}`, FOLDER), 'utf8')
    t.ok(text.includes(`t.test('${test}'`), `${key}: ${file}`)
  }
})

t.test('each table is run', async (t) => {
  const texts = await testTexts()
  for (const [file, rows] of await tables()) {
    t.ok(rows.length > 0, `${file} has rows`)
    for (const { ask, steps, says } of rows) {
      t.equal(ask === undefined, steps !== undefined && steps.length > 0, `${file}: ${says}: asks something`)
    }
    t.ok(texts.includes(`'./${file}'`), `a test runs ${file}`)
  }
})

t.test('omitted parameters are in docs/compatibility.md', async (t) => {
  const text = await readFile(new URL('../../docs/compatibility.md', import.meta.url), 'utf8')
  const page = text.replaceAll('`', '')
  for (const key of Object.keys(OMITTED)) {
    // The parameter's own name: `3.9 X-Couch-Persist` is named X-Couch-Persist there.
    const name = key.replace(/^\S+ /, '').replace(/^whole: /, '')
    t.ok(page.includes(name), `${key} is named`)
  }
})
