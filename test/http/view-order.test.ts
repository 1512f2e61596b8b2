/** The order of view keys, through a listening server and its threads; protocol.md 9.4. */
import { readFile } from 'node:fs/promises'
import t from 'tap'
import { startTestServer } from '../helpers/server.ts'

t.test('a view lists strings of all scripts as CouchDB does', async (t) => {
  const listed: readonly (string | readonly string[])[] = JSON.parse(
    await readFile(new URL('../query/collation-order.json', import.meta.url), 'utf8'),
  )
  // One string of each group, since equal ones follow by their ids.
  const ordered = listed.map((item) => (typeof item === 'string' ? item : item[0]))
  const server = await startTestServer(t)
  const call = async (method: string, path: string, body?: unknown) =>
    (await server.request(method, path, { body })).json
  await call('PUT', '/order')
  // Ids in the order of the strings reversed.
  const docs = ordered.map((text, i) => ({ _id: String(9999 - i), text }))
  await call('POST', '/order/_bulk_docs', { docs })
  await call('PUT', '/order/_design/by', { views: { text: { map: '(doc) => emit(doc.text)' } } })
  const { rows } = await call('GET', '/order/_design/by/_view/text')
  t.same(
    rows.map(({ key }: { key: string }) => key),
    ordered,
  )
})
