/** A bit that flips in a stopped database: the scrub of a listening server finds it, and says it wherever it is asked. */
import { existsSync } from 'node:fs'
import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import Sqlite from 'better-sqlite3'
import t from 'tap'
import { settee } from '../cli/child.ts'
import { startTestServer, type TestServer } from '../helpers/server.ts'
import { until } from '../helpers/until.ts'

/** Changes a text in a database's file. */
async function change(server: TestServer, database: string, from: string, to: string): Promise<void> {
  const path = join(server.dataDir, 'databases', `${database}.sqlite`)
  const bytes = await readFile(path)
  const at = bytes.indexOf(from)
  bytes.write(to, at)
  await writeFile(path, bytes)
}

/** Starts a check and waits for it. */
async function checked(server: TestServer, body: object = {}) {
  const { status } = await server.request('POST', '/_settee/check', { body })
  if (status !== 202) throw new Error(String(status))
  for (;;) {
    const { json } = await server.request('GET', '/_settee/check')
    if (json.running === null && json.last !== null) return json
    await delay(20)
  }
}

t.test(
  'a flipped byte is found, said everywhere, and forgotten when the database is whole again',
  async (t) => {
    const server = await startTestServer(t)
    await server.request('PUT', '/notes')
    await server.request('PUT', '/others')
    const { json: written } = await server.request('PUT', '/notes/a', { body: { text: 'the right words' } })
    await server.request('PUT', '/notes/b', { body: { text: 'others' } })
    await server.request('PUT', '/notes/b/picture.jpg?rev=x', { body: 'none' })
    t.match(await checked(server), { damaged: [], interval: 604_800, last_failure: null })
    const factOf = async () => {
      const { status, json } = await server.request('GET', '/_up?deep=1')
      return { status, ...json.facts.find(({ name }: { name: string }) => name === 'scrub') }
    }
    t.match(await factOf(), { status: 200, ok: true, last: String })

    await server.stop()
    await change(server, 'notes', 'the right words', 'the wrong words')
    await server.start()
    const part = { kind: 'revision', id: 'a', rev: written.rev, since: String }
    const found = await checked(server)
    t.match(found.damaged, [{ database: 'notes', count: 1, parts: [part] }])
    t.match(await factOf(), {
      status: 503,
      ok: false,
      reason: `Damaged in the database notes: revision ${written.rev} of the document a. GET /_settee/check says which.`,
      damaged: [{ database: 'notes', count: 1 }],
    })
    const { json: diff } = await server.request('POST', '/notes/_revs_diff', { body: { a: [written.rev] } })
    t.match(diff, { a: { missing: [written.rev] } }, 'devices are asked for it')
    const metrics = (await server.request('GET', '/_node/_local/_prometheus')).text
    t.match(metrics, /^settee_scrub_damaged_parts 1$/m)
    t.match(metrics, /^settee_scrub_databases_total 3$/m)

    await server.stop()
    await server.start()
    t.strictSame(
      (await server.request('GET', '/_settee/check')).json.damaged,
      found.damaged,
      'a restart remembers',
    )
    const command = async (...args: string[]) => {
      const { code, stdout } = await settee(t, ['check', '--data', server.dataDir, ...args]).ended
      return `${stdout}${code}`
    }
    const lines = await command()
    t.match(lines, /^notes: revision .* of the document a, since 20/)
    t.match(lines, /^Checked 3 databases: 1 part is damaged\.\n1$/m)
    t.equal(await command('--db', 'others'), 'Checked 1 database: nothing is damaged.\n0')

    await server.stop()
    await change(server, 'notes', 'the wrong words', 'the right words')
    t.equal(
      await command(),
      'Checked 3 databases: nothing is damaged.\n0',
      'on the folder of a stopped server',
    )
    await server.start()
    t.strictSame((await server.request('GET', '/_settee/check')).json.damaged, [])
  },
)

