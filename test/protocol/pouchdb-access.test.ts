import { once } from 'node:events'
import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import nano from 'nano'
import t, { type Test } from 'tap'
import { Agent } from 'undici'
import { ROOT, start } from '../cli/child.ts'
import { certificateFiles } from '../helpers/certificates.ts'
import {
  onlyOneServer,
  settled,
  startTestServer,
  type TestServer,
  temporaryFolder,
} from '../helpers/server.ts'
import { until } from '../helpers/until.ts'
import { editInTurns, overHttp1, overHttp2, secureRemote } from '../proxy/secure-devices.ts'
import { call } from './call.ts'
import { type Device, device, liveSync, type Remote, rejectsWith, remote } from './devices.ts'

const AUTH = 'user:pa:ss'

const OWN_FILES = onlyOneServer('It looks for secrets in the files of a server.')
const OWN_TLS = onlyOneServer('It needs the TLS of a server.')

/** A server with the admin `user`, whose password is `pa:ss`. */
async function guarded(t: Test): Promise<TestServer> {
  const server = await startTestServer(t)
  const made = await call(server, 'PUT', '/_node/_local/_config/admins/user', { body: '"pa:ss"' })
  t.match(made, { status: 200, json: '' })
  return server
}

/** The URL of a database, with credentials. */
function address({ url }: { readonly url: string }, credentials: string, database = 'notes'): string {
  return `${url.replace('://', `://${credentials}@`)}/${database}`
}

/** A public database. */
async function publicDatabase(server: TestServer): Promise<void> {
  await call(server, 'PUT', '/notes', { auth: AUTH })
  const body = { admins: { names: ['user'] }, members: { names: [], roles: [] } }
  await call(server, 'PUT', '/notes/_security', { auth: AUTH, body })
}

/** Starts a live sync that must end with an error; @returns the error. */
async function failedSync(local: Device, { db }: Remote): Promise<unknown> {
  const sync = local.sync(db, { live: true, retry: true, back_off_function: () => 1 })
  sync.catch(() => undefined)
  const [error] = await once(sync, 'error', { signal: AbortSignal.timeout(120_000) })
  return error
}

t.test('a password in the address', async (t) => {
  const server = await guarded(t)
  const [phone, desk] = [await device(t), await device(t)]
  await phone.bulkDocs([{ _id: 'a' }, { _id: '_design/d', views: { v: { map: 'function (doc) {}' } } }])
  const there = address(server, 'user:pa%3Ass')
  t.match(await phone.sync(remote(there).db), { push: { docs_written: 2 } }, 'it makes the database, too')
  t.match(await desk.sync(remote(there).db), { pull: { docs_written: 2 } })
  t.match(await call(server, 'GET', '/notes', { auth: AUTH }), { status: 200, json: { doc_count: 2 } })
  t.equal((await call(server, 'GET', '/notes')).status, 401, 'requests without an account are refused')

  t.test('after a restart', async (t) => {
    await server.stop()
    await server.start()
    await desk.put({ _id: 'b' })
    t.match(await desk.sync(remote(there).db), { push: { docs_written: 1 } })
    t.equal((await call(server, 'GET', '/notes')).status, 401)
  })

  t.test('or in the options', async (t) => {
    const auth = { username: 'user', password: 'pa:ss' }
    t.match(await phone.sync(remote(`${server.url}/notes`, { auth }).db), { pull: { docs_written: 1 } })
  })
})

t.test('names and passwords beyond ASCII', async (t) => {
  const server = await startTestServer(t)
  const path = `/_node/_local/_config/admins/${encodeURIComponent('zoë')}`
  t.equal((await call(server, 'PUT', path, { body: '"pässwörd/@:%🔑"' })).status, 200)
  const credentials = `${encodeURIComponent('zoë')}:${encodeURIComponent('pässwörd/@:%🔑')}`
  const phone = await device(t)
  await phone.put({ _id: 'a' })
  t.match(await phone.sync(remote(address(server, credentials)).db), { push: { docs_written: 1 } })
})

