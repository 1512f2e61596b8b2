/**
 * A large attachment up and down while the server's memory is watched: 300 MB, or, with SETTEE_LARGE=1 in the
 * environment, 1 GiB, which is the largest that CouchDB's own limit allows.
 */
import { createHash } from 'node:crypto'
import { request } from 'node:http'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import t from 'tap'
import { startChildServer } from '../../helpers/child-server.ts'
import { forgetPeak, memoryOf } from '../../helpers/memory.ts'
import { call } from '../../protocol/call.ts'

const MB = 1024 * 1024
const SIZE = process.env.SETTEE_LARGE ? 1024 * MB : 300 * MB
/** The allowed memory of the process above its idle memory. */
const MAX_GROWTH = 60 * MB

const OPTIONS = { skip: process.platform !== 'linux' && 'reads /proc' }

t.setTimeout(SIZE / 1000)

/** Unique bytes, in pieces of 1 MB, and their MD5. */
function contentOf(size: number) {
  const md5 = createHash('md5')
  function* pieces() {
    const piece = Buffer.alloc(MB)
    for (let at = 0; at < size; at += MB) {
      const mark = createHash('sha256').update(String(at)).digest()
      for (let i = 0; i < MB; i += 4096) piece.set(mark, i)
      piece.writeUInt32LE(at / MB, 100)
      md5.update(piece)
      yield Buffer.from(piece)
    }
  }
  return { stream: () => Readable.from(pieces()), digest: () => `md5-${md5.digest('base64')}` }
}

async function put(url: string, headers: Record<string, string>, body: Readable): Promise<unknown> {
  const sent = request(url, { method: 'PUT', headers })
  const answered = new Promise<string>((resolve, reject) => {
    sent.on('error', reject).on('response', (answer) => {
      let text = `${answer.statusCode} `
      answer.setEncoding('utf8').on('data', (chunk: string) => {
        text += chunk
      })
      answer.on('end', () => resolve(text))
    })
  })
  await pipeline(body, sent)
  return answered
}

function get(url: string): Promise<{ length: number; digest: string }> {
  return new Promise((resolve, reject) => {
    request(url, (answer) => {
      const md5 = createHash('md5')
      let length = 0
      answer.on('data', (chunk: Buffer) => {
        md5.update(chunk)
        length += chunk.length
      })
      answer.on('error', reject)
      answer.on('end', () => resolve({ length, digest: `md5-${md5.digest('base64')}` }))
    })
      .on('error', reject)
      .end()
  })
}

t.test(`${SIZE / MB} MB up and down`, OPTIONS, async (t) => {
  const server = await startChildServer(t)
  await call(server, 'PUT', '/db')
  await put(`${server.url}/db/warm/a`, {}, contentOf(2 * MB).stream())
  await get(`${server.url}/db/warm/a`)
  const pid = server.pid()
  const idle = memoryOf(pid)
  const watched = async <R>(title: string, work: () => Promise<R>): Promise<R> => {
    forgetPeak(pid)
    const started = performance.now()
    const result = await work()
    const growth = memoryOf(pid, 'VmHWM') - idle
    const seconds = (performance.now() - started) / 1000
    const told = `${title}: ${seconds.toFixed(1)} s, ${Math.round(growth / MB)} MB above ${Math.round(idle / MB)} MB`
    t.comment(told)
    t.ok(growth <= MAX_GROWTH, told)
    return result
  }
  const content = contentOf(SIZE)
  const headers = { 'content-type': 'video/mp4', 'content-length': String(SIZE) }
  const answer = await watched('PUT', () => put(`${server.url}/db/doc/film`, headers, content.stream()))
  t.match(answer, /^201 /)
  const expected = { length: SIZE, digest: content.digest() }
  t.strictSame(await watched('GET', () => get(`${server.url}/db/doc/film`)), expected)

  // Different bytes, because equal content would already be stored.
  const second = contentOf(SIZE / 2)
  const doc = { _attachments: { film: { follows: true, content_type: 'video/mp4', length: SIZE / 2 } } }
  const body = async function* () {
    yield `--B\r\nContent-Type: application/json\r\n\r\n${JSON.stringify(doc)}\r\n--B\r\n\r\n`
    yield* second.stream()
    yield '\r\n--B--'
  }
  const related = { 'content-type': 'multipart/related; boundary=B' }
  const multipart = () => put(`${server.url}/db/other`, related, Readable.from(body(), { objectMode: false }))
  t.match(await watched('multipart/related', multipart), /^201 /)
  const { json } = await call(server, 'GET', '/db/other')
  t.match(json, { _attachments: { film: { length: SIZE / 2, digest: second.digest() } } })
  const { json: info } = await call(server, 'GET', '/db')
  t.match(info, { doc_count: 3, update_seq: /^3-/ })
})