t.test(
  'a damaged index is removed and built again, and a damaged server.sqlite is a fault until the next start',
  async (t) => {
    const server = await startTestServer(t)
    await server.request('PUT', '/notes')
    const views = { v: { map: 'function (doc) { emit(doc.title, doc.text) }', reduce: '_count' } }
    await server.request('PUT', '/notes/_design/d', { body: { views } })
    await server.request('PUT', '/notes/a', { body: { title: 'first', text: 'the right words' } })
    const view = async () => (await server.request('GET', '/notes/_design/d/_view/v?reduce=false')).json
    const right = await view()
    t.match(right.rows, [{ value: 'the right words' }])
    await server.stop()
    const folder = join(server.dataDir, 'indexes', 'notes')
    for (const file of await readdir(folder)) {
      const bytes = await readFile(join(folder, file))
      const at = bytes.indexOf('the right words')
      if (at !== -1) bytes.write('the wrong words', at)
      await writeFile(join(folder, file), bytes)
    }
    await server.start()
    const command = async () => {
      const { code, stdout } = await settee(t, ['check', '--data', server.dataDir]).ended
      return `${stdout}${code}`
    }
    t.match(
      await command(),
      /^notes: repaired an index, from its documents\nChecked 2 databases: nothing is damaged\.\n0$/,
    )
    t.same(await view(), right)

    await until(() => existsSync(join(server.dataDir, 'server.sqlite.copy')))
    const outside = new Sqlite(join(server.dataDir, 'server.sqlite'))
    outside.exec("UPDATE record SET value = value || ' ' WHERE kind = 'replication'")
    outside.close()
    t.match(
      await command(),
      /^server\.sqlite: the record .* of the kind "replication" is damaged\. Restart settee.*\n.*\n1$/,
    )
    const reason = async () => {
      const { json } = await server.request('GET', '/_up?deep=1')
      return json.facts.find(({ name }: { name: string }) => name === 'scrub').reason
    }
    t.match(await reason(), /^The server's own data is damaged: the record/)
    const shown = await server.request('GET', '/_settee/check')
    t.match(shown.json, { damaged: [], server: /^the record .* of the kind "replication" is damaged/ })
    await server.stop()
    await server.start()
    t.notOk(await reason())
    t.match(await command(), /: nothing is damaged\.\n0$/)
  },
)

t.test('what readers find damaged is a fault until a check finds the database whole', async (t) => {
  const server = await startTestServer(t)
  await server.request('PUT', '/notes')
  const { json } = await server.request('PUT', '/notes/a', { body: { text: 'the right words' } })
  await server.stop()
  await change(server, 'notes', 'the right words', 'the wrong words')
  await server.start()
  t.equal((await server.request('GET', '/notes/a')).status, 500)
  const isWell = async () => (await server.request('GET', '/_up?deep=1')).status
  t.equal(await isWell(), 503)
  await server.request('POST', '/notes/_purge', { body: { a: [json.rev] } })
  await server.request('POST', '/notes/_compact', { body: {} })
  await checked(server)
  t.equal(await isWell(), 200)
})

t.test('a file that cannot be opened is damaged, and ends nothing', async (t) => {
  const server = await startTestServer(t)
  for (const name of ['a', 'b', 'c', 'd']) await server.request('PUT', `/${name}`)
  await server.stop()
  const pathOf = (name: string) => join(server.dataDir, 'databases', `${name}.sqlite`)
  await writeFile(pathOf('a'), Buffer.alloc(50_000, 'no database '))
  await writeFile(pathOf('b'), '')
  const bytes = await readFile(pathOf('c'))
  await writeFile(pathOf('c'), bytes.subarray(0, bytes.length / 2))
  await server.start()
  const { damaged, last_failure } = await checked(server)
  const kinds = damaged.map(({ database, parts }: { database: string; parts: { kind: string }[] }) => [
    database,
    parts[0]?.kind,
  ])
  t.strictSame(kinds, [
    ['a', 'file'],
    ['b', 'file'],
    ['c', 'file'],
  ])
  t.equal(last_failure, null)
  for (const name of ['a', 'b', 'c']) await server.request('DELETE', `/${name}`)
  t.strictSame((await server.request('GET', '/_settee/check')).json.damaged, [])
})

t.test('only server admins start or read checks', async (t) => {
  const server = await startTestServer(t, {
    hosted: true,
    env: { COUCHDB_USER: 'admin', COUCHDB_PASSWORD: 'secret' },
  })
  const auth = 'admin:secret'
  const { status } = await server.request('PUT', '/_users/org.couchdb.user:ben', {
    auth,
    body: { name: 'ben', password: 'relax', roles: [], type: 'user' },
  })
  t.equal(status, 201)
  for (const caller of [{}, { auth: 'ben:relax' }])
    for (const method of ['GET', 'POST']) {
      const answer = await server.request(method, '/_settee/check', {
        ...caller,
        ...(method === 'POST' && { body: {} }),
      })
      t.ok([401, 403].includes(answer.status), `${method} ${answer.status}`)
      t.notMatch(answer.json, { damaged: Array })
    }
  t.match((await server.request('GET', '/_settee/check', { auth })).json, { running: null, damaged: [] })
  for (const body of [[], { databases: [] }, { databases: 'notes' }, { databases: [7] }])
    t.equal((await server.request('POST', '/_settee/check', { auth, body })).status, 400)
  const unknown = await server.request('POST', '/_settee/check', { auth, body: { databases: ['none'] } })
  t.equal(unknown.status, 404)
})