t.test('a wrong password ends a sync, even one with retries', async (t) => {
  const server = await guarded(t)
  await publicDatabase(server)
  const phone = await device(t)
  await phone.put({ _id: 'a' })
  for (const credentials of ['user:wrong', 'nobody:pa%3Ass', 'user:']) {
    const there = remote(address(server, credentials))
    t.match(await failedSync(phone, there), { status: 401, name: 'unauthorized' })
    // A retry would happen before a sync elsewhere is complete.
    const asked = there.seen.length
    const elsewhere = remote(address(server, 'user:pa%3Ass', 'elsewhere'))
    await phone.sync(elsewhere.db)
    t.ok(asked <= 10, `${asked} requests`)
    t.equal(there.seen.length, asked, 'no request follows the error')
    await rejectsWith(t, phone.replicate.to(there.db), {
      status: 401,
      reason: /Name or password is incorrect/,
    })
  }
  t.match((await call(server, 'GET', '/notes')).json, { doc_count: 0 })
})

t.test('a design document of a member is denied, and the sync continues', async (t) => {
  const server = await guarded(t)
  await publicDatabase(server)
  const phone = await device(t)
  await phone.bulkDocs([{ _id: 'a' }, { _id: '_design/mine', language: 'javascript' }, { _id: 'z' }])
  const there = remote(`${server.url}/notes`)
  const { denied, errors } = liveSync(t, phone, there.db)
  const notes = async () => ((await call(server, 'GET', '/notes')).json as { doc_count: number }).doc_count
  await until('the notes have arrived', async () => (await notes()) === 2 && denied.length === 1)
  t.match(denied, [
    { doc: { id: '_design/mine', error: 'unauthorized', reason: 'You are not a db or server admin.' } },
  ])
  await phone.put({ _id: 'later' })
  await until('the sync goes on', async () => (await notes()) === 3)
  await call(server, 'PUT', '/notes/by-curl', { body: {} })
  await until('both ways', async () => (await phone.info()).doc_count === 5)
  t.match({ denied, errors }, { denied: { length: 1 }, errors: { length: 0 } })

  t.test('a one-shot sync reports it, too, and does not try again', async (t) => {
    const desk = await device(t)
    await desk.bulkDocs([{ _id: 'desk' }, { _id: '_design/other' }])
    const refused: unknown[] = []
    const push = desk.replicate.to(there.db)
    push.on('denied', (row) => refused.push(row))
    t.match(await push, { docs_written: 1, doc_write_failures: 1, ok: true })
    t.equal(refused.length, 1)
    t.match(await desk.replicate.to(there.db), { docs_read: 0, doc_write_failures: 0 })
  })

  t.test('the admin pushes it', async (t) => {
    const admin = await device(t)
    const as = remote(address(server, 'user:pa%3Ass'))
    await admin.put({ _id: '_design/mine', language: 'javascript' })
    t.match(await admin.sync(as.db), { push: { docs_written: 1, doc_write_failures: 0 } })
    t.equal((await call(server, 'GET', '/notes/_design/mine')).status, 200)
  })
})

t.test('a member writes neither the security object nor the limit of revisions', async (t) => {
  const server = await guarded(t)
  await publicDatabase(server)
  for (const [path, body] of [
    ['/notes/_security', {}],
    ['/notes/_revs_limit', '10'],
  ] as const) {
    t.match(await call(server, 'PUT', path, { body }), { status: 401, json: { error: 'unauthorized' } })
  }
})

