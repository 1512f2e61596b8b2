/** What a source answers is bounded before a database has accepted it, as the bodies of clients are. */
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { ANONYMOUS, COPYING_USER } from '../../src/auth/accounts.ts'
import { openConfig } from '../../src/config/config.ts'
import { bodyFilesOf } from '../../src/config/settings.ts'
import type { Space, UserCtx } from '../../src/core/types.ts'
import { Intake } from '../../src/replication/intake.ts'
import type { Peer } from '../../src/replication/peer.ts'
import { withRevision } from '../../src/replication/revision-fetch.ts'
import {
  document,
  feed,
  hostileRemote,
  long,
  missing,
  REV,
  type Reply,
  row,
} from '../faults/hostile/remote.ts'
import { startTestServer, type TestServer } from '../helpers/server.ts'

const MB = 1024 * 1024
const HEAD =
  '--b\r\nContent-Type: multipart/related; boundary="c"\r\n\r\n--c\r\nContent-Type: application/json\r\n\r\n'
const MULTIPART = { 'content-type': 'multipart/mixed; boundary="b"' }

/** A source whose revision has 64 MB, or does not end. */
function largeSource(most = 64 * MB): Peer {
  const openRevs = async () => ({ type: MULTIPART['content-type'], chunks: chunksOf(most) })
  return { openRevs } as unknown as Peer
}

async function* chunksOf(most: number) {
  for (const chunk of long(HEAD, 'x', '', most)) yield Buffer.from(chunk)
}

async function setUp(t: { testdir(): string }, space: Space, ini: Record<string, string> = {}) {
  const folder = t.testdir()
  const config = await openConfig({ dataDir: folder, env: {}, flags: {} })
  for (const [name, value] of Object.entries(ini)) {
    const [section = '', key = ''] = name.split('/')
    await config.set(section, key, value)
  }
  const files = bodyFilesOf(config, () => space, folder)
  const fetch = (user: UserCtx, allowance?: UserCtx['allowance'], signal = new AbortController().signal) => {
    const intake = new Intake({ config, files, user, allowance: async () => allowance })
    const wanted = { id: 'a', rev: REV, ancestors: [] }
    return withRevision(largeSource(), wanted, intake, signal, async () => 'used')
  }
  const left = async () => [files.used, (await readdir(folder)).filter((name) => name.startsWith('body-'))]
  return { files, fetch, left }
}

const AMPLE: Space = { free: 1000 * MB, floor: 0 }

t.test('a revision is refused at the bound that it reaches first, and leaves nothing', async (t) => {
  const limited = await setUp(t, AMPLE, { 'chttpd/max_http_request_size': String(8 * MB) })
  await t.rejects(limited.fetch(COPYING_USER), { fault: 'too_large', message: /8388608 bytes/ })
  t.strictSame(await limited.left(), [0, []], 'beyond the size of a request')

  const full = await setUp(t, { free: 50 * MB, floor: 10 * MB })
  await t.rejects(full.fetch(COPYING_USER), { fault: 'server_error', message: /no room/ })
  t.strictSame(await full.left(), [0, []], 'beyond the room on the disk')

  const quota = await setUp(t, AMPLE)
  const bytes = { limit: 1, others: 0, here: 2 ** 27 }
  const allowance = { bytes, documents: { limit: 9, others: 0 }, maxDocumentSize: MB } as unknown
  // A tenant's bodies may take 64 MB beyond the quota; the revision has some bytes more.
  await t.rejects(quota.fetch({ ...ANONYMOUS, name: 'anna' }, allowance as UserCtx['allowance']), {
    fault: 'forbidden',
    message: /may store 1 bytes/,
  })
  t.strictSame(await quota.left(), [0, []], 'beyond the quota of the target')
})

async function pull(server: TestServer, url: string, more: object = {}) {
  return server.request('POST', '/_replicate', {
    body: { source: `${url}/notes`, target: 'copy', create_target: true, retries_per_request: 0, ...more },
  })
}

const changes = (query: URLSearchParams) =>
  feed(query.get('since') === '2-x' ? [] : [row('a', '1-x'), row('b', '2-x')], '2-x')
const multipart = (most: number): Reply => ({ headers: MULTIPART, body: long(HEAD, 'x', '', most) })

t.test('a revision that does not end stops nothing else, and no file stays', async (t) => {
  const server = await startTestServer(t)
  await server.request('PUT', '/_node/_local/_config/chttpd/max_http_request_size', { body: `"${4 * MB}"` })
  const remote = await hostileRemote(t, ({ url: { pathname, searchParams } }) => {
    if (pathname === '/notes/_bulk_get') return missing()
    if (pathname === '/notes/_changes') return changes(searchParams)
    if (pathname === '/notes/b') return { body: JSON.stringify([{ ok: document('b') }]) }
    return pathname === '/notes/a' ? multipart(192 * MB) : null
  })
  const { status, json } = await pull(server, remote.url)
  t.match(
    [status, json.history?.[0]],
    [200, { docs_written: 1, doc_write_failures: 1 }],
    JSON.stringify(json),
  )
  t.equal((await server.request('GET', '/copy/b')).status, 200)
  t.strictSame(await readdir(join(server.dataDir, 'tmp')), [])
})

t.test('documents beyond max_document_size are not taken into memory, and others go on', async (t) => {
  const server = await startTestServer(t)
  const large = `{"ok":{"_id":"a","_rev":"${REV}","x":"${'x'.repeat(12 * MB)}"}}`
  let asked = 0
  const remote = await hostileRemote(t, ({ url: { pathname, searchParams } }) => {
    if (pathname === '/notes/_changes') return changes(searchParams)
    if (pathname === '/notes/_bulk_get') {
      const other = JSON.stringify({ id: 'b', docs: [{ ok: document('b') }] })
      return { body: `{"results":[{"id":"a","docs":[${large}]},${other}]}` }
    }
    if (pathname !== '/notes/a') return null
    asked += 1
    return { body: `[${large}]` }
  })
  const { json } = await pull(server, remote.url)
  t.match(json.history?.[0], { docs_written: 1, doc_write_failures: 1 })
  t.equal(asked, 1, 'it is asked for alone, since a conflict of many short leaves is as long')
  t.equal((await server.request('GET', '/copy/b')).status, 200)
})
