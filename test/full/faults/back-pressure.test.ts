/**
 * Clients that read nothing, and clients that send slowly: their total memory is bounded. Many sockets stay paused
 * while large answers of every kind wait for them, and many uploads arrive slowly. The server runs in a separate
 * process.
 *
 * The long form has 500 readers, 200 uploads of 50 MB at 1 MB/s and 60 s: `SETTEE_BACK_PRESSURE=long`.
 */

import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { type ServerProcess, startServerProcess } from '../../faults/server-process.ts'
import { memoryOf } from '../../helpers/memory.ts'

const MB = 1024 * 1024
const IS_LONG = process.env.SETTEE_BACK_PRESSURE === 'long'
const READERS = IS_LONG ? 500 : 120
const UPLOADS = IS_LONG ? 200 : 40
const SECONDS = IS_LONG ? 60 : 8
const UPLOAD_BYTES = (IS_LONG ? 50 : 6) * MB
const RATE = IS_LONG ? MB : MB / 2
/** Bytes above the memory of the idle server. */
const BOUND = 150 * MB
/** `settee/body_memory` by default. */
const BODY_MEMORY = 64 * MB
/** The 99th percentile of other clients' saves and reads, in milliseconds. */
const PATIENCE_MS = 1000

const ANSWERS = [
  '/big/_changes?include_docs=true',
  '/big/_all_docs?include_docs=true',
  '/big/doc/file',
  '/big/_changes?feed=continuous&include_docs=true&heartbeat=1000',
  '/big/_changes?feed=longpoll&include_docs=true',
  '/small/_changes?include_docs=true',
] as const

/** The peak memory of the server during some work. */
async function peakDuring(server: ServerProcess, work: () => Promise<void>): Promise<number> {
  let peak = 0
  const look = () => {
    peak = Math.max(peak, memoryOf(server.pid()))
  }
  const watch = setInterval(look, 50)
  try {
    await work()
  } finally {
    clearInterval(watch)
  }
  look()
  return peak
}

/** The milliseconds of each save and read of another client, one at a time, until it is aborted. */
async function othersTimes(server: ServerProcess, database: string, ends: AbortSignal): Promise<number[]> {
  const times: number[] = []
  const timed = async (method: string, path: string, body?: object) => {
    const began = performance.now()
    const { status } = await server.ask(method, path, body)
    if (status >= 300) throw new Error(`${method} ${path}: ${status}`)
    times.push(performance.now() - began)
  }
  for (let n = 0; !ends.aborted; n += 1) {
    await timed('PUT', `/${database}/other-${n}`, { n })
    await timed('GET', `/${database}/other-${n}`)
    await sleep(20)
  }
  return times
}

function percentile(times: readonly number[], part: number): number {
  return times.toSorted((a, b) => a - b)[Math.floor(times.length * part)] as number
}

/** A request of a client that reads the head and nothing more. */
async function stalledReader(t: Test, server: ServerProcess, path: string): Promise<Socket> {
  const socket = connect({ host: '127.0.0.1', port: server.port })
  t.teardown(() => socket.destroy())
  socket.on('error', () => undefined)
  socket.write(`GET ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n`)
  await new Promise((resolve) => socket.once('readable', resolve))
  t.match((socket.read(12) as Buffer).toString(), /200$/, path)
  return socket
}

async function fill(server: ServerProcess): Promise<void> {
  for (const name of ['big', 'small']) await server.ask('PUT', `/${name}`)
  const text = 'a text of a note, some of them long; '.repeat(1000)
  for (let n = 0; n < 1500; n += 25) {
    const docs = Array.from({ length: 25 }, (_, at) => ({ _id: `note-${n + at}`, text }))
    await server.ask('POST', '/big/_bulk_docs', { docs })
  }
  const short = text.slice(0, 500)
  for (let n = 0; n < 20_000; n += 2000) {
    const docs = Array.from({ length: 2000 }, (_, at) => ({ _id: `note-${n + at}`, text: short }))
    await server.ask('POST', '/small/_bulk_docs', { docs })
  }
  const { json } = await server.ask('PUT', '/big/doc', {})
  const file = Buffer.alloc(50 * MB, 'attachment')
  await server.ask('PUT', `/big/doc/file?rev=${json.rev}`, file, {
    'content-type': 'application/octet-stream',
  })
}

