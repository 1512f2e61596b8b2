/** Servers that answer with nonsense, without end, or not at all: each is told, and nothing waits for ever. */
import { once } from 'node:events'
import { createServer as createHttpServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createServer, type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { freePort } from '../child.ts'
import { answerAsCouch } from './couch.ts'
import { look, onlyWrong } from './looking.ts'

/** @param meet what is done with who comes, when the first bytes have come */
async function listen(t: Test, meet: (socket: Socket) => void, host = '127.0.0.1'): Promise<number> {
  const sockets = new Set<Socket>()
  const server = createServer((socket) => {
    sockets.add(socket.on('error', () => undefined))
    socket.once('data', () => meet(socket))
  }).listen(0, host)
  await once(server, 'listening')
  t.teardown(() => {
    server.close()
    for (const socket of sockets) socket.destroy()
  })
  return (server.address() as AddressInfo).port
}

/** Writes until the other side has enough. */
function pour(socket: Socket, text: string): void {
  const go = () => {
    while (!socket.destroyed && socket.write(text));
  }
  socket.on('drain', go)
  go()
}

const OK = 'HTTP/1.1 200 OK\r\nServer: CouchDB/3.5.0\r\nContent-Type: application/json\r\n'
const QUICK = { requestMs: 700, connectMs: 2000, bodies: [] }

t.test('nonsense, silence and floods', async (t) => {
  const rows: [what: string, meet: (socket: Socket) => void, text: RegExp, cure: RegExp][] = [
    ['garbage', (socket) => socket.write('\x15\x03\x01 nonsense\r\n\r\n'), /is not HTTP/, /use https/],
    ['SSH', (socket) => socket.write('SSH-2.0-OpenSSH_9.2\r\n'), /is not HTTP/, /use https/],
    ['silence', () => undefined, /no answer in time/, /Check that the server/],
    ['the end', (socket) => socket.destroy(), /closed without an answer/, /use https/],
    [
      'a head alone',
      (socket) => socket.write(`${OK}Content-Length: 5\r\n\r\n`),
      /no answer in time/,
      /Check/,
    ],
    [
      'a head without end',
      (socket) => pour(socket, `${OK}X: ${'y'.repeat(9000)}\r\n`),
      /not HTTP/,
      /use https/,
    ],
    [
      'half an answer',
      (socket) => socket.end(`${OK}Content-Length: 50\r\n\r\n{"couchdb"`),
      /closed without an answer/,
      /./,
    ],
    [
      'an answer without end',
      (socket) => {
        socket.write(`${OK}\r\n`)
        pour(socket, ' '.repeat(100_000))
      },
      /not a CouchDB: GET \/ answers 200 with application\/json/,
      /Check the port/,
    ],
    ['an empty answer', (socket) => socket.end(`${OK}Content-Length: 0\r\n\r\n`), /not a CouchDB/, /./],
    [
      'JSON of something else',
      (socket) => socket.end('HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n[1]'),
      /not a CouchDB/,
      /./,
    ],
  ]
  for (const [what, meet, text, cure] of rows) {
    const looked = await look(`http://anna:secret@127.0.0.1:${await listen(t, meet)}/notes`, { pace: QUICK })
    t.match(looked.findings.at(-1), { name: 'server', state: 'wrong', text }, what)
    t.match(looked.cures('server').join('\n'), cure, what)
  }
})

t.test('nobody listens, and nobody knows the name', async (t) => {
  const closed = await look(`http://anna:secret@127.0.0.1:${await freePort()}/notes`)
  t.match(closed.findings.at(-1), {
    name: 'connection',
    state: 'wrong',
    text: /nothing listens on this port/,
  })
  const unknown = await look('http://anna:secret@settee.invalid:80/notes', { pace: QUICK })
  t.match(unknown.findings.at(-1), { name: 'look-up', state: 'wrong', text: /settee\.invalid/ })
})

t.test('a CouchDB that says odd things where it is asked for the database', async (t) => {
  const rows: [status: number, headers: Record<string, string>, text: string, finding: RegExp][] = [
    [
      200,
      { 'content-type': 'text/html' },
      '<html>',
      /^The answer is not that of a database: 200 with text\/html/,
    ],
    [301, { location: 'http://elsewhere/' }, '', /^The answer is not that of a database: 301/],
    [500, {}, '{"error":"x","reason":"you said secret"}', /500 \(a text that repeats the password\)/],
  ]
  const answer = answerAsCouch()
  for (const [status, headers, text, finding] of rows) {
    const server = createHttpServer((request, response) => {
      if (request.method === 'GET' && /^\/notes\/?$/.test(request.url!))
        response.writeHead(status, headers).end(text)
      else answer(request, response)
    }).listen(0, '127.0.0.1')
    await once(server, 'listening')
    t.teardown(() => server.close())
    const { port } = server.address() as AddressInfo
    const looked = await look(`http://anna:secret@127.0.0.1:${port}/notes`, { pace: { bodies: [] } })
    t.match(looked.one('rights'), { state: 'wrong', text: finding })
    t.match(looked.findings.at(-1), { name: 'rest' })
    server.closeAllConnections()
  }
})

const v6 = createHttpServer(answerAsCouch()).listen(0, '::1')
const hasV6 = await Promise.race([
  once(v6, 'listening').then(() => true),
  once(v6, 'error').then(() => false),
])
t.teardown(() => {
  v6.close()
  v6.closeAllConnections()
})

t.test('IPv6', { skip: hasV6 ? false : 'this machine has none' }, async (t) => {
  const { port } = v6.address() as AddressInfo
  const looked = await look(`http://anna:secret@[::1]:${port}/notes`, { pace: { bodies: [2048] } })
  onlyWrong(t, looked)
  t.match(looked.one('connection'), { state: 'fine' })
  t.match(looked.one('location'), { state: 'fine' })
})
