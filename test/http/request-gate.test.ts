/** Requests pass the gate one at a time, and arrive as Node alone would read them. */
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { RequestGate } from '../../src/http/transport/request-gate.ts'
import { until } from '../helpers/until.ts'

interface Seen {
  readonly url: string
  body: string
}

/** @param onRequest gets each request with its gate; without it, bodies are read and answered */
async function start(t: Test, onRequest?: (request: IncomingMessage, gate: RequestGate) => void) {
  const gates = new Map<Socket, RequestGate>()
  const seen: Seen[] = []
  let arrivals = 0
  const server = createServer((request, response) => {
    const one: Seen = { url: request.url ?? '', body: '' }
    seen.push(one)
    onRequest?.(request, gates.get(request.socket)!)
    request.on('data', (chunk: Buffer) => {
      one.body += chunk.toString('latin1')
    })
    request.on('end', () => response.end(one.url))
  })
  server.on('connection', (socket) => {
    gates.set(socket, new RequestGate(socket, { isOpen: true, onArrival: () => (arrivals += 1) }))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.close()
    server.closeAllConnections()
  })
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1')
  t.teardown(() => socket.destroy())
  await once(socket, 'connect')
  await until(() => gates.size === 1)
  const [gate] = [...gates.values()] as [RequestGate]
  let answered = ''
  socket.on('data', (chunk: Buffer) => {
    answered += chunk.toString('latin1')
  })
  return {
    socket,
    gate,
    seen,
    answers: () => answered.split('HTTP/1.1 200').length - 1,
    arrivals: () => arrivals,
  }
}

const get = (url: string) => `GET ${url} HTTP/1.1\r\nHost: a\r\n\r\n`
const post = (url: string, body: string) =>
  `POST ${url} HTTP/1.1\r\nHost: a\r\nContent-Length: ${body.length}\r\n\r\n${body}`
const chunked = (url: string, body: string) =>
  `POST ${url} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`

/** Requests of all kinds, with bodies that hold what could be taken for heads. */
const BODIES = ['x', '\r\n\r\n', '\r\n\r\n'.repeat(500), `${get('/no')}${get('/no')}`, 'y'.repeat(100_000)]
const ALL: readonly (Seen & { readonly text: string })[] = [
  ...Array.from({ length: 100 }, (_, n) => ({ url: `/g${n}`, body: '', text: get(`/g${n}`) })),
  ...BODIES.flatMap((body, n) => [
    { url: `/p${n}`, body, text: post(`/p${n}`, body) },
    { url: `/c${n}`, body, text: chunked(`/c${n}`, body) },
    { url: `/after${n}`, body: '', text: get(`/after${n}`) },
  ]),
]
const TEXT = ALL.map(({ text }) => text).join('')
const EXPECTED = ALL.map(({ url, body }) => ({ url, body }))

for (const size of [1, 2, 3, 7, 4096, TEXT.length]) {
  t.test(`pipelined requests in pieces of ${size} bytes`, async (t) => {
    const { socket, seen, answers } = await start(t)
    socket.setNoDelay()
    // A byte at a time for the heads alone: the large bodies would take long.
    const end = size < 4 ? TEXT.indexOf('yyyy') : TEXT.length
    const count = size < 4 ? ALL.findIndex(({ body }) => body.startsWith('yyyy')) : ALL.length
    for (let at = 0; at < end; at += size) {
      if (!socket.write(TEXT.slice(at, Math.min(end, at + size)), 'latin1')) await once(socket, 'drain')
    }
    await until(() => answers() >= count)
    t.same(seen.slice(0, count), EXPECTED.slice(0, count))
  })
}

t.test('a closed gate holds what has arrived', async (t) => {
  const { socket, gate, seen, answers, arrivals } = await start(t, (_request, gate) => gate.close())
  socket.write(get('/x').repeat(3000))
  await until(() => seen.length > 0 && arrivals() > 0)
  for (let passed = 1; passed <= 20; passed += 1) {
    t.equal(seen.length, passed, 'one at a time')
    gate.open()
  }
  await until(() => answers() === 21)
  t.equal(seen.length, 21, 'no more requests pass while the gate is closed')
  t.equal(arrivals(), 1, 'nothing is read meanwhile')
})

t.test('a body that is not read holds the rest back', async (t) => {
  const bodies: IncomingMessage[] = []
  const { socket, seen } = await start(t, (request) => {
    bodies.push(request)
    request.pause()
  })
  const body = 'b'.repeat(2_000_000)
  socket.write(post('/upload', body) + get('/next'))
  await until(() => bodies.length > 0)
  await sleep(100)
  t.equal(seen.length, 1)
  bodies[0]!.resume()
  await until(() => seen.length === 2)
  t.equal(seen[0]!.body, body)
  bodies[1]!.resume()
})

t.test('a connection that is paused when it gets its gate is read again when it is resumed', async (t) => {
  const server = createServer()
  const requests: [IncomingMessage, ServerResponse][] = []
  server.on('request', (request: IncomingMessage, response: ServerResponse) => {
    requests.push([request, response])
    if (request.method === 'GET') response.end(request.url)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1')
  t.teardown(() => {
    socket.destroy()
    server.close()
  })
  socket.write(post('/upload', 'b'.repeat(2_000_000)) + get('/next'))
  await until(() => requests[0]?.[0].socket.isPaused() === true)
  const [[upload, answer]] = requests as [[IncomingMessage, ServerResponse]]
  new RequestGate(upload.socket, { isOpen: true, onArrival: () => undefined })
  upload.resume().on('end', () => answer.end())
  await until(() => requests.length === 2)
  t.equal(requests[1]?.[0].url, '/next')
})
