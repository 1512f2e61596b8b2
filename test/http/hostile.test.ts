/** Hostile clients: ambiguous requests (smuggling), and connections that are kept busy or open. */
import { connect as openSocket, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { gzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { startTestServer } from '../helpers/server.ts'
import { until } from '../helpers/until.ts'
import { type Call, connect } from './client.ts'
import { startMemoryServer } from './memory-server.ts'
import { speak } from './raw.ts'

const POST = 'POST /db HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n'
const CHUNKED = '2\r\n{}\r\n0\r\n\r\n'
/** Bytes that a server with the wrong length would take for the next request. */
const INNER = 'DELETE /inner HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n'

const withLength = (...lines: string[]) => `${POST}${lines.join('\r\n')}\r\n\r\n{}`
const withCoding = (line: string) => `${POST}${line}\r\n\r\n${CHUNKED}`
const inChunks = (chunks: string) => `${POST}Transfer-Encoding: chunked\r\n\r\n${chunks}`

/** Refused with 400, and nothing that follows is read. */
const REFUSED: Readonly<Record<string, string>> = {
  'a length and chunks': withCoding('Content-Length: 2\r\nTransfer-Encoding: chunked'),
  'chunks and a length': withCoding('Transfer-Encoding: chunked\r\nContent-Length: 2'),
  'two lengths': withLength('Content-Length: 2', 'Content-Length: 3'),
  'a length twice': withLength('Content-Length: 2', 'Content-Length: 2'),
  'a list of lengths': withLength('Content-Length: 2, 2'),
  'a signed length': withLength('Content-Length: +2'),
  'a negative length': withLength('Content-Length: -2'),
  'a length in hex': withLength('Content-Length: 0x2'),
  'a length in two parts': withLength('Content-Length: 2 2'),
  'an empty length': withLength('Content-Length:'),
  'a huge length': withLength('Content-Length: 99999999999999999999'),
  'a coding like chunked': withCoding('Transfer-Encoding: xchunked'),
  'chunked, then another': withCoding('Transfer-Encoding: chunked, identity'),
  'no chunks after all': withCoding('Transfer-Encoding: identity'),
  'chunked twice': withCoding('Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked'),
  'chunked or not': withCoding('Transfer-Encoding: chunked\r\nTransfer-Encoding: identity'),
  'a vertical tab': withCoding('Transfer-Encoding:\x0bchunked'),
  'chunked in quotes': withCoding('Transfer-Encoding: "chunked"'),
  'a space before the colon': withLength('Content-Length : 2'),
  'a space before the other colon': withCoding('Transfer-Encoding : chunked'),
  'a folded line': withLength('X: a\r\n b', 'Content-Length: 2'),
  'a folded coding': withCoding('Transfer-Encoding:\r\n chunked'),
  'a fold at the start': 'POST /db HTTP/1.1\r\n Host: localhost\r\nContent-Length: 2\r\n\r\n{}',
  'line feeds alone': withLength('Content-Length: 2').replaceAll('\r\n', '\n'),
  'one line feed alone': withLength('X: y\nContent-Length: 2'),
  'one carriage return alone': withLength('X: y\rContent-Length: 2'),
  'a head that ends in a line feed': `${POST}Content-Length: 2\r\n\n{}`,
  'an extension that ends in a line feed': inChunks('2;a\n{}\r\n0\r\n\r\n'),
  'a long extension': inChunks(`2;${'a'.repeat(20_000)}\r\n{}\r\n0\r\n\r\n`),
  'a signed chunk': inChunks('+2\r\n{}\r\n0\r\n\r\n'),
  'a negative chunk': inChunks('-2\r\n{}\r\n0\r\n\r\n'),
  'a chunk in C': inChunks('0x2\r\n{}\r\n0\r\n\r\n'),
  'a space after the size': inChunks('2 \r\n{}\r\n0\r\n\r\n'),
  'a huge chunk': inChunks('ffffffffffffffffff\r\n{}\r\n0\r\n\r\n'),
  'chunks with line feeds': inChunks('2\n{}\n0\n\n'),
  'a chunk without an end': inChunks('2\r\n{}0\r\n\r\n'),
  'a chunk that is longer': inChunks('2\r\n{}x\r\n0\r\n\r\n'),
  'a length in the trailer': inChunks('2\r\n{}\r\n0\r\nContent-Length: 50\r\n\r\n'),
  'a space in a name': withLength('X Y: z', 'Content-Length: 2'),
  'a NUL in a name': withLength('X\0Y: z', 'Content-Length: 2'),
  'a NUL in a value': withLength('X: \0', 'Content-Length: 2'),
  'a field without a name': withLength(': z', 'Content-Length: 2'),
  'a field without a colon': withLength('Xyz', 'Content-Length: 2'),
  'a space before the method': ` ${withLength('Content-Length: 2')}`,
  'tabs in the first line': withLength('Content-Length: 2').replace('POST /db ', 'POST\t/db\t'),
  'a version in small letters': withLength('Content-Length: 2').replace('HTTP/', 'http/'),
  'another version': withLength('Content-Length: 2').replace('1.1', '1.2'),
  'the preface of HTTP/2': 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
}

/** Requests that are read one way, with the answers of all requests. */
const READ: Readonly<Record<string, readonly [words: string, status: number]>> = {
  'a tab before the length': [withLength('Content-Length:\t2'), 201],
  'noughts before the length': [withLength('Content-Length: 002'), 201],
  'a capital letter': [withCoding('Transfer-Encoding: Chunked'), 201],
  'an extension': [inChunks('2;a=b\r\n{}\r\n0\r\n\r\n'), 201],
  'an extension in quotes': [inChunks('2;a="x\\"y"\r\n{}\r\n0\r\n\r\n'), 201],
  'a trailer': [inChunks('2\r\n{}\r\n0\r\nX: y\r\n\r\n'), 201],
  'an empty line before': [`\r\n${withLength('Content-Length: 2')}`, 201],
  'a coding that is not undone': [withCoding('Transfer-Encoding: gzip, chunked'), 400],
  'two hosts': [withLength('Host: elsewhere', 'Content-Length: 2'), 400],
  'a GET with a body': [
    `GET /db HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${INNER.length}\r\n\r\n${INNER}`,
    200,
  ],
  'a POST that is a HEAD': [withLength('X-HTTP-Method-Override: HEAD', 'Content-Length: 2'), 200],
}

/** Answered, and then the connection is closed. */
const LAST: Readonly<Record<string, readonly [words: string, statuses: readonly number[]]>> = {
  'chunks in HTTP/1.0': [withCoding('Transfer-Encoding: chunked').replace('1.1', '1.0'), [201]],
  'an upgrade to HTTP/2': [withLength('Connection: Upgrade', 'Upgrade: h2c', 'Content-Length: 2'), [201]],
  'a web socket': [
    'GET /db HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n',
    [200],
  ],
  'a tunnel': ['CONNECT localhost:22 HTTP/1.1\r\nHost: localhost\r\n\r\n', []],
  'a method that nobody knows': ['BREW /db HTTP/1.1\r\nHost: localhost\r\n\r\n', [405]],
  'a method that nobody knows behind a request': [
    `${withLength('Content-Length: 2')}BREW /db HTTP/1.1\r\nHost: localhost\r\n\r\n`,
    [201, 405],
  ],
  'a handshake of TLS': ['\x16\x03\x01\x02\x00\x01 /db HTTP/1.1\r\n\r\n', [400]],
  'what is wrong behind a request': [`${withLength('Content-Length: 2')}rubbish\r\n\r\n`, [201, 400]],
}

/** Sends it with {@link INNER} behind it. @returns the statuses that came, and whether the inner request was served */
async function smuggle(url: string, call: Call, words: string) {
  await call('PUT', '/inner')
  const heard = await speak(url, Buffer.from(words + INNER, 'latin1'))
  const statuses = [...heard.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => Number(status))
  return { statuses, isInnerServed: (await call('GET', '/inner')).status === 404 }
}

t.test('ambiguous requests are refused or read one way', async (t) => {
  const server = await startTestServer(t)
  const call = connect(t, server)
  await call('PUT', '/db')
  for (const [name, words] of Object.entries(REFUSED)) {
    const seen = await smuggle(server.url, call, words)
    t.strictSame(seen, { statuses: [400], isInnerServed: false }, name)
  }
  t.match((await call('GET', '/db')).json, { doc_count: 0 })
  for (const [name, [words, status]] of Object.entries(READ)) {
    const seen = await smuggle(server.url, call, words)
    t.strictSame(seen, { statuses: [status, 200], isInnerServed: true }, name)
  }
  for (const [name, [words, statuses]] of Object.entries(LAST)) {
    const seen = await smuggle(server.url, call, words)
    t.strictSame(seen, { statuses, isInnerServed: false }, name)
  }
})

/** Sends bytes on a connection. @returns the answer */
function open(t: Test, port: number, words = '') {
  const socket = openSocket(port, '127.0.0.1')
  t.after(() => socket.destroy())
  const heard: Buffer[] = []
  socket.on('error', () => {})
  socket.on('data', (chunk) => heard.push(chunk))
  if (words !== '') socket.write(words)
  const closed = new Promise<string>((resolve) => {
    socket.on('close', () => resolve(Buffer.concat(heard).toString('latin1')))
  })
  return { socket, closed, text: () => Buffer.concat(heard).toString('latin1') }
}

/** Sends something every few milliseconds. */
function drip(t: Test, socket: Socket, bytes: string): void {
  const timer = setInterval(() => socket.writable && socket.write(bytes), 20)
  t.after(() => clearInterval(timer))
}

t.test(
  'what is wrong behind requests takes none of their answers, however slowly those are read',
  async (t) => {
    const server = await startTestServer(t)
    const call = connect(t, server)
    await call('PUT', '/db')
    await call('PUT', '/db/long', { body: JSON.stringify({ text: 'x'.repeat(5_000_000) }) })
    const get = 'GET /db/long HTTP/1.1\r\nHost: localhost\r\n\r\n'
    const socket = openSocket(Number(new URL(server.url).port), '127.0.0.1')
    socket.on('error', () => undefined)
    socket.write(`${get}${get}rubbish\r\n\r\n${'y'.repeat(100_000)}`)
    socket.pause()
    await new Promise((resolve) => socket.once('readable', resolve))
    const heard: Buffer[] = []
    for await (const bytes of socket) {
      heard.push(bytes as Buffer)
      await sleep(1)
    }
    const text = Buffer.concat(heard).toString('latin1')
    t.strictSame(
      [...text.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => status),
      ['200', '200', '400'],
    )
    t.equal(text.split('x'.repeat(5_000_000)).length - 1, 2, 'both are whole')
  },
)

t.test('bytes after the last request do not destroy earlier answers', async (t) => {
  const server = await startTestServer(t)
  const call = connect(t, server)
  await call('PUT', '/db')
  await call('PUT', '/db/long', { body: JSON.stringify({ text: 'x'.repeat(1_000_000) }) })
  const get = 'GET /db/long HTTP/1.1\r\nHost: localhost\r\n'
  const socket = openSocket(Number(new URL(server.url).port), '127.0.0.1')
  socket.on('error', () => undefined)
  socket.pause()
  socket.write(`${get}\r\n${get}Connection: close\r\n\r\n`)
  await new Promise((resolve) => socket.once('readable', resolve))
  // Large, so that something of it stays unread.
  socket.write(`${get}X: ${'y'.repeat(60_000)}\r\n\r\n`.repeat(100))
  const heard: Buffer[] = []
  for await (const bytes of socket) {
    heard.push(bytes as Buffer)
    await sleep(1)
  }
  const text = Buffer.concat(heard).toString('latin1')
  t.equal(text.split('x'.repeat(1_000_000)).length - 1, 2, 'both are whole')
  t.equal(text.match(/HTTP\/1\.1 200/g)?.length, 2, 'there are no other answers')
})

t.test('a head that arrives too slowly is cut', async (t) => {
  const { port } = await startMemoryServer(t, {}, undefined, { headTimeoutMs: 200 })
  const slow = open(t, port, 'GET / HTTP/1.1\r\nHost: localhost\r\nX: ')
  drip(t, slow.socket, 'y')
  t.match(
    await slow.closed,
    /^HTTP\/1\.1 408 .*"error":"request_timeout","reason":"The request arrived too slowly/s,
  )
  const silent = open(t, port)
  t.equal(await silent.closed, '', 'a silent connection is closed without an answer')
  const second = open(t, port, 'GET /_up HTTP/1.1\r\nHost: localhost\r\n\r\n')
  await until(() => second.text().includes('ok'))
  second.socket.write('GET / HTTP/1.1\r\nHost: localhost\r\nX: ')
  drip(t, second.socket, 'y')
  t.match(await second.closed, /^HTTP\/1\.1 200 .*HTTP\/1\.1 408 /s, 'a used connection times out with 408')
})

t.test('a body that arrives too slowly is cut, a steady one is not', async (t) => {
  const { port, url, lines } = await startMemoryServer(t, { 'settee/body_timeout': '1' })
  const call = connect(t, { url })
  await call('PUT', '/db')
  const head = (path: string, more = '') =>
    `PUT ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n${more}\r\n`
  const small = head('/_config/a/b').replace('1000000', '8000')
  const slow = [head('/db/a'), head('/db/b/att'), small].map((words) => open(t, port, `${words}{`))
  const ignored = open(t, port, head('/absent/doc'))
  const inChunks = head('/db/d').replace('Content-Length: 1000000', 'Transfer-Encoding: chunked')
  const stopped = [`${head('/db/e')}{`, `${inChunks}1\r\n{`].map((words) => open(t, port, words))
  const packed = open(t, port, head('/db/c', 'Content-Encoding: gzip\r\n'))
  packed.socket.write(gzipSync('{}').subarray(0, 10))
  const steady = open(t, port, `${head('/db/f').replace('1000000', '9000')}`)
  drip(t, steady.socket, ' '.repeat(30))
  for (const { socket } of [...slow, ignored]) drip(t, socket, ' ')
  for (const { closed } of [...slow, ...stopped, packed]) {
    t.match(await closed, /^HTTP\/1\.1 408 .*Connection: close\r\n.*"error":"request_timeout"/is)
  }
  t.match(await ignored.closed, /^HTTP\/1\.1 404 /, 'an answer that nobody reads is ended')
  await until(() => steady.text() !== '')
  t.match(steady.text(), /^HTTP\/1\.1 400 /, 'six seconds of white space, to the end')
  t.notMatch(lines.join(''), '"level":50')
})

t.test('idle connections give way to new ones, the longest idle first', async (t) => {
  const { port } = await startMemoryServer(t, { 'settee/max_connections': '5' })
  const UP = 'GET /_up HTTP/1.1\r\nHost: localhost\r\n\r\n'
  const old: ReturnType<typeof open>[] = []
  for (let at = 0; at < 5; at++) {
    old.push(open(t, port, UP))
    await until(() => old[at]!.text() !== '')
  }
  old[0]!.socket.write(UP)
  await until(() => (old[0]!.text().match(/200/g)?.length ?? 0) === 2)
  const fresh = open(t, port, UP)
  await until(() => fresh.text().includes('200'))
  await old[1]!.closed
  t.strictSame(
    old.map(({ socket }) => socket.closed),
    [false, true, false, false, false],
    'the first was used since',
  )
  const silent = Array.from({ length: 50 }, () => open(t, port))
  const last = open(t, port, UP)
  await until(() => last.text().includes('200'))
  await until(() => silent.filter(({ socket }) => socket.closed).length >= 46)
})

t.test('if all are busy, further ones are refused with a reason', async (t) => {
  const { url } = await startTestServer(t)
  const call = connect(t, { url })
  const port = Number(new URL(url).port)
  await call('PUT', '/db')
  await call('PUT', '/_config/settee/max_connections', { body: '"3"' })
  const feed = 'GET /db/_changes?feed=continuous&since=now&heartbeat=1000 HTTP/1.1\r\nHost: localhost\r\n'
  const busy = [1, 2, 3].map(() => open(t, port, `${feed}\r\n`))
  for (const { text } of busy) await until(() => text().includes('200'))
  const refused = open(t, port, 'GET /db HTTP/1.1\r\nHost: localhost\r\nOrigin: app://obsidian.md\r\n\r\n')
  const heard = await refused.closed
  t.match(heard, /^HTTP\/1\.1 503 .*"service_unavailable".*too many connections/s)
  t.match(heard, /^retry-after: 5\r$/im)
  t.match(heard, /^access-control-allow-origin: app:/im)
  t.match(await open(t, port, 'GET /_up HTTP/1.1\r\nHost: localhost\r\n\r\n').closed, /^HTTP\/1\.1 200 /)
  const flood = Array.from({ length: 150 }, () => open(t, port))
  await until(() => flood.filter(({ socket }) => socket.closed).length >= 50)
  for (const { socket } of busy) t.notOk(socket.closed)
  busy[0]!.socket.destroy()
  for (const { socket } of flood) socket.destroy()
  let status = ''
  while (status !== '200') {
    const again = open(t, port, 'GET /db HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n')
    status = (await again.closed).slice(9, 12)
  }
})
