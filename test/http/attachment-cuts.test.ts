/** Uploads of attachments that are cut, through every way in: nothing is stored, and nothing is left of their bodies. */
import { connect as connectSocket } from 'node:net'
import { gzipSync } from 'node:zlib'
import t from 'tap'
import { follows, related } from '../helpers/related.ts'
import { LARGE, RELATED, startUntouched } from './untouched.ts'

/** The requests that store `LARGE`: each is cut at every boundary of the chunks that it is sent in. */
function uploads(rev: string): [title: string, path: string, type: string, body: Buffer, coding?: string][] {
  const a = { data: LARGE.toString('base64') }
  const doc = { _id: 'doc', _rev: rev, _attachments: { a } }
  const json = 'application/json'
  const one = Buffer.from(JSON.stringify(doc))
  const many = Buffer.from(
    JSON.stringify({ docs: [{ _id: 'first' }, doc, { _id: 'last', _attachments: { a } }] }),
  )
  const multipart = related('B', { _rev: rev, _attachments: { a: follows(LARGE) } }, [{ content: LARGE }])
  return [
    ['PUT', 'PUT /db/doc', json, one],
    ['POST', 'POST /db', json, one],
    ['PUT, gzipped', 'PUT /db/doc', json, gzipSync(one, { level: 0 }), 'gzip'],
    ['_bulk_docs', 'POST /db/_bulk_docs', json, many],
    ['multipart/related', 'PUT /db/doc', RELATED['content-type'], multipart],
    [
      'multipart/related, gzipped',
      'PUT /db/doc',
      RELATED['content-type'],
      gzipSync(multipart, { level: 0 }),
      'gzip',
    ],
    ['by itself', `PUT /db/doc/a?rev=${rev}`, 'a/b', LARGE],
    ['by itself, gzipped', `PUT /db/doc/a?rev=${rev}`, 'a/b', gzipSync(LARGE, { level: 0 }), 'gzip'],
  ]
}

t.test('an upload cut at every boundary of its chunks', async (t) => {
  const { call, url, rev, isUntouched } = await startUntouched(t)
  // Some of the bodies are spooled, some are not.
  await call('PUT', '/_node/_local/_config/settee/body_memory', { json: '1048576' })
  for (const [title, line, type, body, coding] of uploads(rev)) {
    const about = `Host: localhost\r\nContent-Type: ${type}\r\n${coding ? `Content-Encoding: ${coding}\r\n` : ''}`
    const chunks = inChunks(body, Math.ceil(body.length / 7))
    const ends = chunks.map((_, at) => Buffer.concat(chunks.slice(0, at)))
    const whole = Buffer.concat(chunks)
    // The last of them lacks only the end of the last, empty chunk.
    const cuts = [...ends, whole, Buffer.concat([whole, Buffer.from('0\r\n')])]
    const head = Buffer.from(`${line} HTTP/1.1\r\n${about}Transfer-Encoding: chunked\r\n\r\n`)
    const statuses = await Promise.all(cuts.map((cut) => sendAndCut(url, Buffer.concat([head, cut]))))
    t.ok(
      statuses.every((status) => status === undefined || status === 400),
      `${title}: ${statuses}`,
    )
    const sized = Buffer.from(`${line} HTTP/1.1\r\n${about}Content-Length: ${body.length}\r\n\r\n`)
    const short = [0, 1, body.length - 1].map((end) => Buffer.concat([sized, body.subarray(0, end)]))
    await Promise.all(short.map((bytes) => sendAndCut(url, bytes)))
    isUntouched(t, title)
  }
  for (const [title, line, type, body, coding] of uploads(rev).slice(-1)) {
    const [method, path] = line.split(' ') as [string, string]
    const headers = { 'content-type': type, ...(coding && { 'content-encoding': coding }) }
    t.match(await call(method, path, { body, headers }), { status: 201 }, `${title}, whole`)
  }
})

/** The body in the chunks of `Transfer-Encoding: chunked`, without the last, empty one. */
function inChunks(body: Buffer, size: number): Buffer[] {
  return Array.from({ length: Math.ceil(body.length / size) }, (_, n) => {
    const chunk = body.subarray(n * size, (n + 1) * size)
    return Buffer.concat([Buffer.from(`${chunk.length.toString(16)}\r\n`), chunk, Buffer.from('\r\n')])
  })
}

/** Sends all of it, then closes; resolves when the server has closed, too, with the status it answered, if it did. */
function sendAndCut(url: string, bytes: Buffer): Promise<number | undefined> {
  const { port } = new URL(url)
  return new Promise((resolve, reject) => {
    let answer = ''
    const socket = connectSocket(Number(port), '127.0.0.1', () => socket.end(bytes))
    socket.setEncoding('latin1').on('data', (text: string) => {
      answer += text
    })
    socket.on('error', reject)
    socket.on('close', () => {
      const [, status] = /^HTTP\/1\.1 (\d+)/.exec(answer) ?? []
      resolve(status === undefined ? undefined : Number(status))
    })
  })
}
