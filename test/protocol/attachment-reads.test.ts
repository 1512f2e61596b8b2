/** Reading attachments from a listening server in every way there is: what comes, and what memory it takes. */
import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { request } from 'node:http'
import { connect as open } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { gzipSync } from 'node:zlib'
import t from 'tap'
import { startChildServer } from '../helpers/child-server.ts'
import { partsOf } from '../helpers/multipart-parts.ts'
import { startTestServer } from '../helpers/server.ts'
import { connect } from '../http/client.ts'

const MB = 1024 * 1024
const SIZE = 96 * MB
/** What the process may take beside what it takes when it has nothing to do. */
const MAX_GROWTH = 60 * MB
/** Base64 leaves garbage behind: as much as the collector lets stand, however long the answer is. */
const MAX_BASE64_GROWTH = 100 * MB
const CODED = 'a text that is stored as gzip'
const STORED = gzipSync(CODED)

t.test('an attachment that was sent as gzip', async (t) => {
  const call = connect(t, await startTestServer(t))
  await call('PUT', '/db')
  const headers = { 'content-type': 'text/plain', 'content-encoding': 'gzip' }
  t.match(await call('PUT', '/db/doc/coded', { body: STORED, headers }), { status: 201 })
  t.match(await call('GET', '/db/doc/coded'), {
    text: CODED,
    headers: { 'content-length': '29', 'accept-ranges': 'none' },
  })
  const coded = await call('GET', '/db/doc/coded', { headers: { 'accept-encoding': 'gzip' } })
  t.ok(coded.bytes.equals(STORED))
  const info = { encoding: 'gzip', encoded_length: STORED.length }
  const data = Buffer.from(CODED).toString('base64')
  const member = (answer: { json: unknown }, ...path: (string | number)[]) =>
    // biome-ignore lint/suspicious/noExplicitAny: what a test reads of an answer is what it checks
    path.reduce((value: any, name) => value[name], answer.json)._attachments.coded
  const asked: [path: string, ...member: (string | number)[]][] = [
    ['/db/doc?'],
    ['/db/doc?open_revs=all&', 0, 'ok'],
    ['/db/_all_docs?include_docs=true&', 'rows', 0, 'doc'],
    ['/db/_changes?include_docs=true&', 'results', 0, 'doc'],
  ]
  for (const [path, ...names] of asked) {
    const read = async (query: string) => member(await call('GET', path + query), ...names)
    t.match(await read(''), { stub: true, length: 29, encoding: undefined }, path)
    t.match(await read('att_encoding_info=true'), { stub: true, length: 29, ...info })
    t.match(await read('attachments=true'), { data, encoding: undefined, stub: undefined })
    t.match(await read('attachments=true&att_encoding_info=true'), { data, ...info })
  }
  const bulk = await call('POST', '/db/_bulk_get?attachments=true&att_encoding_info=true', {
    json: { docs: [{ id: 'doc' }] },
  })
  t.match(member(bulk, 'results', 0, 'docs', 0, 'ok'), { data, ...info })
  const parts = await call('GET', '/db/doc?attachments=true', { headers: { accept: 'multipart/related' } })
  t.ok(partsOf(parts.headers['content-type'], parts.bytes)[1]?.content.equals(STORED))
})

t.test('a download goes on while its document changes and is compacted', async (t) => {
  const server = await startTestServer(t)
  const call = connect(t, server)
  await call('PUT', '/db')
  const content = randomBytes(20 * MB)
  const { json } = await call('PUT', '/db/doc/a', { body: content })
  const socket = open(Number(new URL(server.url).port), '127.0.0.1')
  t.after(() => socket.destroy())
  socket.write('GET /db/doc/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n')
  const [first] = (await once(socket, 'data')) as [Buffer]
  socket.pause()
  const { rev } = json as { rev: string }
  t.match(await call('DELETE', `/db/doc/a?rev=${rev}`), { status: 200 })
  const compact = async () => {
    t.match(await call('POST', '/db/_compact', { json: {} }), { status: 202 })
    while (((await call('GET', '/db')).json as { compact_running: boolean }).compact_running) await sleep(10)
  }
  await compact()
  t.match(await call('GET', `/db/doc/a?rev=${rev}`), { status: 404 }, 'nobody else finds it')
  const chunks = [first]
  socket.on('data', (chunk: Buffer) => chunks.push(chunk))
  socket.resume()
  await once(socket, 'end')
  const answer = Buffer.concat(chunks)
  t.ok(answer.subarray(answer.indexOf('\r\n\r\n') + 4).equals(content))
})

