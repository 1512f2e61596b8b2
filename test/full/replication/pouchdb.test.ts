/** The ids and contents of checkpoints, compared with those that a real PouchDB writes to a real server. */
import t, { type Test } from 'tap'
import {
  nextPouchCheckpoint,
  type PouchCheckpoint,
  type PouchSession,
  parsePouchCheckpoint,
  pouchResume,
} from '../../../src/replication/checkpoint.ts'
import { type PouchReplication, pouchCheckpointId } from '../../../src/replication/replication-id.ts'
import { startTestServer, type TestServer } from '../../helpers/server.ts'
import { type Device, device, type Remote, remote, sinces } from '../../protocol/devices.ts'

/** A name that must be escaped in URLs, and therefore in ids. */
const DATABASE = 'notes/of+anna'
const PATH = `/${encodeURIComponent(DATABASE)}`

/** The input of an id, besides the two databases. */
type Ingredients = Omit<PouchReplication, 'sourceId' | 'targetId'>

interface Pair {
  readonly server: TestServer
  readonly local: Device
  readonly away: Remote
  /** The name of the server's database in ids. */
  readonly awayId: string
}

async function pair(t: Test): Promise<Pair> {
  const server = await startTestServer(t)
  const local = await device(t)
  const away = remote(server.url + PATH)
  const { uuid } = (await server.request('GET', '/')).json
  await local.bulkDocs([1, 2, 3].map((n) => ({ _id: `note:${n}`, type: 'note', n })))
  return { server, local, away, awayId: uuid + PATH.slice(1) }
}

async function localIds({ server }: Pair): Promise<string[]> {
  const { json } = await server.request('GET', `${PATH}/_local_docs`)
  return json.rows.map(({ id }: { id: string }) => id)
}

/** Reads a checkpoint from the server like PouchDB, with an escaped `=`. */
async function onServer({ server }: Pair, id: string): Promise<Record<string, unknown>> {
  const { status, json } = await server.request(
    'GET',
    `${PATH}/_local/${encodeURIComponent(id.replace('_local/', ''))}`,
  )
  if (status !== 200) throw new Error(`${id} is ${status} on the server`)
  return json
}

async function onDevice({ local }: Pair, id: string): Promise<Record<string, unknown>> {
  return { ...(await local.get(id)) }
}

const filterText = 'function (doc, req) { return doc.n > Number(req.query.above) }'

/** Filters and selectors run on the source, so that these are pushes, which the device filters. */
const PUSHES: [what: string, options: PouchDB.Options, ingredients: Ingredients][] = [
  ['everything', {}, {}],
  ['named documents', { doc_ids: ['note:3', 'note:1'] }, { docIds: ['note:1', 'note:3'] }],
  [
    'a selector',
    { selector: { type: 'note', n: { $gt: 1 } } },
    { selector: { type: 'note', n: { $gt: 1 } } },
  ],
  [
    'a filter with parameters',
    { filter: 'd/above', query_params: { b: 'é中', above: 1 } },
    { filter: 'd/above', queryParams: { above: 1, b: 'é中' } },
  ],
  ['a filter', { filter: 'd/all' }, { filter: 'd/all' }],
  ['a view', { filter: '_view', view: 'd/notes' }, { filter: '_view', view: 'd/notes' }],
]

for (const [what, options, ingredients] of PUSHES) {
  t.test(`the checkpoint of a push of ${what} has the id and the shape that we compute`, async (t) => {
    const both = await pair(t)
    await both.local.put({
      _id: '_design/d',
      filters: { above: filterText, all: 'function () { return true }' },
      views: { notes: { map: 'function (doc) { emit(doc._id) }' } },
    })
    const sourceId = await both.local.id()
    await both.local.replicate.to(both.away.db, options)
    const id = pouchCheckpointId({ ...ingredients, sourceId, targetId: both.awayId })
    t.same(await localIds(both), [id])
    await checkShape(t, both, id)
  })
}

const PULLS: [what: string, options: PouchDB.Options, ingredients: Ingredients][] = [
  ['everything', {}, {}],
  ['named documents', { doc_ids: ['note:2', 'note:1'] }, { docIds: ['note:1', 'note:2'] }],
]

