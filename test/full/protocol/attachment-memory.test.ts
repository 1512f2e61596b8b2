/** The memory that a server needs to answer with large attachments, in every form of an answer. */
import { createHash } from 'node:crypto'
import { request } from 'node:http'
import { gzipSync } from 'node:zlib'
import t from 'tap'
import { startChildServer } from '../../helpers/child-server.ts'
import { forgetPeak, memoryOf } from '../../helpers/memory.ts'
import { connect } from '../../http/client.ts'

const MB = 1024 * 1024
const SIZE = 96 * MB
/** The memory that an answer may add to that of the process before it. */
const MAX_GROWTH = 60 * MB
/**
 * Base64 leaves garbage. Its amount depends on the garbage collector, not on the length of the answer. All answers together add
 * no more to the idle memory either.
 */
const MAX_BASE64_GROWTH = 100 * MB

/** Reads an answer without storing it. @returns its length and its MD5 */
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

const skip = process.platform !== 'linux' && 'reads /proc'
t.test('large attachments need no memory, in any form of an answer', { skip }, async (t) => {
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
  const idle = memoryOf(pid)
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
    const bound = least % SIZE === 0 ? MAX_GROWTH : MAX_BASE64_GROWTH
    let answer: Drained
    let growth = 0
    let tries = 0
    let before = idle
    // On a busy machine, the collector may be late once. The real need of an answer shows every time.
    do {
      tries += 1
      before = memoryOf(pid)
      forgetPeak(pid)
      answer = await drain(server.url + path, given, body)
      growth = memoryOf(pid, 'VmHWM') - before
    } while (growth > bound && tries < 3)
    const summary = `${path} ${given.accept ?? ''}: ${Math.round(growth / MB)} MB above ${Math.round(before / MB)} MB`
    t.comment(`${summary}, ${tries} tries`)
    t.ok(growth <= bound, summary)
    const all = before + growth - idle
    t.ok(all <= MAX_BASE64_GROWTH, `${Math.round(all / MB)} MB above the idle memory in all`)
    t.ok(answer.status === 200 && answer.length >= least && answer.length < least + 2000, `${answer.length}`)
    if (answer.said !== undefined) t.equal(answer.said, String(answer.length))
    if (path.endsWith('/a')) t.equal(answer.md5, md5)
  }
})
