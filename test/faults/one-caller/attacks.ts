/** Attacks that one caller has tried: what strangers found on a server that was open to them. */
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { createGzip, constants as zlib } from 'node:zlib'
import { zipped } from './bodies.ts'
import type { Attack } from './measure.ts'
import { PATTERN_ATTACKS } from './patterns.ts'
import type { Mode, Sent, World } from './world.ts'

export interface NamedAttack {
  readonly name: string
  readonly mode: Mode
  readonly run: Attack
  /** An account connects from the attacker's network meanwhile. */
  readonly hasNeighbour?: true
}

type Answers = Record<number, number>

/** Sends requests on some connections at once, one after another on each, until the attack ends. */
function again(connections: number, make: (world: World, n: number) => Sent): Attack {
  return async (world, signal) => {
    const answers: Answers = {}
    let n = 0
    const loop = async () => {
      while (!signal.aborted) {
        count(answers, await world.send(make(world, n++), signal))
      }
    }
    await Promise.all(Array.from({ length: connections }, loop))
    return answers
  }
}

function count(answers: Answers, status: number): void {
  answers[status] = (answers[status] ?? 0) + 1
}

/** A gzipped body of JSON, sent again and again on two connections. */
function json(method: string, path: string, body: () => Uint8Array): Attack {
  return again(2, ({ database }) => ({
    method,
    path: database + path,
    caller: 'tenant',
    headers: { 'content-encoding': 'gzip' },
    body: body(),
  }))
}

/** Writes the same bytes to connections as fast as they are taken; counts the answers' first lines. */
function flood(connections: number, bytes: string): Attack {
  return async (world, signal) => {
    const answers: Answers = {}
    const one = async () => {
      while (!signal.aborted) {
        const socket = world.open(signal)
        socket.on('data', (chunk: Buffer) => {
          for (const [, status] of chunk.toString('latin1').matchAll(/HTTP\/1\.1 (\d{3})/g)) {
            count(answers, Number(status))
          }
        })
        const write = (): void => {
          while (!socket.destroyed && socket.write(bytes)) {
            // Until the socket asks to wait for `drain`.
          }
        }
        socket.on('drain', write)
        socket.once('connect', write)
        await new Promise((resolve) => socket.once('close', resolve))
      }
    }
    await Promise.all(Array.from({ length: connections }, one))
    return answers
  }
}

function head(line: string, ...headers: string[]): string {
  return [line, 'Host: 127.0.0.1', ...headers, '', ''].join('\r\n')
}

const revision = (n: number): string => `${1 + (n % 3)}-${n.toString(16).padStart(32, '0')}`

/** 1,500 revisions of one document whose parents nobody knows; a further one with each request. */
const conflicts = again(1, ({ database }, n) => {
  const revisions = n === 0 ? Array.from({ length: 1500 }, (_, at) => revision(at)) : [revision(10_000 + n)]
  return {
    method: 'POST',
    path: `${database}/_bulk_docs`,
    caller: 'tenant',
    headers: { 'content-encoding': 'gzip' },
    body: zipped(`conflicts-${n}`, () =>
      JSON.stringify({ new_edits: false, docs: revisions.map((_rev) => ({ _id: 'torn', _rev })) }),
    ),
  }
})

/** Reads all leaves of the document of {@link conflicts}. */
const leaves = again(2, ({ database }) => ({
  method: 'GET',
  path: `${database}/torn?open_revs=all`,
  caller: 'tenant',
  headers: { accept: 'application/json' },
}))

/** Uploads that inflate to nothing: empty blocks of deflate, a few bytes at a time. */
const emptyBlocks: Attack = async (world, signal) => {
  const answers: Answers = {}
  const gzip = createGzip()
  gzip.write(`{"a":"${'a'.repeat(1000)}`)
  gzip.flush(zlib.Z_FULL_FLUSH)
  await once(gzip, 'readable')
  const begin = gzip.read() as Buffer
  const block = Buffer.from([0, 0, 0, 255, 255])
  const one = async () => {
    const socket = world.open(signal)
    socket.on('data', (chunk: Buffer) => count(answers, Number(chunk.toString('latin1').slice(9, 12))))
    const { authorization } = world.headersOf('tenant')
    socket.write(
      head(
        `PUT ${world.database}/slow HTTP/1.1`,
        `Authorization: ${authorization}`,
        'Content-Type: application/json',
        'Content-Encoding: gzip',
        'Transfer-Encoding: chunked',
      ),
    )
    const chunk = (bytes: Buffer) => {
      socket.write(`${bytes.length.toString(16)}\r\n`)
      socket.write(bytes)
      socket.write('\r\n')
    }
    chunk(begin)
    while (!signal.aborted && !socket.destroyed) {
      chunk(block)
      await sleep(25)
    }
  }
  await Promise.all(Array.from({ length: 40 }, one))
  return answers
}

/** POSTs that never end, on as many connections as the server takes. */
const slowPosts: Attack = async (world, signal) => {
  const answers: Answers = {}
  const one = async () => {
    const socket = world.open(signal)
    socket.on('data', (chunk: Buffer) => count(answers, Number(chunk.toString('latin1').slice(9, 12))))
    socket.write(head('POST /_session HTTP/1.1', 'Content-Type: application/json', 'Content-Length: 1000'))
    while (!signal.aborted && !socket.destroyed) {
      socket.write(' ')
      await sleep(200)
    }
  }
  await Promise.all(Array.from({ length: 900 }, one))
  return answers
}

