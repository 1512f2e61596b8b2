import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import t from 'tap'
import { sourceTrace } from '../../src/core/source-trace.ts'
import { build, ROOT, start } from '../cli/child.ts'

const SOURCES = ['../src/a.ts', '../src/b.ts']
/** Line 1 has no source; line 2 has a.ts from column 3, then b.ts from column 5, and line 4 has b.ts from column 1. */
const MAPPINGS = ';EAEI,EC+BJ;;AAjCG'

t.test('positions in a bundle are shown as those in the sources', async (t) => {
  const folder = t.testdir({
    dist: { 'x.js': '', 'x.js.map': JSON.stringify({ sources: SOURCES, mappings: MAPPINGS }), 'y.js': '' },
  })
  const root = pathToFileURL(`${folder}/`).href
  const shown = (position: string) => sourceTrace(`    at f (${root}${position})`, `${root}dist/`)
  for (const [position, source] of [
    ['2:3', 'a.ts:3:5'],
    ['2:4', 'a.ts:3:5'],
    ['2:5', 'b.ts:34:1'],
    ['2:100', 'b.ts:34:1'],
    ['4:1', 'b.ts:1:4'],
    ['4:9', 'b.ts:1:4'],
  ] as const) {
    t.equal(shown(`dist/x.js:${position}`), `    at f (${root}src/${source})`, position)
  }
  for (const same of ['dist/x.js:1:1', 'dist/y.js:1:1', 'dist/z.js:1:1']) {
    t.equal(shown(same), `    at f (${root}${same})`, same)
  }
  t.equal(
    sourceTrace(`at ${root}dist/x.js:2:3`, `${root}other/`),
    `at ${root}dist/x.js:2:3`,
    'paths of other packages are kept',
  )
  t.equal(
    sourceTrace(`at async ${root}dist/x.js:2:3\nat ${root}dist/x.js:2:5`, root),
    `at async ${root}src/a.ts:3:5\nat ${root}src/b.ts:34:1`,
  )
})

t.test('a long message costs little', async (t) => {
  const began = process.cpuUsage()
  for (const part of ['file://', 'file:///a.js', 'file:///a.js:1', 'at file:///a.js:1:1 ']) {
    const text = part.repeat(1_000_000 / part.length)
    t.equal(sourceTrace(text, 'file:///other/'), text, part)
  }
  t.ok(process.cpuUsage(began).user < 1_000_000, 'texts of 1 MB take less than 250 ms each')
})

t.test('a fault of the built program names the source', async (t) => {
  await build(t)
  const preload = "data:text/javascript,process.stdout.write = () => { throw new Error('no more lines') }"
  const main = join(ROOT, 'dist', 'cli', 'main.js')
  const child = start(t, process.execPath, ['--import', preload, main, '--version'])
  t.match(await child.ended, {
    code: 1,
    stderr: /no more lines\n.*\/src\/cli\/commands\.ts:\d+:\d+\)\n.*\/src\/cli\/main\.ts:\d+:\d+/s,
  })
})