t.test('a live sync ends when it loses access to its database', async (t) => {
  const server = await startTestServer(t)
  const [stranger, owner] = [await device(t), await device(t)]
  await stranger.put({ _id: 'a' })
  const outside = remote(`${server.url}/notes`)
  const { errors } = liveSync(t, stranger, outside.db)
  await until('it waits for news', () =>
    outside.seen.some(
      ({ query }) => query.get('feed') === 'longpoll' && query.get('since')?.startsWith('1-'),
    ),
  )
  await call(server, 'PUT', '/_node/_local/_config/admins/user', { body: '"pa:ss"' })
  await until('it is told', () => errors.length > 0)
  t.match(errors, [{ status: 401, name: 'unauthorized' }])
  const inside = address(server, 'user:pa%3Ass')
  await owner.put({ _id: 'secret' })
  t.match(await owner.sync(remote(inside).db), { push: { docs_written: 1 }, pull: { docs_written: 1 } })
  await rejectsWith(t, stranger.get('secret'), { status: 404 })
  t.match((await owner.allDocs()).rows, [{ id: 'a' }, { id: 'secret' }])
})

const ADMIN = 'anna:pa:ss'

/** A database `notes` whose member is the account `anna`. */
async function served(t: Test, dataDir: string, logFile: string): Promise<TestServer> {
  const server = await startTestServer(t, { dataDir, logLevel: 'debug', logFile })
  const made = await server.request('PUT', '/_node/_local/_config/chttpd_auth/iterations', { body: '"10"' })
  t.equal(made.status, 200)
  await server.request('PUT', '/_node/_local/_config/admins/anna', { body: '"pa:ss"' })
  await server.request('PUT', '/notes', { auth: ADMIN })
  const body = { members: { names: ['anna'] } }
  await server.request('PUT', '/notes/_security', { auth: ADMIN, body })
  return server
}

async function newToken(server: TestServer, name: string): Promise<{ id: string; token: string }> {
  const { status, json } = await server.request('POST', '/_settee/tokens', { auth: ADMIN, body: { name } })
  if (status !== 201) throw new Error(`${status} ${JSON.stringify(json)}`)
  return json
}

function notes({ url }: TestServer, token: string) {
  return remote(`${url}/notes`, { auth: { username: 'anna', password: token } }).db
}

/** The bytes of every file below a folder. */
async function everything(folder: string): Promise<Buffer> {
  const files = await readdir(folder, { recursive: true, withFileTypes: true })
  const paths = files.filter((file) => file.isFile()).map((file) => join(file.parentPath, file.name))
  return Buffer.concat(await Promise.all(paths.map((path) => readFile(path))))
}

t.test('two devices sync with tokens of their own, and one of them is lost', OWN_FILES, async (t) => {
  const [dataDir, logs] = [await temporaryFolder(t), await temporaryFolder(t)]
  const server = await served(t, dataDir, join(logs, 'settee.log'))
  const [phone, desk] = [await device(t), await device(t)]
  const tokens = { phone: await newToken(server, 'phone'), desk: await newToken(server, 'desk') }

  await phone.bulkDocs([{ _id: 'a' }, { _id: 'b' }])
  t.match(await phone.sync(notes(server, tokens.phone.token)), { push: { docs_written: 2 } })
  t.match(await desk.sync(notes(server, tokens.desk.token)), { pull: { docs_written: 2 } })

  const revoked = await server.request('DELETE', `/_settee/tokens/${tokens.phone.id}`, { auth: ADMIN })
  t.equal(revoked.status, 200)
  await phone.put({ _id: 'c' })
  await rejectsWith(t, phone.sync(notes(server, tokens.phone.token)), { status: 401 })
  await desk.put({ _id: 'd' })
  t.match(await desk.sync(notes(server, tokens.desk.token)), { push: { docs_written: 1 } })

  const { json } = await server.request('GET', '/_settee/tokens', { auth: ADMIN })
  t.match(json, { tokens: [{ name: 'desk', last_use: { address: '127.0.0.1', time: String } }] })
  const kept = json.tokens[0].last_use
  for (const { token } of Object.values(tokens)) {
    const secret = token.slice('stt_'.length)
    const header = Buffer.from(`anna:${token}`).toString('base64').replace(/=+$/, '').slice(0, -1)
    for (const folder of [dataDir, logs]) {
      const bytes = await everything(folder)
      t.ok(bytes.length > 100)
      t.notOk(bytes.includes(secret), 'no secret on the disk')
      t.notOk(bytes.includes(header))
    }
  }

  t.test('after a restart', async (t) => {
    await server.close()
    const again = await startTestServer(t, { dataDir })
    await rejectsWith(t, phone.sync(notes(again, tokens.phone.token)), { status: 401 })
    const listed = await again.request('GET', '/_settee/tokens', { auth: ADMIN })
    t.strictSame(listed.json.tokens[0].last_use, kept, 'the last use was written when it closed')
    t.match(await desk.sync(notes(again, tokens.desk.token)), { push: { docs_written: 0 } })
  })
})

