/** `settee size`, on a running and on a stopped server. */

import { truncate } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { shown, tableOf } from '../../src/cli/size-command.ts'
import { startTestServer } from '../helpers/server.ts'
import { builtSettee, ROOT, start } from './child.ts'

t.before(async () => {
  const { code, stdout, stderr } = await start(t, process.execPath, ['scripts/build.mjs'], { cwd: ROOT })
    .ended
  if (code !== 0) throw new Error(`${stdout}${stderr}`)
})

async function run(t: Test, dataDir: string, args: string[]) {
  const { code, stdout, stderr } = await builtSettee(t, ['size', ...args], { env: { SETTEE_DATA: dataDir } })
    .ended
  return { code, stdout, stderr }
}

t.test('bytes with three digits', async (t) => {
  const cases: [bytes: number, text: string][] = [
    [0, '0 B'],
    [999, '999 B'],
    [1000, '1.00 kB'],
    [9_994, '9.99 kB'],
    [9_995, '10.0 kB'],
    [99_960, '100 kB'],
    [999_600, '1.00 MB'],
    [123_456_789, '123 MB'],
    [2 ** 50, '1.13 PB'],
  ]
  for (const [bytes, text] of cases) t.equal(shown(bytes), text)
  t.equal(tableOf([]), '')
})

t.test('all databases, one, and one that is not there', async (t) => {
  const server = await startTestServer(t)
  const { dataDir } = server
  for (const name of ['notes', 'a-longer-name']) await server.request('PUT', `/${name}`)
  await server.request('PUT', '/notes/x', { body: { text: 'a'.repeat(50_000) } })
  for (const isRunning of [true, false]) {
    if (!isRunning) await server.close()
    const { code, stdout, stderr } = await run(t, dataDir, [])
    t.match({ code, stderr }, { code: 0, stderr: '' })
    const [head, ...lines] = stdout.trimEnd().split('\n')
    t.match(head, /^database +file +live +old +kept +tombstones +attachments +other +free$/)
    t.same(
      lines.map((line) => line.split(' ')[0]),
      ['_users', 'a-longer-name', 'notes', 'all'],
    )
    t.match(lines[2], /50\.0 kB/)
    t.equal(
      new Set(
        stdout
          .trimEnd()
          .split('\n')
          .map((line) => line.length),
      ).size,
      1,
      'columns',
    )
    const one = await run(t, dataDir, ['notes', '--json'])
    const { database, file, parts } = JSON.parse(one.stdout)
    t.match({ database, parts }, { database: 'notes', parts: { live: { count: 1 } } })
    t.ok(file > 50_000)
    t.match(await run(t, dataDir, ['none']), { code: 1, stdout: '', stderr: /^settee: .*not exist.*\n$/ })
  }
  await truncate(join(dataDir, 'databases', 'notes.sqlite'), 5000)
  const broken = await run(t, dataDir, [])
  t.match(broken, { code: 1, stdout: /a-longer-name/, stderr: /^settee: notes: [^\n]+\n$/ })
})
