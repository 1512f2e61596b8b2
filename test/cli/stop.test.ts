/** A process that is told to stop while clients do what clients do. */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { startTestServer, temporaryFolder } from '../helpers/server.ts'
import { freePort, start, untilUp } from './child.ts'

/** The server as `settee serve` runs it, but for threads from the sources. */
const SCRIPT = `
  import { runUntilSignalled } from './src/cli/serve-command.ts'
  import { startServer } from './src/server.ts'
  const [dataDir, port] = process.argv.slice(1)
  await runUntilSignalled(() => startServer({
    dataDir, env: {}, flags: { port: Number(port), logLevel: 'warning' },
    threadEntry: new URL('test/helpers/database-thread.mjs', 'file://' + process.cwd() + '/'),
    sandboxEntry: new URL('test/helpers/sandbox-thread.mjs', 'file://' + process.cwd() + '/'),
  }))`

const FEEDS = 50
/** More than the buffers of both ends of a connection hold. */
const BIG = Buffer.alloc(20_000_000, 'settee ')

interface Connection {
  readonly ended: Promise<unknown>
  /** What has come so far. */
  text(): string
}

/** A connection over which something was sent; resolves when the answer, if one is waited for, has begun. */
async function open(
  t: Test,
  port: number,
  sent: string,
  begin = true,
): Promise<Connection & { socket: Socket }> {
  const socket = connect(port, '127.0.0.1')
  t.teardown(() => socket.destroy())
  let text = ''
  socket.setEncoding('latin1').on('data', (chunk: string) => {
    text += chunk
  })
  socket.on('error', () => undefined)
  const ended = once(socket, 'close')
  await once(socket, 'connect')
  if (sent !== '') socket.write(sent)
  if (begin) await once(socket, 'data')
  return { socket, ended, text: () => text }
}

function get(path: string): string {
  return `GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`
}

t.test('it ends in its time whatever its clients do', async (t) => {
  const dataDir = await temporaryFolder(t)
  const port = await freePort()
  const url = `http://127.0.0.1:${port}`
  const node = ['--input-type=module', '--eval', SCRIPT, dataDir, String(port)]
  const child = start(t, process.execPath, node)
  await untilUp(child, url)
  const put = async (path: string, body: string | Buffer | null) => {
    const answer = await fetch(url + path, { method: 'PUT', body })
    t.equal(answer.status, 201, path)
    await answer.arrayBuffer()
  }
  await put('/db', null)
  await put('/db/doc', '{"text":"kept"}')
  await put('/db/big/file', BIG)
  await put('/slow', null)
  await put('/slow/_design/x', '{"validate_doc_update":"function (doc) { if (doc.loop) for (;;); }"}')
  const timeout = await fetch(`${url}/_node/_local/_config/couchdb/os_process_timeout`, {
    method: 'PUT',
    body: '"60000"',
  })
  t.equal(timeout.status, 200)

  const continuous = get('/db/_changes?feed=continuous&heartbeat=10000')
  const feeds = await Promise.all(Array.from({ length: FEEDS }, () => open(t, port, continuous)))
  const longpoll = await open(t, port, get('/db/_changes?feed=longpoll&since=now'))
  const upload = await open(
    t,
    port,
    'PUT /db/half/file HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n',
  )
  upload.socket.write('x'.repeat(100_000))
  const download = await open(t, port, get('/db/big/file'))
  download.socket.pause()
  const loop = 'PUT /slow/doc HTTP/1.1\r\nHost: localhost\r\nContent-Length: 13\r\n\r\n{"loop":true}'
  const judged = await open(t, port, loop, false)
  const idle = await open(t, port, get('/db'))
  const silent = await open(t, port, '', false)

  const told = performance.now()
  child.process.kill('SIGTERM')
  for (const { ended } of [...feeds, longpoll, idle, silent]) await ended
  const feedsEnded = performance.now() - told
  const { code, stdout, stderr } = await child.ended
  const all = performance.now() - told
  t.ok(feedsEnded < 4000, `whoever only waits is let go at once: ${feedsEnded} ms`)
  t.ok(all < 10_000, `${all} ms`)
  t.strictSame([code, stderr], [0, ''])
  t.match(
    stdout,
    /"count":3,.*connections were cut/,
    'the upload, the download, and who waits for a function',
  )
  t.equal(judged.text(), '')
  for (const feed of feeds) t.match(feed.text(), /\{"last_seq":"[^"]+","pending":0\}\n\r\n0\r\n\r\n$/)
  t.match(longpoll.text(), /"last_seq":"[^"]+".*\r\n0\r\n\r\n$/s)
  t.match(upload.text(), /^HTTP\/1.1 100 Continue\r\n\r\n$/)

  const again = await startTestServer(t, { dataDir })
  t.match((await again.request('GET', '/db/doc')).json, { text: 'kept' })
  t.match(await again.request('GET', '/db/big/file'), { status: 200, text: BIG.toString() })
  t.match(await again.request('GET', '/db/half'), { status: 404 })
  t.match(await again.request('GET', '/slow/doc'), { status: 404 })
})
