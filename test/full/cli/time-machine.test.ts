/** `settee history` and `settee rewind`, on a running and on a stopped server. */
import { setTimeout as delay } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { build, builtSettee } from '../../cli/child.ts'
import { startTestServer } from '../../helpers/server.ts'

t.before(() => build(t))

async function run(t: Test, dataDir: string, ...args: string[]) {
  const { code, stdout, stderr } = await builtSettee(t, args, { env: { SETTEE_DATA: dataDir } }).ended
  return { code, stdout, stderr }
}

t.test('a database is rewound, whether the server runs or not', async (t) => {
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
  t.match(list, {
    code: 0,
    stdout: /^last change +what +old versions +document\n\S+Z +changed +1 +a\n$/,
    stderr: '',
  })
  const versions = await run(t, dataDir, 'history', 'notes', 'a')
  t.match(versions.stdout, /^stored +until +revision +content\n\S+ +now +2-\S+ +7 B\n\S+ +\S+ +1-\S+ +7 B\n$/)
  for (const choice of [
    ['--at', then],
    ['--rev', rev],
  ]) {
    const one = await run(t, dataDir, 'history', 'notes', 'a', ...choice)
    t.match(JSON.parse(one.stdout), { _id: 'a', _rev: rev, n: 1 })
  }
  const first = await run(t, dataDir, 'history', 'notes', 'a', '--limit', '1')
  t.match(first, { code: 0, stderr: 'There are more rows: raise --limit to see them.\n' })
  const since = await run(t, dataDir, 'history', 'notes', '--since', later)
  t.match(since, { code: 0, stdout: '', stderr: /^No overwritten or deleted/ })
  const json = await run(t, dataDir, 'history', 'notes', 'a', '--json', '--limit', '1')
  t.match(JSON.parse(json.stdout), { id: 'a', versions: [{ deleted: false }] })

  const dry = await run(t, dataDir, 'rewind', 'notes', '--to', then, '--dry-run')
  t.same(dry, {
    code: 0,
    stdout: 'restored  a\ndeleted   b\nDry run: 1 restored, 1 deleted. Nothing has changed.\n',
    stderr: '',
  })
  const asked = await run(t, dataDir, 'rewind', 'notes', '--to', then)
  t.match(asked, {
    code: 1,
    stdout: '',
    stderr: /Cannot ask, because this is not a terminal: add --yes/,
  })
  t.equal((await server.request('GET', '/notes/a')).json.n, 2)
  const done = await run(t, dataDir, 'rewind', 'notes', '--to', then, '--yes')
  t.same(done, { code: 0, stdout: 'restored  a\ndeleted   b\n1 restored, 1 deleted\n', stderr: '' })
  t.equal((await server.request('GET', '/notes/a')).json.n, 1)
  await server.close()

  const one = await run(t, dataDir, 'rewind', 'notes', '--to', later, '--id', 'a', '--yes', '--json')
  t.match(JSON.parse(one.stdout), { counts: { restored: 1 }, rows: [{ id: 'a', outcome: 'restored' }] })
  const stopped = await run(t, dataDir, 'rewind', 'notes', '--to', later, '--dry-run')
  t.same(
    stopped.stdout,
    'recreated  b\nDry run: 0 restored, 1 recreated, 1 unchanged. Nothing has changed.\n',
  )
  for (const args of [
    ['rewind', 'none', '--to', then, '--yes'],
    ['rewind', 'notes', '--to', '2222-01-01', '--yes'],
    ['history', 'notes', 'none'],
    ['history', 'notes', 'a', '--at', '1970-01-01'],
    ['history', 'notes', '--at', then],
    ['history', 'notes', 'a', '--rev', 'x'],
    ['history', 'notes', 'a', '--since', '2h'],
    ['rewind', 'notes', '--to', 'yesterday', '--yes'],
    ['rewind', 'notes', '--to', '2h', '--yes'],
  ]) {
    t.match(await run(t, dataDir, ...args), { code: 1, stdout: '', stderr: /^settee: [^\n]+\n$/ })
  }
})

t.test(
  'what a validate function refuses is told, and is a failure; a document alone is as it was',
  async (t) => {
    const server = await startTestServer(t)
    const { dataDir } = server
    await server.request('PUT', '/notes')
    const docs = ['bad', 'good'].map((_id) => ({ _id, n: _id }))
    const made = (await server.request('POST', '/notes/_bulk_docs', { body: { docs } })).json
    await delay(5)
    const then = new Date().toISOString()
    await delay(5)
    const spoilt = made.map(({ id, rev }: { id: string; rev: string }) => ({ _id: id, _rev: rev, n: 'x' }))
    await server.request('POST', '/notes/_bulk_docs', { body: { docs: spoilt } })
    const validate = 'function (doc) { if (doc.n === "bad") throw { forbidden: "never\\nso" } }'
    await server.request('PUT', '/notes/_design/v', { body: { validate_doc_update: validate } })
    const ids = ['--id', 'bad', '--id', 'good']
    const done = await run(t, dataDir, 'rewind', 'notes', '--to', then, ...ids, '--yes')
    t.match(done, {
      code: 1,
      stdout: 'refused   bad   never so\nrestored  good\n1 restored, 1 refused\n',
      stderr: '1 left unchanged: the write was refused.\n',
    })
    await server.close()
  },
)

t.test('overwritten documents are found among many that were not', async (t) => {
  const server = await startTestServer(t)
  await server.request('PUT', '/notes')
  const { rev } = (await server.request('PUT', '/notes/first', { body: { n: 1 } })).json
  await server.request('PUT', '/notes/first', { body: { n: 2, _rev: rev } })
  for (let at = 0; at < 21_000; at += 7000) {
    const docs = Array.from({ length: 7000 }, (_, n) => ({ _id: `d${at + n}` }))
    await server.request('POST', '/notes/_bulk_docs', { body: { docs } })
  }
  t.match(await run(t, server.dataDir, 'history', 'notes'), { stdout: /changed +1 +first\n$/, stderr: '' })
})
