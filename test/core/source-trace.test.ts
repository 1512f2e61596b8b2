import { SourceMap } from 'node:module'
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
  const map = new SourceMap({
    version: 3,
    file: '',
    sources: SOURCES,
    sourceRoot: '',
    names: [],
    sourcesContent: [],
    mappings: MAPPINGS,
  })
  for (const [line, column] of [
    [2, 3],
    [2, 4],
    [2, 5],
    [2, 100],
    [4, 1],
    [4, 9],
  ] as const) {
    // Node's own reader, which counts from 0.
    const entry = map.findEntry(line - 1, column - 1)
    if (!('originalSource' in entry)) throw new Error(`${line}:${column} has no source`)
    const source = `${entry.originalSource.slice(3)}:${entry.originalLine + 1}:${entry.originalColumn + 1}`
    t.equal(shown(`dist/x.js:${line}:${column}`), `    at f (${root}${source})`)
  }
  t.equal(shown('dist/x.js:2:3'), `    at f (${root}src/a.ts:3:5)`)
  for (const same of ['dist/x.js:1:1', 'dist/x.js:2:1', 'dist/x.js:99:1', 'dist/y.js:1:1', 'dist/z.js:1:1']) {
    t.equal(shown(same), `    at f (${root}${same})`, same)
  }
  t.equal(sourceTrace(`at ${root}dist/x.js:2:3`, `${root}other/`), `at ${root}dist/x.js:2:3`, 'of others')
  t.equal(
    sourceTrace(`at async ${root}dist/x.js:2:3\nat ${root}dist/x.js:2:5`, root),
    `at async ${root}src/a.ts:3:5\nat ${root}src/b.ts:34:1`,
  )
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
