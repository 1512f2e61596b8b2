/** `settee history` and `settee rewind`, on a running and on a stopped server. */
import { setTimeout as delay } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { startTestServer } from '../helpers/server.ts'
import { builtSettee, ROOT, start } from './child.ts'

t.before(async () => {
  const { code, stdout, stderr } = await start(t, process.execPath, ['scripts/build.mjs'], { cwd: ROOT })
    .ended
  if (code !== 0) throw new Error(`${stdout}${stderr}`)
})

async function run(t: Test, dataDir: string, ...args: string[]) {
  const { code, stdout, stderr } = await builtSettee(t, args, { env: { SETTEE_DATA: dataDir } }).ended
  return { code, stdout, stderr }
}

t.test('a database goes back, whether the server runs or not', async (t) => {
  const server = await startTestServer(t)
  const { dataDir } = server
  await server.request('PUT', '/notes')
  const { rev } = (await server.request('PUT', '/notes/a', { body: { n: 1 } })).json
  await delay(5)
  const then = new Date().toISOString()
  await delay(5)
  await server.request('PUT', '/notes/a', { body: { n: 2, _rev: rev } })
  await server.request('PUT', '/notes/b', { body: {} })
  await delay(5)
  const later = new Date().toISOString()
  await delay(5)

  const list = await run(t, dataDir, 'history', 'notes')
  t.match(list, { code: 0, stdout: /^\S+\tchanged\t1\ta\n$/, stderr: '' })
  const versions = await run(t, dataDir, 'history', 'notes', 'a')
  t.match(versions.stdout, /^\S+\tnow\t2-\S+\t7 bytes\n\S+\t\S+\t1-\S+\t7 bytes\n$/)
  const json = await run(t, dataDir, 'history', 'notes', 'a', '--json', '--limit', '1')
  t.match(JSON.parse(json.stdout), { id: 'a', versions: [{ deleted: false }] })

  const dry = await run(t, dataDir, 'rewind', 'notes', '--to', then, '--dry-run')
  t.same(dry, { code: 0, stdout: 'restored\ta\ndeleted\tb\n1 restored, 1 deleted\n', stderr: '' })
  const asked = await run(t, dataDir, 'rewind', 'notes', '--to', then)
  t.match(asked, { code: 1, stdout: '', stderr: /asked about on a terminal only; add --yes/ })
  t.equal((await server.request('GET', '/notes/a')).json.n, 2)
  const done = await run(t, dataDir, 'rewind', 'notes', '--to', then, '--yes')
  t.same(done, { code: 0, stdout: 'restored\ta\ndeleted\tb\n1 restored, 1 deleted\n', stderr: '' })
  t.equal((await server.request('GET', '/notes/a')).json.n, 1)
  await server.close()

  const one = await run(t, dataDir, 'rewind', 'notes', '--to', later, '--id', 'a', '--yes', '--json')
  t.match(JSON.parse(one.stdout), { counts: { restored: 1 }, rows: [{ id: 'a', outcome: 'restored' }] })
  const stopped = await run(t, dataDir, 'rewind', 'notes', '--to', later, '--dry-run')
  t.same(stopped.stdout, 'recreated\tb\n0 restored, 1 recreated, 1 unchanged\n')
  for (const args of [
    ['rewind', 'none', '--to', then, '--yes'],
    ['rewind', 'notes', '--to', '2222-01-01', '--yes'],
    ['history', 'notes', 'none'],
  ]) {
    t.match(await run(t, dataDir, ...args), { code: 1, stdout: '', stderr: /^settee: [^\n]+\n$/ })
  }
})
