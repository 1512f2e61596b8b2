/** `GET /_settee/log` of a listening server: the newest lines, those that follow, secrets, and revoked rights. */
import { once } from 'node:events'
import { createConnection } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { request as send } from 'undici'
import { startTestServer } from '../helpers/server.ts'
import { connect } from './client.ts'
import { startMemoryServer } from './memory-server.ts'

interface Row {
  readonly seq?: string
  readonly missed?: number
  readonly last_seq?: string
  readonly line?: { readonly level: string; readonly msg: string; readonly path?: string }
}
interface Log {
  readonly lines: readonly Row[]
  readonly last_seq: string
  readonly missed: number
}

async function start(t: Test) {
  const server = await startTestServer(t, {
    logLevel: 'debug',
    logFile: `${t.testdir()}/settee.log`,
    env: { COUCHDB_USER: 'anna', COUCHDB_PASSWORD: 'a-secret-word' },
  })
  const call = connect(t, server)
  const auth = 'anna:a-secret-word'
  const read = async (query = '') => (await call('GET', `/_settee/log${query}`, { auth })).json as Log
  return { server, call, auth, read }
}

/** The rows of a continuous log, as they come. */
async function follow(t: Test, url: string, auth: string, query = '') {
  const { statusCode, body } = await send(`${url}/_settee/log?feed=continuous${query}`, {
    headers: { authorization: `Basic ${Buffer.from(auth).toString('base64')}` },
  })
  t.equal(statusCode, 200)
  t.teardown(() => body.destroy())
  body.on('error', () => undefined)
  async function* rows(): AsyncGenerator<Row | null> {
    let text = ''
    for await (const chunk of body) {
      const lines = (text + chunk).split('\n')
      text = lines.pop() ?? ''
      for (const line of lines) yield line === '' ? null : (JSON.parse(line) as Row)
    }
  }
  return rows()
}

async function allOf<T>(rows: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = []
  for await (const row of rows) all.push(row)
  return all
}

t.test('the newest lines, and pages of those after', async (t) => {
  const { call, auth, read } = await start(t)
  await call('PUT', '/notes', { auth })
  const all = await read()
  t.match(all.lines.at(-1)?.line, { level: 'debug', msg: 'request', path: '/notes' })
  t.equal(all.missed, 0)
  t.match((await read('?limit=1')).lines.length, 1)
  const after = await read(`?since=${all.last_seq}`)
  t.ok(after.lines.length >= 1 && after.lines.every(({ line }) => line?.path === '/_settee/log'))
  t.strictSame((await read('?level=fatal')).lines, [])
  t.strictSame((await read('?level=warn&filter=nobody-said-this')).lines, [])
  t.ok((await read('?filter=%22PATH%22:%22/NOTES')).lines.length > 0)
  t.equal((await call('HEAD', '/_settee/log?feed=continuous', { auth })).status, 200)
  for (const bad of ['level=x', 'since=1', 'feed=longpoll', 'limit=x', 'heartbeat=-1']) {
    t.equal((await call('GET', `/_settee/log?${bad}`, { auth })).status, 400, bad)
  }
  const { status, headers } = await call('GET', '/_settee/log', { auth: 'bob:wrong' })
  t.equal(status, 401)
  t.ok(headers)
  const text = JSON.stringify(await read('?limit=5000'))
  t.notMatch(text, /a-secret-word|wrong|Basic/, 'no credentials')
})

t.test('a continuous log, its heartbeat, and its end with the rights of its reader', async (t) => {
  const { server, call, auth } = await start(t)
  await call('PUT', '/_node/_local/_config/admins/carl', { auth, json: 'carls-word' })
  const rows = await follow(
    t,
    server.url,
    'carl:carls-word',
    '&heartbeat=1000&limit=0&filter=%22path%22:%22/x',
  )
  t.equal((await rows.next()).value, null, 'a heartbeat')
  await call('PUT', '/x', { auth })
  for (;;) {
    const { value } = await rows.next()
    if (value === null) continue
    t.match(value, { seq: /^\d+-/, line: { path: '/x' } })
    break
  }
  await call('DELETE', '/_node/_local/_config/admins/carl', { auth })
  await call('GET', '/x', { auth })
  let isOver = false
  while (!isOver) {
    // On a busy machine the connection may be cut before the answer has ended.
    const { value, done } = await rows.next().catch(() => ({ value: null, done: true }))
    isOver = done === true
    if (!isOver) t.equal(value, null, 'nothing after the rights have gone')
  }
})

t.test('a timeout, and a server that stops, end it in order', async (t) => {
  const { server, auth } = await start(t)
  const short = await allOf(await follow(t, server.url, auth, '&timeout=50'))
  t.match(short.at(-1), { last_seq: /^\d+-/ })
  const rows = await follow(t, server.url, auth)
  await rows.next()
  const rest = allOf(rows)
  await server.close()
  t.match((await rest).at(-1), { last_seq: /^\d+-/ })
})

t.test('a reader that does not read misses lines, and is told how many', async (t) => {
  const { app, port } = await startMemoryServer(t)
  const socket = createConnection({ host: '127.0.0.1', port })
  t.teardown(() => socket.destroy())
  socket.pause()
  socket.write('GET /_settee/log?feed=continuous&limit=0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n')
  const { log } = app.services
  const line = `{"level":"info","msg":"${'y'.repeat(60_000)}"}\n`
  // More than the sockets' buffers and the lines that are held take together, in pieces that a reader could follow.
  for (let n = 0; n < 1000; n++) {
    log.add(line)
    if (n % 20 === 0) await delay(1)
  }
  let text = ''
  let found: string | undefined
  socket
    .setEncoding('latin1')
    .resume()
    .on('data', (chunk: string) => {
      text = text.slice(-100) + chunk
      found ??= /\{"missed":[1-9]\d*\}/.exec(text)?.[0]
    })
  while (found === undefined) await once(socket, 'data')
  t.ok(found)
})