t.test('deleting an account deletes its token', async (t) => {
  const server = await served(t, await temporaryFolder(t), join(await temporaryFolder(t), 'settee.log'))
  const made = await server.request('PUT', '/_node/_local/_config/admins/bob', { auth: ADMIN, body: '"bob"' })
  t.equal(made.status, 200)
  await settled(server)
  const { json } = await server.request('POST', '/_settee/tokens', {
    auth: 'bob:bob',
    body: { name: 'x', admin: true },
  })
  const auth = `bob:${json.token}`
  t.equal((await server.request('GET', '/_all_dbs', { auth })).status, 200)
  await server.request('DELETE', '/_node/_local/_config/admins/bob', { auth: ADMIN })
  await settled(server)
  t.equal((await server.request('GET', '/', { auth })).status, 401)
  const nobody = await server.request('POST', '/_settee/tokens?account=bob', {
    auth: ADMIN,
    body: { name: 'y' },
  })
  t.match([nobody.status, nobody.json], [404, { reason: 'The account does not exist.' }])
  await server.request('PUT', '/_node/_local/_config/admins/bob', { auth: ADMIN, body: '"bob"' })
  t.equal((await server.request('GET', '/', { auth })).status, 401, 'a new account of the name has no token')
})

t.test('two devices sync live, one by HTTP/1.1 and one by HTTP/2', OWN_TLS, async (t) => {
  const tls = await certificateFiles(t)
  const env = { COUCHDB_USER: 'user', COUCHDB_PASSWORD: 'password' }
  const server = await startTestServer(t, { tls, env })
  await server.request('PUT', '/db', { auth: 'user:password' })
  const address = `${server.secureUrl.replace('//', '//user:password@')}/db`
  const devices = [await device(t), await device(t)] as const
  const bytes = Buffer.alloc(3 * 1024 * 1024, 'settee ')
  const picture = { content_type: 'image/png', data: bytes.toString('base64') }
  await devices[0].put({ _id: 'file:picture', _attachments: { picture } })
  const syncs = [
    liveSync(t, devices[0], secureRemote(address, overHttp1(t, { ca: tls.cert }))),
    liveSync(t, devices[1], secureRemote(address, overHttp2(t, tls.cert))),
  ]
  await editInTurns(devices, 1000)
  const found = await devices[1].get('file:picture', { attachments: true })
  t.equal(found._attachments?.picture?.data, picture.data)
  for (const { errors, denied } of syncs) t.strictSame([errors, denied], [[], []])
  for (const { stop } of syncs) await stop()
})

const MB = 1024 * 1024
const ANNA = 'anna:secret'

