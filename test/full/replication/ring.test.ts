/** Three servers in a ring of continuous replications, whose connections fail at random: all must converge. */
import { randomBytes } from 'node:crypto'
import t, { type Test } from 'tap'
import { startTestServer, type TestServer } from '../../helpers/server.ts'
import { type ScriptedRemote, scriptedRemote } from '../../replication/scripted-remote.ts'

const SERVERS = 3
const ROUNDS = 12
const EDITS = 15
const IDS = 25

interface Node {
  readonly server: TestServer
  /** What the next server of the ring connects to. */
  readonly remote: ScriptedRemote
}

async function ring(t: Test): Promise<readonly Node[]> {
  const nodes: Node[] = []
  for (let n = 0; n < SERVERS; n++) {
    const server = await startTestServer(t)
    await server.request('PUT', '/notes')
    nodes.push({ server, remote: await scriptedRemote(t, server.url) })
  }
  for (const [at, { server }] of nodes.entries()) {
    const before = nodes[(at + SERVERS - 1) % SERVERS] as Node
    const { status } = await server.request('POST', '/_replicate', {
      body: {
        source: `${before.remote.url}/notes`,
        target: 'notes',
        continuous: true,
        checkpoint_interval: 200,
        retries_per_request: 1,
      },
    })
    if (status !== 202) throw new Error(`status ${status}`)
  }
  return nodes
}

/** Writes, deletes, or attaches something to a document, whatever others do to it elsewhere. */
async function edit({ server }: Node): Promise<void> {
  const path = `/notes/n${Math.floor(Math.random() * IDS)}`
  const found = await server.request('GET', path)
  const rev = found.status === 200 ? { _rev: found.json._rev } : {}
  const kind = Math.random()
  if (kind < 0.15 && found.status === 200) {
    await server.request('DELETE', `${path}?rev=${found.json._rev}`)
  } else if (kind < 0.35) {
    const size = Math.random() < 0.5 ? 50 : 400_000
    const data = randomBytes(size).toString('base64')
    await server.request('PUT', path, {
      body: { ...rev, _attachments: { pic: { content_type: 'image/png', data } } },
    })
  } else {
    const { _attachments } = found.json
    await server.request('PUT', path, {
      body: { ...rev, text: String(kind), ...(_attachments && { _attachments }) },
    })
  }
}

/** The leaves of all documents, with their ancestries and attachments. */
async function leaves({ server }: Node): Promise<string> {
  const { json } = await server.request('GET', '/notes/_changes?style=all_docs')
  const rows = json.results as { id: string; changes: { rev: string }[] }[]
  const docs = rows.flatMap(({ id, changes }) => changes.map(({ rev }) => ({ id, rev })))
  const order = (doc: { id: string; rev: string }) => `${doc.id} ${doc.rev}`
  docs.sort((a, b) => (order(a) < order(b) ? -1 : 1))
  const found = await server.request('POST', '/notes/_bulk_get?revs=true&attachments=true', {
    body: { docs },
  })
  return JSON.stringify((found.json.results as { id: string }[]).map(({ id, ...more }) => [id, more]))
}

t.test('a ring with random partitions converges', { timeout: 180_000 }, async (t) => {
  const nodes = await ring(t)
  for (let round = 0; round < ROUNDS; round++) {
    for (const { remote } of nodes) {
      const isCut = Math.random() < 0.4
      const chance = Math.random() * 0.3
      remote.judge(() => {
        if (isCut) return { type: 'hang up' }
        if (Math.random() >= chance) return null
        return Math.random() < 0.5 ? { type: 'cut', bytes: 300 } : { type: 'answer', status: 503 }
      })
    }
    for (let n = 0; n < EDITS; n++) await edit(nodes[n % SERVERS] as Node)
  }
  for (const { remote } of nodes) remote.judge(() => null)
  const began = performance.now()
  for (;;) {
    const [first, ...others] = await Promise.all(nodes.map(leaves))
    if (others.every((other) => other === first)) break
    if (performance.now() - began > 120_000) t.fail('the servers differ')
    await new Promise((resolve) => setTimeout(resolve, 200))
  }
  const { json } = await (nodes[0] as Node).server.request(
    'GET',
    '/notes/_all_docs?conflicts=true&include_docs=true',
  )
  t.ok(
    (json.rows as { doc: { _conflicts?: unknown } }[]).some(({ doc }) => doc._conflicts !== undefined),
    'there were conflicts',
  )
})