/** Sends a body at a given rate. @returns the answer's first line */
async function slowUpload(t: Test, server: ServerProcess, path: string): Promise<string> {
  const socket = connect({ host: '127.0.0.1', port: server.port })
  t.teardown(() => socket.destroy())
  let answer = ''
  socket.on('data', (chunk: Buffer) => {
    answer += chunk.toString('latin1')
  })
  const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()))
  socket.on('error', () => undefined)
  const head = `PUT ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: text/plain\r\n`
  socket.write(`${head}Content-Length: ${UPLOAD_BYTES}\r\n\r\n`)
  const piece = Buffer.alloc(64 * 1024, path)
  const began = performance.now()
  for (let sent = 0; sent < UPLOAD_BYTES && !socket.destroyed; sent += piece.length) {
    const due = began + (sent / RATE) * 1000 - performance.now()
    if (due > 0) await sleep(due)
    if (!socket.write(piece.subarray(0, UPLOAD_BYTES - sent))) {
      await Promise.race([closed, new Promise((resolve) => socket.once('drain', resolve))])
    }
  }
  await closed
  return answer.split('\r\n', 1)[0] ?? ''
}

/** Prints how the server ended, if it ends before the test. */
function tellOfEnd(t: Test, server: ServerProcess): void {
  let isOver = false
  t.teardown(() => {
    isOver = true
  })
  void server.ended().then(({ code, stderr }) => {
    if (isOver) return
    const faults = server.log().filter(({ level }) => level === 'error' || level === 'fatal')
    t.comment(
      `the server has ended with ${code}: ${stderr}${faults.map((line) => JSON.stringify(line)).join('\n')}`,
    )
  })
}

t.test('clients that read nothing', { timeout: 400_000 }, async (t) => {
  const server = await startServerProcess(t, { isBuilt: true })
  await fill(server)
  await server.stop()
  await server.start()
  tellOfEnd(t, server)
  for (const path of ['/big', '/small']) t.match(await server.ask('GET', path), { status: 200 })
  const idle = memoryOf(server.pid())
  let times: readonly number[] = []
  const peak = await peakDuring(server, async () => {
    const readers = Array.from({ length: READERS }, (_, n) =>
      stalledReader(t, server, ANSWERS[n % ANSWERS.length] as string),
    )
    await Promise.all(readers)
    times = await othersTimes(server, 'small', AbortSignal.timeout(SECONDS * 1000))
  })
  const grown = peak - idle
  const [half, most] = [percentile(times, 0.5), percentile(times, 0.99)]
  t.comment(`idle ${mb(idle)}, at most ${mb(peak)}: ${mb(grown)} for ${READERS} readers`)
  t.comment(`${times.length} saves and reads meanwhile: ${ms(half)}, 99% within ${ms(most)}`)
  t.ok(grown < BOUND, `${mb(grown)} for ${READERS} readers`)
  t.ok(most < PATIENCE_MS, `others are served meanwhile: 99% within ${ms(most)}`)
})

t.test('slow uploads', { timeout: 400_000 }, async (t) => {
  const server = await startServerProcess(t, { isBuilt: true })
  tellOfEnd(t, server)
  await server.ask('PUT', '/files')
  t.match(await server.ask('GET', '/files'), { status: 200 })
  const idle = memoryOf(server.pid())
  const answers: string[] = []
  const done = new AbortController()
  let times: readonly number[] = []
  let body = 0
  const peak = await peakDuring(server, async () => {
    const uploads = Array.from({ length: UPLOADS }, (_, n) => slowUpload(t, server, `/files/doc-${n}/file`))
    const all = await Promise.all([
      Promise.all(uploads).finally(() => done.abort()),
      othersTimes(server, 'files', done.signal),
      mostBodyMemory(server, done.signal),
    ])
    answers.push(...all[0])
    times = all[1]
    body = all[2]
  })
  const grown = peak - idle
  t.same(new Set(answers), new Set(['HTTP/1.1 201 Created']))
  t.comment(`idle ${mb(idle)}, at most ${mb(peak)}: ${mb(grown)} for ${UPLOADS} uploads`)
  const most = percentile(times, 0.99)
  t.comment(
    `${times.length} saves and reads meanwhile: ${ms(percentile(times, 0.5))}, 99% within ${ms(most)}`,
  )
  t.comment(`bodies in memory: ${mb(body)} at most`)
  t.ok(grown < BOUND, `${mb(grown)} for ${UPLOADS} uploads`)
  t.ok(body <= BODY_MEMORY, 'bodies keep to settee/body_memory')
  t.ok(most < PATIENCE_MS, `others are served meanwhile: 99% within ${ms(most)}`)
})

/** The peak memory of bodies until the signal is aborted, as the server counts it. */
async function mostBodyMemory(server: ServerProcess, ends: AbortSignal): Promise<number> {
  let most = 0
  while (!ends.aborted) {
    const { json } = await server.ask('GET', '/_node/_local/_prometheus')
    most = Math.max(most, Number(/^settee_body_memory_bytes (\S+)$/m.exec(json)?.[1]))
    await sleep(500)
  }
  return most
}

function ms(duration: number): string {
  return `${Math.round(duration)} ms`
}

function mb(bytes: number): string {
  return `${Math.round(bytes / MB)} MB`
}
