/** What functions that answer requests may cost: time, memory, threads. */

import { once } from 'node:events'
import { createConnection, type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { startTestServer, type TestServer } from '../helpers/server.ts'
import { call } from '../protocol/call.ts'

const TIMEOUT_MS = 400

const DESIGN = {
  views: { all: { map: 'function (doc) { emit(doc._id, null) }' } },
  validate_doc_update: 'function () {}',
  filters: { all: 'function () { return true }' },
  shows: {
    endless: 'function () { for (;;); }',
    huge: 'function () { var s = "x"; for (;;) s += s; }',
    catches: 'function () { for (;;) try { for (;;); } catch (e) {} }',
    ok: 'function () { return "ok" }',
  },
  lists: {
    endless: 'function () { for (;;); }',
    sendsFirst: 'function () { for (;;) send("x".repeat(1000)) }',
    sends: 'function () { getRow(); for (;;) send("x".repeat(1000)) }',
    catches: 'function () { getRow(); for (;;) try { send("x".repeat(100000)) } catch (e) {} }',
    waits: 'function () { while (getRow()) send("x".repeat(200000)) }',
    ok: 'function () { var n = 0; while (getRow()) n++; return String(n) }',
  },
  rewrites: 'function () { for (;;); }',
}

async function limited(t: Test): Promise<TestServer> {
  const server = await startTestServer(t)
  await call(server, 'PUT', '/_node/_local/_config/couchdb/os_process_timeout', { body: `"${TIMEOUT_MS}"` })
  await call(server, 'PUT', '/db')
  const docs = Array.from({ length: 500 }, (_, n) => ({ _id: `d${n}` }))
  await call(server, 'POST', '/db/_bulk_docs', { body: { docs } })
  t.match(await call(server, 'PUT', '/db/_design/app', { body: DESIGN }), { status: 201 })
  return server
}

const APP = '/db/_design/app'

/** Asks for a list and reads nothing of its answer. */
async function stalled(server: TestServer, path: string): Promise<Socket> {
  const { host, port } = new URL(server.url)
  const socket = createConnection(Number(port), '127.0.0.1')
  socket.write(`GET ${APP}/_list/${path} HTTP/1.1\r\nHost: ${host}\r\n\r\n`)
  await once(socket, 'readable')
  return socket
}

t.test('functions that do not end are stopped, and so are lists that send without end', async (t) => {
  const server = await limited(t)
  for (const path of ['_show/endless', '_show/catches', '_rewrite/x', '_list/endless/all'])
    t.match(await call(server, 'GET', `${APP}/${path}`), { status: 500, json: { error: 'timeout' } }, path)
  for (const path of ['_show/huge', '_list/sendsFirst/all'])
    t.match(
      await call(server, 'GET', `${APP}/${path}`),
      { status: 500, json: { error: /out_of_memory|timeout|render_error/ } },
      path,
    )
  for (const path of ['_list/sends/all', '_list/catches/all'])
    await t.rejects(call(server, 'GET', `${APP}/${path}`), `${path} breaks off`)
  t.match(await call(server, 'GET', `${APP}/_show/ok`), { text: 'ok' })
  t.match(await call(server, 'GET', `${APP}/_list/ok/all`), { text: '500' })
})

t.test('clients that do not read their lists stop nobody else', async (t) => {
  const server = await limited(t)
  const socket = await stalled(server, 'waits/all')
  t.teardown(() => socket.destroy())
  t.match(await call(server, 'PUT', '/db/new', { body: {} }), { status: 201 }, 'a validate function runs')
  t.match(await call(server, 'GET', '/db/_changes?filter=app/all&limit=1'), { status: 200 }, 'a filter runs')
  t.match(await call(server, 'GET', `${APP}/_view/all?limit=1`), { status: 200 })
  t.match(await call(server, 'GET', `${APP}/_show/ok`), { text: 'ok' })
  let isDone = false
  const next = call(server, 'GET', `${APP}/_list/ok/all`).then((answer) => {
    isDone = true
    return answer
  })
  t.match(await call(server, 'GET', `${APP}/_show/ok`), { text: 'ok' })
  t.notOk(isDone, 'a second list of the same caller waits')
  socket.destroy()
  t.match(await next, { text: '501' }, 'the second list runs after the first client has left')
})

t.test('a database can be deleted, and the server can stop, while lists wait', async (t) => {
  const server = await limited(t)
  const socket = await stalled(server, 'waits/all')
  const closed = once(socket, 'close')
  socket.on('error', () => undefined)
  t.match(await call(server, 'DELETE', '/db'), { status: 200 })
  socket.resume()
  await closed
  await call(server, 'PUT', '/db')
  await call(server, 'PUT', '/db/_design/app', { body: DESIGN })
  for (let n = 0; n < 20; n += 1) await call(server, 'PUT', `/db/d${n}`, { body: {} })
  const second = await stalled(server, 'waits/all')
  second.on('error', () => undefined)
  t.teardown(() => second.destroy())
  await server.stop()
  t.pass('stopped')
})

t.test('bodies have a limit', async (t) => {
  const server = await limited(t)
  const body = JSON.stringify('x'.repeat(1_048_576))
  for (const path of ['_show/ok', '_update/x', '_list/ok/all'])
    t.match(await call(server, 'POST', `${APP}/${path}`, { body }), { status: 413 }, path)
})