for (const [what, options, ingredients] of PULLS) {
  t.test(`the checkpoint of a pull of ${what} has the id and the shape that we compute`, async (t) => {
    const both = await pair(t)
    await both.server.request('PUT', PATH)
    await both.server.request('POST', PATH, { body: { _id: 'note:1' } })
    const targetId = await both.local.id()
    await both.local.replicate.from(both.away.db, options)
    const id = pouchCheckpointId({ ...ingredients, sourceId: both.awayId, targetId })
    t.same(await localIds(both), [id])
    await checkShape(t, both, id)
  })
}

/** Checks that the checkpoints of both ends equal those that settee computes. */
async function checkShape(t: Test, both: Pair, id: string): Promise<void> {
  for (const doc of [await onServer(both, id), await onDevice(both, id)]) {
    const { session_id, last_seq } = checkpoint(doc)
    t.same(own(doc), nextPouchCheckpoint(null, { session_id, last_seq }))
  }
}

function checkpoint(doc: Record<string, unknown>): PouchCheckpoint {
  const read = parsePouchCheckpoint(doc)
  if (read === null) throw new Error(`no checkpoint: ${JSON.stringify(doc)}`)
  return read
}

/** The members that are not CouchDB's own. */
function own(doc: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(doc).filter(([name]) => !name.startsWith('_')))
}

t.test('after many sessions both sides have the checkpoints that we would write', async (t) => {
  const both = await pair(t)
  const id = pouchCheckpointId({ sourceId: await both.local.id(), targetId: both.awayId })
  let expected: PouchCheckpoint | null = null
  for (let session = 0; session < 7; session++) {
    await both.local.put({ _id: `more:${session}` })
    await both.local.replicate.to(both.away.db)
    const doc = await onServer(both, id)
    const { session_id, last_seq } = checkpoint(doc)
    expected = nextPouchCheckpoint(expected, { session_id, last_seq })
    t.same(own(doc), expected, `session ${session}`)
    t.same(own(await onDevice(both, id)), expected, `session ${session} on the device`)
  }
  t.equal(expected?.history.length, 5)
})

t.test('if both sides have a checkpoint, PouchDB continues where we would', async (t) => {
  const both = await pair(t)
  const targetId = await both.local.id()
  await both.local.replicate.to(both.away.db)
  const id = pouchCheckpointId({ sourceId: both.awayId, targetId })
  for (let session = 0; session < 3; session++) {
    await both.server.request('POST', PATH, { body: { session } })
    await both.local.replicate.from(both.away.db)
  }
  const { history } = checkpoint(await onServer(both, id))
  const [third, second] = history as [PouchSession, PouchSession]
  const strange = { session_id: 'strange', last_seq: '1-strange' }
  const onlySecond = { ...third, session_id: second.session_id, last_seq: second.last_seq, history: [second] }
  const histories: [what: string, server: object, device: object][] = [
    ['as they are', {}, {}],
    ['the server has gone back', onlySecond, {}],
    ['the device has gone back', {}, onlySecond],
    ['the server knows a strange session too', { ...strange, history: [strange, third, second] }, {}],
    ['the device knows a strange session too', {}, { ...strange, history: [strange, third, second] }],
    ['the server knows a strange session only', { ...strange, history: [strange] }, {}],
    ['the server has the place-holder', { last_seq: 0, version: undefined, history: undefined }, {}],
  ]
  const [server, local] = [await onServer(both, id), await onDevice(both, id)]
  for (const [what, atServer, atDevice] of histories) {
    await put(both, id, { ...server, ...atServer }, { ...local, ...atDevice })
    const expected = pouchResume(
      parsePouchCheckpoint(await onServer(both, id)),
      parsePouchCheckpoint(await onDevice(both, id)),
    )
    const again = remote(both.server.url + PATH)
    await both.local.replicate.from(again.db)
    t.equal(sinces(again)[0], String(expected), what)
  }
})

async function put({ server, local }: Pair, id: string, atServer: object, atDevice: object): Promise<void> {
  const path = `${PATH}/_local/${encodeURIComponent(id.replace('_local/', ''))}`
  const { status } = await server.request('PUT', path, { body: atServer })
  if (status !== 201) throw new Error(`PUT ${path}: ${status}`)
  const { _rev } = await local.get(id)
  await local.put({ ...atDevice, _id: id, _rev })
}
