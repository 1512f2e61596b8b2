/** The doctor with a real settee: passing checks, the rights of accounts, and no data left behind. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { limitsFor } from '../../../src/doctor/doctor-client.ts'
import { settee } from '../../cli/child.ts'
import { look, onlyWrong } from '../../doctor/looking.ts'
import { startTestServer, type TestServer, temporaryFolder } from '../../helpers/server.ts'

const ADMIN = 'admin:a%40b%3Ac'
const AUTH = 'admin:a@b:c'
const SHORT = { bodies: [] }

async function serve(t: Test, options: { readonly hosted?: boolean } = {}): Promise<TestServer> {
  const env = { COUCHDB_USER: 'admin', COUCHDB_PASSWORD: 'a@b:c' }
  const server = await startTestServer(t, { env, ...options })
  await server.request('PUT', '/notes', { auth: AUTH })
  return server
}

function addressOf({ url }: TestServer, credentials = ADMIN): string {
  return `${url.replace('://', `://${credentials}@`)}/notes`
}

async function addAccount(server: TestServer, security: unknown): Promise<void> {
  const body = { name: 'anna', type: 'user', roles: ['staff'], password: 'secret' }
  await server.request('PUT', '/_users/org.couchdb.user:anna', { auth: AUTH, body })
  await server.request('PUT', '/notes/_security', { auth: AUTH, body: security })
}

t.test('everything passes within the time limit, and nothing is left behind', async (t) => {
  const server = await serve(t)
  await server.request('PUT', '/notes/a', { auth: AUTH, body: {} })
  const info = async () => (await server.request('GET', '/notes', { auth: AUTH })).json
  const before = await info()
  for (const quick of [false, true]) {
    const started = performance.now()
    const looked = await look(addressOf(server), { limits: limitsFor({ quick, long: false }) })
    const ms = performance.now() - started
    onlyWrong(t, looked)
    t.equal(looked.one('feed').state, 'fine')
    t.ok(ms < (quick ? 9000 : 30_000), `${Math.round(ms)} ms`)
    t.comment(`${quick ? '--quick' : 'all'}: ${Math.round(ms)} ms`)
    t.match(
      looked.one('bodies').text,
      quick ? /^The server accepts bodies of 1 MB/ : /^The server accepts bodies of 1 MB, 10 MB, 64 MB\.$/,
    )
    t.match(looked.one('long feed'), { state: 'skipped' })
  }
  const after = await info()
  t.strictSame(
    [after.update_seq, after.doc_count, after.doc_del_count],
    [before.update_seq, before.doc_count, before.doc_del_count],
  )
  t.strictSame((await server.request('GET', '/notes/_local_docs', { auth: AUTH })).json.rows, [])
})

t.test('what an account may do', async (t) => {
  const server = await serve(t)
  const anna = addressOf(server, 'anna:secret')
  const rows: [security: unknown, state: string, text: RegExp][] = [
    [{ members: { names: ['anna'] } }, 'fine', /^The account can read, as member/],
    [{ admins: { names: ['anna'] } }, 'fine', /^The account can read, as admin of the database/],
    [{ admins: { roles: ['staff'] } }, 'fine', /^The account can read, as admin of the database/],
    [{ members: { names: ['bob'] } }, 'wrong', /^The account may not read notes: 403 forbidden/],
  ]
  for (const [security, state, text] of rows) {
    await addAccount(server, security)
    const looked = await look(anna, { limits: SHORT })
    onlyWrong(t, looked, ...(state === 'wrong' ? (['rights'] as const) : []))
    t.match(looked.one('rights'), { state, text })
  }
  t.match((await look(addressOf(server), { limits: SHORT })).one('rights').text, /server admin/)
  const none = await look(`${addressOf(server)}-2`, { limits: SHORT })
  t.match(none.one('rights'), { state: 'wrong', text: 'There is no database notes-2.' })
  const nobody = await look(`${server.url}/notes`, { limits: SHORT })
  t.match(nobody.one('credentials'), {
    state: 'wrong',
    text: /^The address has no credentials: 401 unauthorized/,
  })
  await server.request('PUT', '/notes/_security', { auth: AUTH, body: {} })
  await server.request('PUT', '/notes/_security', { auth: AUTH, body: { members: { names: [], roles: [] } } })
  t.match((await look(`${server.url}/notes`, { limits: SHORT })).one('credentials'), { state: /note|wrong/ })
})

t.test('a wrong password is tried once, so that the doctor locks no account', async (t) => {
  const server = await serve(t)
  for (let time = 0; time < 4; time++) {
    const looked = await look(addressOf(server, 'admin:wrong'), { limits: SHORT })
    t.match(looked.one('credentials'), { state: 'wrong', text: /^Name or password is wrong/ })
    t.equal(looked.one('server').state, 'fine')
  }
  t.equal((await look(addressOf(server), { limits: SHORT })).one('credentials').state, 'fine')
  for (let time = 0; time < 6; time++) await server.request('GET', '/', { auth: 'admin:wrong' })
  const locked = await look(addressOf(server), { limits: SHORT })
  t.match(locked.one('credentials'), { state: 'wrong', text: /^The account is refused: Account is temp/ })
  t.match(locked.cures('credentials'), [/five minutes/])
})

t.test('a server without an admin', async (t) => {
  const server = await startTestServer(t)
  await server.request('PUT', '/notes')
  const looked = await look(`${server.url}/notes`, { limits: SHORT })
  onlyWrong(t, looked)
  t.match(looked.one('credentials'), { state: 'note', text: /has no admin/ })
})

t.test('checks for LiveSync only, and checks for other apps', async (t) => {
  const server = await serve(t)
  const looked = async () => look(addressOf(server), { limits: SHORT, mobile: true })
  t.match((await looked()).one('find'), { state: 'fine' }, 'an empty vault may become one of LiveSync’s')
  await server.request('PUT', '/notes/obsydian_livesync_version', {
    auth: AUTH,
    body: { type: 'versioninfo' },
  })
  const vault = await looked()
  t.match(vault.one('find'), { state: 'fine', text: /as it does at each start/ })
  t.match(vault.one('mobile'), { state: 'skipped', text: /LiveSync/ })
  const { json } = await server.request('GET', '/notes/obsydian_livesync_version', { auth: AUTH })
  await server.request('DELETE', `/notes/obsydian_livesync_version?rev=${json._rev}`, { auth: AUTH })
  await server.request('PUT', '/notes/x', { auth: AUTH, body: {} })
  t.match((await looked()).one('find'), { state: 'skipped' })
})

t.test('the filter for phones', async (t) => {
  const server = await serve(t)
  const put = (sync: unknown) =>
    server.request('PUT', '/notes/_design/mobile', { auth: AUTH, body: { filters: { sync } } })
  const drop = async () => {
    const { json } = await server.request('GET', '/notes/_design/mobile', { auth: AUTH })
    await server.request('DELETE', `/notes/_design/mobile?rev=${json._rev}`, { auth: AUTH })
  }
  const mobile = async () => (await look(addressOf(server), { limits: SHORT, mobile: true })).one('mobile')
  t.match(await mobile(), { state: 'skipped', text: /none of its notes/ })
  await server.request('PUT', '/notes/note:1', { auth: AUTH, body: {} })
  t.match(await mobile(), {
    state: 'wrong',
    text: /^There is no _design\/mobile/,
    cures: [{ line: /^curl -X PUT/ }],
  })
  const rows: [source: unknown, state: string, text: RegExp][] = [
    ['function (doc) { return doc._id.indexOf("file:") === -1 }', 'fine', /leaves out file: documents/],
    ['doc => !doc._id.includes("file:")', 'fine', /leaves out file: documents/],
    ['function () { return true }', 'wrong', /does not leave out file:1, file:2/],
    ['function (doc) { return doc._id.startsWith("note:") }', 'wrong', /leaves out book:1, tag:1/],
    ['function (doc) { return !doc._deleted && doc._id.indexOf("file:") < 0 }', 'wrong', /leaves out note:2/],
    ['function (doc) { return doc.a.b }', 'wrong', /fails: TypeError/],
    ['function () { for (;;) {} }', 'wrong', /fails/],
    ['function (', 'wrong', /fails/],
    [undefined, 'wrong', /has no filters\.sync/],
  ]
  for (const [source, state, text] of rows) {
    await put(source)
    t.match(await mobile(), { state, text }, String(source))
    await drop()
  }
})

t.test('the printed command for the filter works', async (t) => {
  const server = await serve(t)
  await server.request('PUT', '/notes/book:1', { auth: AUTH, body: {} })
  const { cures } = (await look(addressOf(server), { limits: SHORT, mobile: true })).one('mobile')
  const [, body] = /-d '(.*)'$/.exec(cures[0]!.line)!
  await server.request('PUT', '/notes/_design/mobile', { auth: AUTH, body: JSON.parse(body!) })
  t.equal((await look(addressOf(server), { limits: SHORT, mobile: true })).one('mobile').state, 'fine')
})

t.test(
  'so does the one for a filter that is there and wrong; what stands beside it is not lost',
  async (t) => {
    const server = await serve(t)
    const mobile = async () => (await look(addressOf(server), { limits: SHORT, mobile: true })).one('mobile')
    const path = '/notes/_design/mobile'
    await server.request('PUT', path, {
      auth: AUTH,
      body: { filters: { sync: 'function () { return true }' } },
    })
    const [, query, body] = /mobile(\?rev=1-\w+)' -u ADMIN -d '(.*)'$/.exec((await mobile()).cures[0]!.line)!
    // Like curl.
    const headers = { 'content-type': 'application/x-www-form-urlencoded' }
    const put = await server.request('PUT', `${path}${query}`, { auth: AUTH, body: body!, headers })
    t.equal(put.status, 201)
    t.equal((await mobile()).state, 'fine')
    const { json } = await server.request('GET', path, { auth: AUTH })
    const more = { ...json, filters: { sync: 'function () { return true }', other: 'function () {}' } }
    await server.request('PUT', path, { auth: AUTH, body: more })
    t.match((await mobile()).cures, [{ line: /^Set filters\.sync of http:\S+ to: function/ }])
  },
)

t.test('a hosted server', async (t) => {
  const server = await serve(t, { hosted: true })
  const looked = await look(addressOf(server), { limits: { ...SHORT, bodies: [2048] }, mobile: true })
  t.match(looked.one('mobile'), { state: 'fine', text: /_selector/ })
  onlyWrong(t, looked, 'address', 'look-up')
})

t.test('origins of other apps', async (t) => {
  const server = await serve(t)
  const looked = await look(addressOf(server), { limits: SHORT, origins: ['https://notes.example'] })
  t.match(looked.one('preflights'), { state: 'wrong', text: /^Not allowed for https:\/\/notes\.example/ })
  t.match(looked.cures('preflights')[0], /^settee: curl .*cors\/origins/)
  await apply(server, looked.cures('preflights')[0]!)
  onlyWrong(t, await look(addressOf(server), { limits: SHORT, origins: ['https://notes.example'] }))
  onlyWrong(t, await look(addressOf(server), { limits: SHORT }))
})

/** Executes advice of the form `curl ... -X METHOD .../KEY -d '"VALUE"'; likewise KEY "VALUE" and ...`. */
async function apply(server: TestServer, line: string): Promise<void> {
  const [, method, first, more = ''] = /-X (\w+) SERVER\/_node\/_local\/_config\/([^;]+);(.*)$/.exec(line)!
  const others = more.replace('the same for', '').split(' and ')
  for (const each of [first!, ...others]) {
    const [, key, value] = /([a-z_]+\/[a-z_]+)(?:[^"]*"(.*?)")?/.exec(each)!
    const path = `/_node/_local/_config/${key}`
    const given = value === undefined ? {} : { body: JSON.stringify(value) }
    await server.request(method!, path, { auth: AUTH, ...given })
  }
}

t.test('each setting that blocks pages, and the line that allows them', async (t) => {
  const rows: [key: string, value: string, name: 'preflights' | 'cors', text: RegExp][] = [
    ['chttpd/enable_cors', 'false', 'cors', /there is no Access-Control-Allow-Origin/],
    ['cors/origins', 'https://elsewhere.example', 'cors', /there is no Access-Control-Allow-Origin/],
    ['cors/credentials', 'false', 'cors', /-Credentials: true is missing/],
    ['cors/headers', 'accept', 'preflights', /there is no Access-Control-Allow-Origin/],
    ['cors/methods', 'GET,POST', 'preflights', /there is no Access-Control-Allow-Origin/],
  ]
  const server = await serve(t)
  for (const [key, value, name, text] of rows) {
    await server.request('PUT', `/_node/_local/_config/${key}`, { auth: AUTH, body: JSON.stringify(value) })
    const looked = await look(addressOf(server), { limits: SHORT })
    t.match(looked.one(name), { state: 'wrong', text }, key)
    t.equal(looked.one('preflights').state, 'wrong')
    await apply(server, looked.cures('preflights')[0]!)
    onlyWrong(t, await look(addressOf(server), { limits: SHORT }))
  }
})

t.test('the command', async (t) => {
  const server = await serve(t)
  const run = (args: readonly string[], input?: string) =>
    settee(t, ['doctor', '--quick', ...args], input === undefined ? {} : { input }).ended
  const [plain, json, report, wrong, none, ca] = await Promise.all([
    run([addressOf(server)]),
    run(['--json', '--stdin'], `${addressOf(server)}\n`),
    run(['--report', addressOf(server)]),
    run([addressOf(server, 'admin:W0rdOfMine')]),
    run(['http://admin:W0rdOfMine@127.0.0.1/notes']),
    run([addressOf(server), '--ca', join(await temporaryFolder(t), 'none.pem')]),
  ])
  t.match(plain, { code: 0, stderr: '', stdout: /\nNothing is wrong \(\d/ })
  t.match(plain.stdout, /^fine {3}address {6}http:/)
  t.match(JSON.parse(json.stdout), {
    ok: true,
    address: `${server.url}/notes`,
    findings: [{ name: 'address' }],
  })
  t.match(report.stdout, /^```\nsettee doctor \d/)
  t.match(report.stdout, /\/<database>\n/)
  t.equal(report.code, 0)
  t.match(wrong, { code: 1, stderr: '' })
  t.match(wrong.stdout, /^WRONG {2}credentials {2}Name or password is wrong/m)
  t.match(none, { code: 1, stdout: /^WRONG {2}address {6}There is no port\./ })
  t.match(ca, { code: 1, stdout: '', stderr: /^settee: .*none\.pem cannot be read \(ENOENT\)\.\n$/ })
  const said = [plain, json, report, wrong, none].map(({ stdout, stderr }) => stdout + stderr).join('\n')
  for (const secret of ['a@b:c', 'a%40b', 'W0rdOfMine', Buffer.from(AUTH).toString('base64')]) {
    t.notOk(said.includes(secret), secret)
  }
})

t.test('a file that is not a certificate', async (t) => {
  const file = join(await temporaryFolder(t), 'x.pem')
  await writeFile(file, 'hello')
  const { code, stderr } = await settee(t, ['doctor', 'http://a:b@127.0.0.1:1/n', '--ca', file]).ended
  t.equal(code, 1)
  t.match(stderr, /contains no PEM certificate/)
})
