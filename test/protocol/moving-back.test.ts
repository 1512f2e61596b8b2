/** The way out (docs/moving.md, "Move back"): PouchDB's replicator carries everything from settee to another server. */
import PouchDB from 'pouchdb'
import t from 'tap'
import { startTestServer } from '../helpers/server.ts'
import { fill } from './couchbackup.ts'
import { serverHistories } from './histories.ts'

t.test('PouchDB between two servers copies all leaves, tombstones and attachments', async (t) => {
  const [here, there] = [await startTestServer(t), await startTestServer(t)]
  await fill(here, 'notes')
  await here.request('PUT', '/notes/file', {
    body: { _attachments: { a: { content_type: 'text/plain', data: 'aGVsbG8=' } } },
  })
  await there.request('PUT', '/notes')
  const result = await PouchDB.replicate(`${here.url}/notes`, `${there.url}/notes`)
  t.match(result, { ok: true, doc_write_failures: 0 })
  t.same(await serverHistories(there, 'notes'), await serverHistories(here, 'notes'))
  t.equal((await there.request('GET', '/notes/file/a')).text, 'hello')
})
