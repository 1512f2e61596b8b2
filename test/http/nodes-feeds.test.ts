/** Two nodes over one state in memory: feeds on one show what the other writes, and end with its rights and its deletions. */
import { randomBytes, randomUUID } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import PouchDB from 'pouchdb'
import memoryAdapter from 'pouchdb-adapter-memory'
import t, { type Test } from 'tap'
import { until } from '../helpers/until.ts'
import type { Call } from './client.ts'
import { startTwoNodes } from './two-nodes.ts'

PouchDB.plugin(memoryAdapter)

const auth = 'boss:secret'

/** Two nodes with a database `notes`, of which `carl` is a member. */
async function startWithNotes(t: Test) {
  const nodes = await startTwoNodes(t)
  t.equal((await nodes.first('PUT', '/notes', { auth })).status, 201)
  await secure(nodes.first, 'carl')
  return nodes
}

async function secure(node: Call, member: string): Promise<void> {
  const json = { admins: { names: [], roles: [] }, members: { names: [member], roles: [] } }
  await node('PUT', '/notes/_security', { auth, json })
}

/** Follows the feed of carl. */
async function follow(url: string) {
  const authorization = `Basic ${Buffer.from('carl:carl').toString('base64')}`
  const answer = await fetch(`${url}/notes/_changes?feed=continuous&heartbeat=10000`, {
    headers: { authorization },
  })
  const feed = {
    status: answer.status,
    text: '',
    hasEnded: false,
    ids: () => [...feed.text.matchAll(/"id":"([^"]+)"/g)].map(([, id]) => id),
  }
  const read = async () => {
    for await (const chunk of answer.body ?? []) feed.text += Buffer.from(chunk).toString()
    feed.hasEnded = true
  }
  void read()
  return feed
}

t.test(
  'a feed shows what another node writes, and ends when another node takes the rights away',
  async (t) => {
    const { one, first, second } = await startWithNotes(t)
    const feed = await follow(one.url)
    for (const [at, node] of [second, first, second].entries()) {
      t.equal((await node('PUT', `/notes/doc${at}`, { auth: 'carl:carl', json: {} })).status, 201)
      await until(() => feed.ids().includes(`doc${at}`))
    }
    t.same(feed.ids(), ['doc0', 'doc1', 'doc2'])
    await secure(second, 'ann')
    await until(() => feed.hasEnded)
    t.match(feed.text, /\{"last_seq":"3-[^"]+","pending":0\}\n$/)
    t.equal((await first('GET', '/notes/doc0', { auth: 'carl:carl' })).status, 403)
  },
)

t.test(
  'a feed ends when another node deletes the database, and a new one of its name is another',
  async (t) => {
    const { one, first, second } = await startWithNotes(t)
    await first('PUT', '/notes/old', { auth, json: {} })
    const feed = await follow(one.url)
    t.equal((await second('DELETE', '/notes', { auth })).status, 200)
    await until(() => feed.hasEnded)
    await until(async () => (await first('GET', '/notes', { auth })).status === 404)
    t.equal((await second('PUT', '/notes', { auth })).status, 201)
    t.equal((await second('PUT', '/notes/new', { auth, json: {} })).status, 201)
    const { json } = await first('GET', '/notes/_all_docs', { auth })
    t.hasStrict(json, { total_rows: 1, rows: [{ id: 'new' }] })
  },
)

t.test('devices sync live through both nodes in turn, with conflicts and attachments', async (t) => {
  const { one, two } = await startWithNotes(t)
  let turn = 0
  const either: typeof PouchDB.fetch = (path, init) => {
    const { pathname, search } = new URL(String(path))
    return PouchDB.fetch(`${[one, two][turn++ % 2]?.url}${pathname}${search}`, init)
  }
  const devices = Array.from(
    { length: 2 },
    () => new PouchDB(`device-${randomUUID()}`, { adapter: 'memory' }),
  )
  const syncs = devices.map((device) => {
    const remote = new PouchDB('http://settee.test/notes', {
      fetch: either,
      auth: { username: 'carl', password: 'carl' },
    })
    return device.sync(remote, { live: true, retry: true })
  })
  t.teardown(async () => {
    for (const sync of syncs) sync.cancel()
    await Promise.all(devices.map((device) => device.destroy()))
  })
  const photo = { 'a.jpg': { content_type: 'image/jpeg', data: randomBytes(50_000).toString('base64') } }
  const shared = devices.map(async (device, at) => {
    for (let n = 0; n < 15; n++) {
      await device.put({ _id: `${at}-${n}`, ...(n % 5 === 0 && { _attachments: photo }) })
      await device.put({ _id: `both-${n}`, by: at }).catch((error: { status: number }) => {
        if (error.status !== 409) throw error
      })
    }
  })
  await Promise.all(shared)
  const contents = async (device: PouchDB.Database) => {
    const { rows } = await device.allDocs({ include_docs: true, attachments: true, conflicts: true })
    return rows.map(({ doc }) => doc)
  }
  await until(async () => {
    const [a, b] = await Promise.all(devices.map(contents))
    return isDeepStrictEqual(a, b) && a?.length === 45
  })
  t.ok(turn > 20, 'every other request went to another node')
})
