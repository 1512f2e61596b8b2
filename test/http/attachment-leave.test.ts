/** Downloads that end before their end, and contents that go while they are read. */
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { connect as open } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { storeRevisions } from '../documents/stored-attachments.ts'
import { connect } from './client.ts'
import { startStoredServer } from './stored-server.ts'

const BIG = Buffer.alloc(20_000_000, 'settee ')
/** What gzip does not shorten. */
const NOISE = randomBytes(20_000_000)

async function start(t: Test) {
  const server = await startStoredServer(t)
  const attachments = [
    { name: 'big', content: BIG },
    { name: 'coded', content: NOISE, gzip: true },
  ]
  await storeRevisions(server.store, 'doc', { rev: '1-a', attachments })
  return server
}

/** Waits until it holds; the test's own time-out ends a wait for nothing. */
async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await sleep(5)
}

/** Asks, and reads no more than the first bytes of the answer. */
async function begin(t: Test, port: number, path: string, headers = '') {
  const socket = open(port, '127.0.0.1')
  t.after(() => socket.destroy())
  socket.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\n${headers}\r\n`)
  const [first] = (await once(socket, 'data')) as [Buffer]
  socket.pause()
  return { socket, head: first.toString('latin1') }
}

t.test('a client that goes away in the middle leaves nothing held', async (t) => {
  const { port, held } = await start(t)
  const asked: [path: string, headers?: string][] = [
    ['/db/doc/big'],
    ['/db/doc/big', 'Range: bytes=0-9999999,10000000-19999999\r\n'],
    ['/db/doc/coded'],
    ['/db/doc/coded', 'Accept-Encoding: gzip\r\n'],
    ['/db/doc?attachments=true'],
    ['/db/doc?attachments=true', 'Accept: multipart/related\r\n'],
    ['/db/doc?open_revs=all&attachments=true'],
    ['/db/doc?open_revs=all', 'Accept: multipart/mixed\r\n'],
  ]
  for (const [path, headers] of asked) {
    const { socket, head } = await begin(t, port, path, headers)
    t.match(head, /^HTTP\/1.1 20[06] /, path)
    await until(() => held() > 0)
    socket.destroy()
    await until(() => held() === 0)
    t.equal(held(), 0, `${path} ${headers ?? ''}`)
  }
})

t.test('a reader who rests holds the content, and no more of it than the connection takes', async (t) => {
  const { port, held, store } = await start(t)
  let reads = 0
  const readBlob = store.readBlob
  store.readBlob = (...args) => {
    reads += 1
    return readBlob.apply(store, args)
  }
  const { socket } = await begin(t, port, '/db/doc/big')
  let before = -1
  while (before !== reads) {
    before = reads
    await sleep(100)
  }
  t.ok(reads < 70, `${reads} of 77 steps were read for who takes none`)
  t.equal(held(), 1)
  socket.destroy()
  await until(() => held() === 0)
})

t.test('what is read stays while the document goes on and is cleaned up', async (t) => {
  const { port, store, held } = await start(t)
  const { socket, head } = await begin(t, port, '/db/doc/big', 'Connection: close\r\n')
  await storeRevisions(store, 'doc', { rev: '1-a', superseded: true }, { rev: '2-b', ancestors: ['1-a'] })
  await store.compact()
  const chunks: Buffer[] = []
  socket.on('data', (chunk: Buffer) => chunks.push(chunk))
  socket.resume()
  await once(socket, 'end')
  const answer = Buffer.concat([Buffer.from(head, 'latin1'), ...chunks])
  t.ok(answer.subarray(answer.indexOf('\r\n\r\n') + 4).equals(BIG))
  await until(() => held() === 0)
  await store.compact()
  t.equal(await store.referenceBlob(1), null, 'and goes afterwards')
})

t.test('a content that is gone before the head is a proper answer', async (t) => {
  const server = await start(t)
  const call = connect(t, server)
  server.store.referenceBlob = async () => null
  const gone = { status: 404, json: { error: 'not_found', reason: 'Document is missing attachment' } }
  for (const headers of [{}, { range: 'bytes=0-5' }, { range: 'bytes=0-5,7-8' }]) {
    t.match(await call('GET', '/db/doc/big', { headers }), gone)
  }
  t.match(await call('GET', '/db/doc/coded'), gone)
  t.match(await call('GET', '/db/doc?attachments=true'), gone)
  t.match(await call('GET', '/db/doc?open_revs=all&attachments=true'), gone)
})