t.test('clients over TLS', OWN_TLS, async (t) => {
  const [tls, folder] = [await certificateFiles(t), await temporaryFolder(t)]
  const env = { COUCHDB_USER: 'anna', COUCHDB_PASSWORD: 'secret' }
  const { secureUrl, request } = await startTestServer(t, { tls, env })
  const address = secureUrl.replace('//', `//${ANNA}@`)
  await request('PUT', '/_node/_local/_config/couchdb/max_attachment_size', {
    auth: ANNA,
    body: `"${8 * MB}"`,
  })
  const file = join(folder, 'picture')
  await writeFile(file, Buffer.alloc(12 * MB, 'settee '))

  for (const version of ['http1.1', 'http2']) {
    t.test(`curl --${version}`, async (t) => {
      const write = '\n%{http_code} %{http_version}'
      const curl = async (...args: string[]) => {
        const fixed = [
          '--silent',
          '--show-error',
          `--${version}`,
          '--cacert',
          tls.certFile,
          '--write-out',
          write,
        ]
        const { code, stdout, stderr } = await start(t, 'curl', [...fixed, ...args]).ended
        t.match({ code, stderr }, { code: 0, stderr: '' }, args.join(' '))
        return stdout
      }
      const db = `${address}/by-${version.replace('.', '-')}`
      const [, number = ''] = version.split('http')
      t.match(await curl('-X', 'PUT', db), new RegExp(`"ok":true.*\n201 ${number}$`, 's'))
      t.match(await curl('-X', 'PUT', `${db}/a`, '-d', '{"text":"ä"}'), /201/)
      t.match(await curl('--compressed', `${db}/_all_docs?include_docs=true`), /"text":"ä".*\n200/s)
      t.match(await curl('-I', `${db}/a`), /^HTTP.* 200.*etag: /is)
      const form = ['-i', '-d', 'name=anna&password=secret', `${secureUrl}/_session`]
      t.match(await curl(...form), /^set-cookie: AuthSession=[^;]+;.*; Secure/im)
      t.match(await curl('-T', file, `${db}/b/picture`), /"error":"attachment_too_large".*\n413/s)
      t.match(await curl('-H', 'Expect:', '-T', file, `${db}/b/picture`), /"error":.*\n413/s)
      t.match(await curl(`${db}/_changes?feed=continuous&timeout=100`), /"last_seq":.*\n200/s)
    })
  }

  for (const allowH2 of [false, true]) {
    t.test(`nano, by HTTP/${allowH2 ? 2 : 1.1}`, async (t) => {
      const agent = new Agent({ allowH2, connect: { ca: tls.cert } })
      t.teardown(() => agent.destroy())
      const couch = nano({ url: address, agentOptions: agent as never })
      await couch.db.create('nano')
      const db = couch.use<{ n: number }>('nano')
      t.match(await db.insert({ n: 1 }, 'a'), { ok: true, id: 'a' })
      const docs = Array.from({ length: 500 }, (_, n) => ({ _id: `doc-${n}`, n }))
      t.equal((await db.bulk({ docs })).length, 500)
      t.equal((await db.list({ include_docs: true })).rows.length, 501)
      const bytes = Buffer.alloc(3 * MB, 'settee ')
      await db.attachment.insert('b', 'picture', bytes, 'image/png')
      t.ok(bytes.equals(await db.attachment.get('b', 'picture')))
      await t.rejects(db.get('none'), /missing/)
      await couch.db.destroy('nano')
    })
  }

  t.test('couchbackup and couchrestore', async (t) => {
    await request('PUT', '/notes', { auth: ANNA })
    const docs = Array.from({ length: 50 }, (_, n) => ({ _id: `note-${n}`, text: 'x'.repeat(1000) }))
    await request('POST', '/notes/_bulk_docs', { auth: ANNA, body: { docs } })
    await request('PUT', '/restored', { auth: ANNA })
    const run = async (name: string, database: string, input?: string) => {
      const program = join(ROOT, 'node_modules', '.bin', name)
      const env = { NODE_EXTRA_CA_CERTS: tls.certFile, TMPDIR: folder, COUCH_URL: address }
      const options = { env, ...(input !== undefined && { input }) }
      const { code, stdout, stderr } = await start(t, program, ['--db', database], options).ended
      t.equal(code, 0, name, { stderr })
      return stdout
    }
    await run('couchrestore', 'restored', await run('couchbackup', 'notes'))
    t.match((await request('GET', '/restored', { auth: ANNA })).json, { doc_count: 50 })
  })
})
