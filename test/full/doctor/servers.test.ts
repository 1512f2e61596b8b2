/** The doctor with servers that answer like CouchDB 3 or PouchDB Server, with invalid data, or not at all. */
import { once } from 'node:events'
import { createServer as createHttpServer } from 'node:http'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { freePort } from '../../cli/child.ts'
import { answerAsCouch, type CouchOptions } from '../../doctor/couch.ts'
import { FEED, look, NO_FEED, onlyWrong } from '../../doctor/looking.ts'

const SHORT = { bodies: [] }

async function couch(
  t: Test,
  options: CouchOptions = {},
  stored = new Map<string, string>(),
): Promise<string> {
  const server = createHttpServer(answerAsCouch(options, stored)).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.close()
    server.closeAllConnections()
  })
  return `http://anna:secret@127.0.0.1:${(server.address() as AddressInfo).port}/notes`
}

const POUCH: CouchOptions = {
  welcome: {
    'express-pouchdb': 'Welcome!',
    version: '4.2.0',
    vendor: { name: 'PouchDB authors', version: '4.2.0' },
  },
  server: null,
  origins: null,
  isPouch: true,
}

t.test('a CouchDB after its setup', async (t) => {
  const stored = new Map<string, string>()
  const looked = await look(await couch(t, { security: { members: { names: ['anna'] } } }, stored), {
    limits: { ...FEED, bodies: [2048, 1_049_600, 10_486_784] },
  })
  onlyWrong(t, looked)
  t.equal(looked.one('feed').state, 'fine')
  t.equal(looked.one('server').text, 'CouchDB 3.5.0.')
  t.match(looked.one('bodies').text, /^The server accepts bodies of .*10 MB/)
  t.equal(stored.size, 0)
})

t.test('a CouchDB with default settings has no CORS', async (t) => {
  const looked = await look(await couch(t, { origins: null }), { limits: SHORT })
  onlyWrong(t, looked, 'preflights', 'cors')
  t.match(looked.cures('preflights')[0], /^CouchDB: curl .*chttpd\/enable_cors/)
})

t.test('a PouchDB Server', async (t) => {
  const stored = new Map<string, string>()
  const looked = await look(await couch(t, POUCH, stored), { limits: SHORT })
  onlyWrong(t, looked, 'preflights', 'cors')
  t.equal(looked.one('server').text, 'PouchDB Server 4.2.0.')
  t.match(looked.one('version'), { state: 'note', text: /The header Server is missing/, cures: [] })
  t.match(looked.one('location'), { state: 'skipped' })
  t.match(looked.cures('preflights')[0], /^PouchDB Server: config\.json/)
  t.equal(stored.size, 0, 'deleted, though the revision was needed')
})

t.test('versions that LiveSync reads', async (t) => {
  const rows: [server: string, state: string][] = [
    ['CouchDB/3.2.0 (Erlang OTP/24)', 'fine'],
    ['CouchDB/10.0.1 (settee/0.1.0)', 'fine'],
    ['CouchDB/3.1.9 (Erlang OTP/22)', 'note'],
    ['CouchDB/2.3.1', 'note'],
  ]
  for (const [server, state] of rows) {
    t.equal((await look(await couch(t, { server }), { limits: SHORT })).one('version').state, state, server)
  }
})

t.test('clocks', async (t) => {
  const rows: [options: CouchOptions, state: string, text: RegExp][] = [
    [{}, 'fine', /same as this|s off/],
    [{ ahead: 120 }, 'note', /1[12]\d s ahead of/],
    [{ ahead: -3600 }, 'wrong', /36\d\d s behind|35\d\d s behind/],
    [{ dateless: true }, 'note', /no Date/],
  ]
  for (const [options, state, text] of rows) {
    t.match((await look(await couch(t, options), { limits: SHORT })).one('clock'), { state, text })
  }
})

t.test('a feed with late heartbeats', async (t) => {
  const looked = await look(await couch(t, { beats: 60_000 }), { limits: { ...SHORT, ...NO_FEED } })
  t.match(looked.one('feed'), { state: 'wrong', text: /was silent/ })
})

t.test('a PouchDB Server without heartbeats', async (t) => {
  const looked = await look(await couch(t, { ...POUCH, beats: 60_000 }), { limits: { ...SHORT, ...NO_FEED } })
  t.match(looked.one('feed'), { state: 'note', text: /^PouchDB Server sends a heartbeat only every 6 s/ })
})

t.test('the filter for phones, on a server that answers everything', async (t) => {
  const huge = `{"filters":{"sync":"function () { var a = []; for (;;) a.push('x'.repeat(1e6)) }"}}`
  const rows: [design: string, text: RegExp][] = [
    ['[]', /has no filters/],
    ['null', /has no filters/],
    ['{"filters":null}', /has no filters/],
    ['not JSON', /has no filters/],
    [huge, /fails/],
  ]
  for (const [design, text] of rows) {
    const address = await couch(t, { designs: { '_design/mobile': design } })
    t.match((await look(address, { limits: SHORT, mobile: true })).one('mobile'), { state: 'wrong', text })
  }
})

/** @param meet handles each connection after its first bytes */
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

/** Writes until the other side closes the connection. */
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
    const looked = await look(`http://anna:secret@127.0.0.1:${await listen(t, meet)}/notes`, {
      limits: QUICK,
    })
    t.match(looked.findings.at(-1), { name: 'server', state: 'wrong', text }, what)
    t.match(looked.cures('server').join('\n'), cure, what)
  }
})

t.test('no server listens, and the name does not exist', async (t) => {
  const closed = await look(`http://anna:secret@127.0.0.1:${await freePort()}/notes`)
  t.match(closed.findings.at(-1), {
    name: 'connection',
    state: 'wrong',
    text: /nothing listens on this port/,
  })
  const unknown = await look('http://anna:secret@settee.invalid:80/notes', { limits: QUICK })
  t.match(unknown.findings.at(-1), { name: 'look-up', state: 'wrong', text: /settee\.invalid/ })
})

t.test('a CouchDB with unexpected answers for the database', async (t) => {
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
    const looked = await look(`http://anna:secret@127.0.0.1:${port}/notes`, { limits: { bodies: [] } })
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

t.test('IPv6', { skip: hasV6 ? false : 'this machine has no IPv6' }, async (t) => {
  const { port } = v6.address() as AddressInfo
  const looked = await look(`http://anna:secret@[::1]:${port}/notes`, { limits: { bodies: [2048] } })
  onlyWrong(t, looked)
  t.match(looked.one('connection'), { state: 'fine' })
  t.match(looked.one('location'), { state: 'fine' })
})