/** One after another for as long as the attack lasts, so that what they leave behind adds up. */
export const ATTACKS: readonly NamedAttack[] = [
  {
    name: '_revs_diff, 20 million empty objects',
    mode: 'hosted',
    run: json('POST', '/_revs_diff', () => zipped('revs', () => `{"a":[${list('{}', 64)}]}`)),
  },
  {
    name: '_revs_diff, a million revisions',
    mode: 'hosted',
    run: json('POST', '/_revs_diff', () => zipped('million', () => `{"torn":[${millionRevisions()}]}`)),
  },
  {
    name: '_missing_revs, a million revisions',
    mode: 'hosted',
    run: json('POST', '/_missing_revs', () => zipped('million', () => `{"torn":[${millionRevisions()}]}`)),
  },
  {
    name: '_bulk_get, 12 MB',
    mode: 'hosted',
    run: json('POST', '/_bulk_get', () => zipped('get', () => `{"docs":[${list('{"id":"a"}', 12)}]}`)),
  },
  {
    name: '_all_docs, keys, 12 MB',
    mode: 'hosted',
    run: json('POST', '/_all_docs?include_docs=true', () =>
      zipped('keys', () => `{"keys":[${list('"a"', 12)}]}`),
    ),
  },
  {
    name: '_all_docs/queries, 12 MB',
    mode: 'hosted',
    run: json('POST', '/_all_docs/queries', () => zipped('queries', () => `{"queries":[${list('{}', 12)}]}`)),
  },
  {
    name: '_changes with a selector, 12 MB',
    mode: 'hosted',
    run: json('POST', '/_changes?filter=_selector', () =>
      zipped('selector', () => `{"selector":{"$or":[${list('{"a":1}', 12)}]}}`),
    ),
  },
  {
    name: '_find, a selector of 12 MB',
    mode: 'hosted',
    run: json('POST', '/_find', () =>
      zipped('selector', () => `{"selector":{"$or":[${list('{"a":1}', 12)}]}}`),
    ),
  },
  {
    name: '_find, a thousand conditions that nothing meets',
    mode: 'hosted',
    run: again(8, ({ database }) => ({
      method: 'POST',
      path: `${database}/_find`,
      caller: 'tenant',
      body: JSON.stringify({
        selector: { $and: Array.from({ length: 1000 }, (_, n) => ({ x: { $ne: n } })), y: 1 },
      }),
    })),
  },
  {
    name: '_session, 1 MB of spaces in 1 kB of gzip',
    mode: 'hosted',
    run: again(8, () => ({
      method: 'POST',
      path: '/_session',
      caller: 'stranger',
      headers: { 'content-encoding': 'gzip' },
      body: zipped('session', () => `{"name":"${'a'.repeat(1_000_000)}","password":"x"}`),
    })),
  },
  { name: '_bulk_docs, 1,500 conflicts and more', mode: 'hosted', run: conflicts },
  { name: 'open_revs=all of that document', mode: 'hosted', run: leaves },
  {
    name: 'PUT, 256 MB in 250 kB of gzip',
    mode: 'hosted',
    run: json('PUT', '/bomb', () => zipped('bomb', () => `{"a":"${'a'.repeat(256 * 1024 * 1024)}"}`)),
  },
  { name: 'PUT, empty blocks of gzip', mode: 'hosted', run: emptyBlocks },
  {
    name: 'tombstones of documents that never were',
    mode: 'hosted',
    run: again(4, ({ database }, n) => ({
      method: 'POST',
      path: `${database}/_bulk_docs`,
      caller: 'tenant',
      body: JSON.stringify({
        docs: Array.from({ length: 500 }, (_, at) => ({
          _id: `never-${n}-${at}`,
          _deleted: true,
          x: 'x'.repeat(1000),
        })),
      }),
    })),
  },
  {
    name: 'pipelined _up on 8 connections',
    mode: 'hosted',
    hasNeighbour: true,
    run: flood(8, head('GET /_up HTTP/1.1').repeat(200)),
  },
  {
    name: 'pipelined _up on 64 connections',
    mode: 'hosted',
    hasNeighbour: true,
    run: flood(64, head('GET /_up HTTP/1.1').repeat(200)),
  },
  {
    name: 'pipelined wrong cookies on 8 connections',
    mode: 'hosted',
    hasNeighbour: true,
    run: flood(8, head('GET /_session HTTP/1.1', 'Cookie: AuthSession=YTpiOmM').repeat(200)),
  },
  {
    name: 'pipelined GET with an account',
    mode: 'hosted',
    run: async (world, signal) => {
      const authorization = `Authorization: ${world.headersOf('tenant').authorization}`
      return flood(8, head(`GET ${world.database} HTTP/1.1`, authorization).repeat(200))(world, signal)
    },
  },
  {
    name: 'pipelined preflights on 8 connections',
    mode: 'hosted',
    run: flood(
      8,
      head(
        'OPTIONS /of-quiet/_bulk_docs HTTP/1.1',
        'Origin: http://localhost',
        'Access-Control-Request-Method: POST',
      ).repeat(200),
    ),
  },
  {
    name: 'refused heads on 8 connections',
    mode: 'hosted',
    hasNeighbour: true,
    run: flood(8, `GET /${'x'.repeat(40_000)} HTTP/1.1\r\n\r\n`),
  },
  { name: '900 POSTs that never end', mode: 'single', run: slowPosts },
  ...PATTERN_ATTACKS,
]

/** As many of them as fit into some MB. */
function list(item: string, megabytes: number): string {
  const times = Math.floor((megabytes * 1024 * 1024) / (item.length + 1))
  return `${`${item},`.repeat(times - 1)}${item}`
}

function millionRevisions(): string {
  return Array.from({ length: 1_000_000 }, (_, n) => `"${revision(n)}"`).join(',')
}
