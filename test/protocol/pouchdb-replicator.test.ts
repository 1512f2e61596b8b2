/** PouchDB and settee replicate the same two databases in turns; protocol.md 14.2. */

import PouchDB from 'pouchdb'
import t from 'tap'
import { startTestServer } from '../helpers/server.ts'
import { call } from './call.ts'

t.test('settee goes on where PouchDB has stopped, and PouchDB where settee has', async (t) => {
  const server = await startTestServer(t)
  const [source, target] = [`${server.url}/source`, `${server.url}/target`]
  await call(server, 'PUT', '/source')
  await call(server, 'PUT', '/target')
  const write = async (ids: readonly string[]) =>
    call(server, 'POST', '/source/_bulk_docs', { body: { docs: ids.map((_id) => ({ _id })) } })
  const bySettee = async () => {
    const { json } = await call(server, 'POST', '/_replicate', { body: { source, target } })
    return (json as { history: { start_last_seq: unknown; missing_checked: number }[] }).history[0]
  }
  await write(Array.from({ length: 100 }, (_, n) => `n${n}`))
  const first = await PouchDB.replicate(source, target)
  t.equal(first.docs_written, 100)
  await write(['a', 'b'])
  t.match(await bySettee(), { start_last_seq: first.last_seq, missing_checked: 2 })
  await write(['c', 'd', 'e'])
  const second = await PouchDB.replicate(source, target)
  t.equal(second.docs_read, 3, 'PouchDB has compared only what is new')
  await write(['f'])
  t.match(await bySettee(), { start_last_seq: second.last_seq, missing_checked: 1 })
})
