import { once } from 'node:events'
import { createServer, type RequestListener, type Server } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { setImmediate as turn } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { answerClientError } from '../../src/http/transport/client-errors.ts'
import { guardConnections } from '../../src/http/transport/connections.ts'

/** Longer than any test may take: where it counts, the test would run out of time. */
const NEVER = 600_000

async function serve(t: Test, answer: RequestListener, graceMs = NEVER) {
  const server = createServer(answer).listen(0, '127.0.0.1')
  const cuts: number[] = []
  guardConnections(server, { graceMs, onCut: (count) => cuts.push(count) })
  await once(server, 'listening')
  t.teardown(() => server.closeAllConnections())
  return { server, cuts, close: () => closed(server) }
}

function closed(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve())
  })
}

interface Connection {
  readonly socket: Socket
  readonly ended: Promise<unknown>
  /** What has come so far. */
  text(): string
}

/** A connection that the server has accepted. */
async function open(t: Test, server: Server): Promise<Connection> {
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1')
  t.teardown(() => socket.destroy())
  const chunks: Buffer[] = []
  socket.on('data', (chunk) => chunks.push(chunk))
  socket.on('error', () => undefined)
  await once(server, 'connection')
  return { socket, ended: once(socket, 'close'), text: () => Buffer.concat(chunks).toString('latin1') }
}

const GET = 'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n'
const PART = 'PUT / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nthe first bytes'

t.test('connections without a request end at once', async (t) => {
  const { server, cuts, close } = await serve(t, (_, response) => response.end('served'))
  const [silent, used, half] = [await open(t, server), await open(t, server), await open(t, server)]
  used.socket.write(GET)
  half.socket.write('GET / HT')
  while (!used.text().endsWith('served')) await once(used.socket, 'data')
  await close()
  for (const { ended } of [silent, used, half]) await ended
  t.equal(silent.text(), '')
  t.strictSame(cuts, [])
})

t.test('what has arrived is answered', async (t) => {
  const { server, cuts, close } = await serve(t, (_, response) => response.end('served'))
  const [fresh, used] = [await open(t, server), await open(t, server)]
  used.socket.write(GET)
  await once(used.socket, 'data')
  // In the same turn, so that the server closes before it has read them.
  for (const { socket } of [fresh, used]) socket.write(GET)
  await close()
  for (const { ended } of [fresh, used]) await ended
  t.match(fresh.text(), /served$/)
  t.match(used.text(), /served.*served$/s)
  t.strictSame(cuts, [])
})

t.test('a connection ends after the answer that was under way', async (t) => {
  let finish = () => undefined as unknown
  const { server, cuts, close } = await serve(t, (_, response) => {
    response.write('first ')
    finish = () => response.end('last')
  })
  const waiting = await open(t, server)
  waiting.socket.write(GET)
  await once(waiting.socket, 'data')
  let isClosed = false
  const closing = close().then(() => {
    isClosed = true
  })
  for (let turn = 0; turn < 5; turn += 1) await new Promise(setImmediate)
  t.notOk(isClosed)
  finish()
  await closing
  await waiting.ended
  t.match(waiting.text(), /first .*last/s)
  t.strictSame(cuts, [])
})

t.test('an answer that is written but not yet taken is not cut', async (t) => {
  const bytes = Buffer.alloc(20_000_000, 'settee ')
  const { server, cuts, close } = await serve(t, (_, response) => response.end(bytes))
  const slow = await open(t, server)
  slow.socket.write(GET)
  await once(slow.socket, 'data')
  slow.socket.pause()
  const closing = close()
  for (let turn = 0; turn < 5; turn += 1) await new Promise(setImmediate)
  slow.socket.resume()
  await closing
  await slow.ended
  t.equal(slow.text().split('\r\n\r\n')[1]?.length, bytes.length)
  t.strictSame(cuts, [])
})

t.test('requests that do not end are cut when the time is over', async (t) => {
  const bytes = Buffer.alloc(20_000_000)
  const { server, cuts, close } = await serve(
    t,
    (request, response) => {
      if (request.method === 'GET') response.end(bytes)
    },
    50,
  )
  const [upload, stalled, silent] = [await open(t, server), await open(t, server), await open(t, server)]
  upload.socket.write(PART)
  stalled.socket.write(GET)
  await once(stalled.socket, 'data')
  stalled.socket.pause()
  await close()
  stalled.socket.resume()
  for (const { ended } of [upload, stalled, silent]) await ended
  t.strictSame(cuts, [2])
  await close()
  t.strictSame(cuts, [2], 'closing again does nothing')
})

t.test('requests in a row on one connection', async (t) => {
  const finish: (() => void)[] = []
  const { server, close } = await serve(t, (_, response) => finish.push(() => response.end('served')))
  const { socket, ended, text } = await open(t, server)
  socket.write(GET + GET)
  while (finish.length < 2) await once(server, 'request')
  const closing = close()
  for (const answer of finish) {
    await new Promise(setImmediate)
    answer()
  }
  await closing
  await ended
  t.match(text(), /served.*served$/s)
})

t.test('a server that never listened', async (t) => {
  const server = createServer()
  guardConnections(server, { graceMs: NEVER, onCut: () => t.fail('there was nothing to cut') })
  await closed(server)
})

t.test('connections that break by the hundred end in several turns of the event loop', async (t) => {
  const app = { connections: { onInvalidRequest: () => undefined } }
  let ended = 0
  const destroy = () => {
    for (const until = performance.now() + 1; performance.now() < until; );
    ended += 1
  }
  const broken = Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' })
  for (let n = 0; n < 50; n += 1) answerClientError.call(app as never, broken as never, { destroy } as never)
  t.ok(ended > 0 && ended < 10, `${ended} at once`)
  while (ended < 50) await turn()
})
