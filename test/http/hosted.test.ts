/** Hosted mode over the engine in memory: what is refused, what passes, and what is read. docs/hosted.md */
import { once } from 'node:events'
import { createConnection } from 'node:net'
import t, { type Test } from 'tap'
import { setAdmin } from '../../src/auth/admins.ts'
import { METHODS } from '../../src/threads/served.ts'
import { ADMIN, body } from '../documents/helpers.ts'
import { connect } from './client.ts'
import { checkRead, checkTable, checkTaken, fill, type HostedServer } from './hosted-checks.ts'
import { OTHER_METHODS, WAYS } from './hosted-table.ts'
import { startMemoryServer } from './memory-server.ts'

async function startHosted(t: Test): Promise<HostedServer> {
  const server = await startMemoryServer(t, { 'settee/mode': 'hosted' })
  const auth = 'root:secret'
  await setAdmin(server.config, 'root', 'secret')
  const call = connect(t, server)
  const stored = []
  for (const name of ['db', 'control']) {
    await server.databases.create(name)
    const database = server.before(name)
    stored.push(await fill(async (id, doc) => (await database.put(ADMIN, id, body(doc), {})).rev))
  }
  const [first] = stored
  if (first === undefined) throw new Error('nothing is stored')
  return {
    call: (method, path, ask) => call(method, path, { auth, ...ask }),
    host: `127.0.0.1:${server.port}`,
    stored: first,
  }
}

t.test('each method of a database is in the table, or takes in no document', async (t) => {
  const ways = Object.keys(WAYS)
  t.same([...ways, ...OTHER_METHODS].sort(), Object.keys(METHODS).sort())
})

t.test('what is refused, through every way in', async (t) => {
  await checkTable(t, await startHosted(t), () => null)
})

t.test('what is taken', async (t) => {
  await checkTaken(t, await startHosted(t))
})

t.test('what came before is read', async (t) => {
  await checkRead(t, await startHosted(t))
})

t.test('filters that are functions are refused, the others work', async (t) => {
  const { call } = await startHosted(t)
  for (const filter of ['old/all', 'no/such', '_view&view=old/v']) {
    for (const feed of ['normal', 'longpoll', 'continuous', 'eventsource']) {
      const answer = await call('GET', `/db/_changes?filter=${filter}&feed=${feed}`)
      const reason = /runs no functions.*_doc_ids, _selector and _design/
      t.match(answer, { status: 403, json: { error: 'forbidden', reason } }, `${filter} ${feed}`)
    }
  }
  const idsOf = async (filter: string, json?: unknown) => {
    const method = json === undefined ? 'GET' : 'POST'
    const answer = await call(method, `/db/_changes?filter=${filter}`, {
      ...(json !== undefined && { json }),
    })
    return (answer.json as { results: { id: string }[] }).results.map(({ id }) => id)
  }
  t.same(await idsOf('_design'), ['_design/old'])
  t.same(await idsOf('_doc_ids', { doc_ids: ['plain'] }), ['plain'])
  t.same(await idsOf('_selector', { selector: { _id: 'pictured' } }), ['pictured'])
})

t.test('an attachment and a design document are refused before their bodies are sent', async (t) => {
  const { host } = await startHosted(t)
  for (const path of ['/db/x/a', '/db/_design/x']) {
    const socket = createConnection(Number(host.split(':')[1]), '127.0.0.1')
    const auth = Buffer.from('root:secret').toString('base64')
    socket.write(
      `PUT ${path} HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Basic ${auth}\r\nContent-Length: 1000000\r\n\r\n`,
    )
    const [head] = (await once(socket, 'data')) as [Buffer]
    t.match(head.toString(), /^HTTP\/1\.1 403 /, path)
    socket.destroy()
  }
})

t.test('a purge is as ever', async (t) => {
  const { call, stored } = await startHosted(t)
  const json = { '_design/old': [stored.design], pictured: [stored.pictured] }
  t.match(await call('POST', '/db/_purge', { json }), { status: 201, json: { purged: json } })
})

t.test(
  'a document has 1,000 conflicting revisions at most, and all others of a request are stored',
  async (t) => {
    const { call } = await startHosted(t)
    const docs = Array.from({ length: 1001 }, (_, n) => ({ _id: 'conflicts', _rev: `2-x${n}`, n }))
    const json = { new_edits: false, docs: [...docs, { _id: 'other', _rev: '1-a' }] }
    const answer = await call('POST', '/db/_bulk_docs', { json })
    const reason = /has 1000 conflicting revisions/
    t.match(answer, { status: 201, json: [{ id: 'conflicts', rev: '2-x1000', error: 'forbidden', reason }] })
    t.equal((answer.json as unknown[]).length, 1, 'nothing else is refused')
    t.equal((await call('GET', '/db/other')).status, 200)
    const one = await call('PUT', '/db/conflicts?new_edits=false', { json: { _rev: '2-y' } })
    t.match(one, { status: 403, json: { error: 'forbidden', reason } })
  },
)
