/** Queries and their indexes by the clients that apps use; protocol.md 10. */

import { CloudantV1 } from '@ibm-cloud/cloudant'
import { NoAuthAuthenticator } from '@ibm-cloud/cloudant/auth/index.js'
import nano from 'nano'
import PouchDB from 'pouchdb'
import find from 'pouchdb-find'
import t, { type Test } from 'tap'
import { startTestServer } from '../helpers/server.ts'
import { call } from './call.ts'

PouchDB.plugin(find)

async function notes(t: Test): Promise<string> {
  const server = await startTestServer(t)
  await call(server, 'PUT', '/notes')
  const docs = Array.from({ length: 30 }, (_, n) => ({
    _id: `n${n}`,
    type: n % 2 === 0 ? 'note' : 'task',
    at: n,
  }))
  t.match(await call(server, 'POST', '/notes/_bulk_docs', { body: { docs } }), { status: 201 })
  return server.url
}

const QUERY = {
  selector: { type: 'note', at: { $gte: 20 } },
  sort: [{ at: 'desc' }],
  fields: ['_id'],
  limit: 2,
} as const
const FOUND = [{ _id: 'n28' }, { _id: 'n26' }]

t.test('pouchdb-find', async (t) => {
  const db = new PouchDB(`${await notes(t)}/notes`)
  await t.rejects(db.find(QUERY), { reason: /No index exists for this sort/ } as object as Error)
  t.match(await db.createIndex({ index: { fields: ['at', 'type'], name: 'by-at', ddoc: 'd' } }), {
    result: 'created',
  })
  t.match(await db.createIndex({ index: { fields: ['at', 'type'], name: 'by-at', ddoc: 'd' } }), {
    result: 'exists',
  })
  t.match(await db.getIndexes(), {
    total_rows: 2,
    indexes: [{ name: '_all_docs' }, { ddoc: '_design/d', name: 'by-at' }],
  })
  t.strictSame((await db.find(QUERY)).docs, FOUND)
  t.match(await db.explain(QUERY), { index: { name: 'by-at' }, covering: true })
  t.match(await db.deleteIndex({ ddoc: '_design/d', type: 'json', name: 'by-at' }), { ok: true })
  t.match(await db.getIndexes(), { total_rows: 1 })
})

t.test('nano', async (t) => {
  const db = nano(await notes(t)).use('notes')
  t.match(await db.createIndex({ index: { fields: ['at'] }, name: 'by-at', ddoc: 'd' }), {
    result: 'created',
  })
  const { docs, bookmark } = await db.find({ ...QUERY, sort: [{ at: 'desc' }], fields: ['_id'] })
  t.strictSame(docs, FOUND)
  const next = await db.find({
    ...QUERY,
    sort: [{ at: 'desc' }],
    fields: ['_id'],
    bookmark: String(bookmark),
  })
  t.strictSame(next.docs, [{ _id: 'n24' }, { _id: 'n22' }])
})

t.test("Cloudant's SDK", async (t) => {
  const client = CloudantV1.newInstance({
    authenticator: new NoAuthAuthenticator(),
    serviceUrl: await notes(t),
  })
  const db = 'notes'
  const index = { fields: [{ at: 'asc' }, { type: 'asc' }] }
  t.match((await client.postIndex({ db, ddoc: 'd', name: 'by-at', type: 'json', index })).result, {
    result: 'created',
  })
  t.match((await client.getIndexesInformation({ db })).result, { totalRows: 2 })
  const query = { db, selector: QUERY.selector, sort: [{ at: 'desc' }], fields: ['_id'], limit: 2 }
  t.strictSame((await client.postFind(query)).result.docs, FOUND)
  t.match((await client.postExplain(query)).result, { index: { name: 'by-at' }, dbname: 'notes' })
  const views = { all: { map: 'function (doc) { emit(doc.type, doc.at) }', reduce: '_sum' } }
  await client.putDesignDocument({ db, ddoc: 'v', designDocument: { views } })
  t.match((await client.postView({ db, ddoc: 'v', view: 'all', group: true })).result.rows, [
    { key: 'note', value: 210 },
    { key: 'task', value: 225 },
  ])
  const queries = { db, ddoc: 'v', view: 'all', queries: [{ key: 'note' }, { reduce: false, limit: 1 }] }
  t.match((await client.postViewQueries(queries)).result.results, [
    { rows: [{ key: null, value: 210 }] },
    { totalRows: 30, rows: [{ id: 'n0' }] },
  ])
  t.match((await client.getDesignDocumentInformation({ db, ddoc: 'v' })).result, { name: 'v' })
  t.match((await client.deleteIndex({ db, ddoc: 'd', type: 'json', index: 'by-at' })).result, { ok: true })
})