/** Reads an answer and keeps nothing of it. @returns how long it is, and its MD5 */
function drain(url: string, headers: Record<string, string>, body?: string): Promise<Drained> {
  return new Promise((resolve, reject) => {
    const sent = request(url, { method: body === undefined ? 'GET' : 'POST', headers }, (answer) => {
      const md5 = createHash('md5')
      let length = 0
      answer.on('data', (chunk: Buffer) => {
        md5.update(chunk)
        length += chunk.length
      })
      answer.on('error', reject)
      answer.on('end', () => {
        const said = answer.headers['content-length']
        resolve({ status: answer.statusCode ?? 0, length, said, md5: md5.digest('base64') })
      })
    })
    sent.on('error', reject).end(body)
  })
}

interface Drained {
  readonly status: number
  readonly length: number
  readonly said: string | undefined
  readonly md5: string
}

function memory(pid: number, row: 'VmRSS' | 'VmHWM'): number {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8')
  return Number(new RegExp(`^${row}:\\s+(\\d+) kB`, 'm').exec(status)?.[1]) * 1024
}

const skip = process.platform !== 'linux' && 'reads /proc'
t.test('large ones take no memory, in whichever form they are read', { skip }, async (t) => {
  const server = await startChildServer(t)
  const call = connect(t, server)
  const plain = Buffer.alloc(SIZE, createHash('sha512').update('plain').digest())
  const md5 = createHash('md5').update(plain).digest('base64')
  await call('PUT', '/db')
  await call('PUT', '/db/warm/a', { body: plain.subarray(0, 2 * MB) })
  await call('GET', '/db/warm/a')
  t.match(await call('PUT', '/db/plain/a', { body: plain }), { status: 201 })
  const headers = { 'content-encoding': 'gzip' }
  t.match(await call('PUT', '/db/coded/a', { body: gzipSync(plain), headers }), { status: 201 })
  const pid = server.pid()
  const idle = memory(pid, 'VmRSS')
  const base64 = Math.ceil(SIZE / 3) * 4
  const json = { 'content-type': 'application/json' }
  const related = { accept: 'multipart/related' }
  const mixed = { accept: 'multipart/mixed' }
  const asked: [path: string, least: number, headers?: Record<string, string>, body?: string][] = [
    ['/db/plain/a', SIZE],
    ['/db/coded/a', SIZE],
    ['/db/plain?attachments=true', base64],
    ['/db/plain?attachments=true', SIZE, related],
    ['/db/plain?open_revs=all&attachments=true', base64],
    ['/db/plain?open_revs=all', SIZE, mixed],
    ['/db/_bulk_get?attachments=true', 2 * base64, json, '{"docs":[{"id":"plain"},{"id":"coded"}]}'],
    ['/db/_bulk_get', SIZE, { ...json, ...mixed }, '{"docs":[{"id":"plain"}]}'],
  ]
  for (const [path, least, given = {}, body] of asked) {
    writeFileSync(`/proc/${pid}/clear_refs`, '5')
    const started = performance.now()
    const answer = await drain(server.url + path, given, body)
    const seconds = (performance.now() - started) / 1000
    const growth = Math.round((memory(pid, 'VmHWM') - idle) / MB)
    const told = `${path} ${given.accept ?? ''}: ${seconds.toFixed(1)} s, ${growth} MB above ${Math.round(idle / MB)} MB`
    t.comment(told)
    t.ok(growth * MB <= (least % SIZE === 0 ? MAX_GROWTH : MAX_BASE64_GROWTH), told)
    t.ok(answer.status === 200 && answer.length >= least && answer.length < least + 2000, `${answer.length}`)
    if (answer.said !== undefined) t.equal(answer.said, String(answer.length))
    if (path.endsWith('/a')) t.equal(answer.md5, md5)
  }
})
