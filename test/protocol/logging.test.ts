/** What the log says of requests, and what it must never say. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import PouchDB from 'pouchdb'
import t, { type Test } from 'tap'
import { request } from 'undici'
import { type Child, freePort } from '../cli/child.ts'
import { build, served } from './curl-shell.ts'
import { device, until } from './devices.ts'

const PASSWORD = 'Correct-Horse-Battery'
const WRONG_PASSWORD = 'Wrong-Donkey-Staple'
const TOKEN = 'eyJhbGciOi.Bearer-Token.Signature'
const COOKIE = 'YW5uYTo2NTVG.Session-Cookie'
const CREDENTIALS = `anna:${PASSWORD}`

/** A line of the log. */
type Line = Readonly<Record<string, unknown>>

interface Logged {
  readonly port: number
  readonly dataDir: string
  readonly child: Child
  /** All that the process has printed so far. */
  stdout(): string
}

async function start(t: Test): Promise<Logged> {
  await build(t)
  const [port, dataDir] = [await freePort(), t.testdir()]
  const child = await served(t, port, dataDir)
  let text = ''
  child.process.stdout?.on('data', (chunk: Buffer) => {
    text += chunk.toString()
  })
  await call({ port }, 'PUT', '/_node/_local/_config/admins/anna', JSON.stringify(PASSWORD))
  return { port, dataDir, child, stdout: () => text }
}

async function call(
  { port }: Pick<Logged, 'port'>,
  method: string,
  path: string,
  body?: string,
  headers: Record<string, string> = {},
): Promise<{ status: number; id: unknown }> {
  const answer = await request(`http://127.0.0.1:${port}${path}`, {
    method: method as 'GET',
    headers: { authorization: basic(CREDENTIALS), ...headers },
    body: body ?? null,
    reset: true,
  })
  await answer.body.dump()
  return { status: answer.statusCode, id: answer.headers['x-couch-request-id'] }
}

function basic(credentials: string): string {
  return `Basic ${Buffer.from(credentials).toString('base64')}`
}

async function setLog(logged: Logged, key: string, value: string): Promise<void> {
  const { status } = await call(logged, 'PUT', `/_node/_local/_config/log/${key}`, JSON.stringify(value))
  if (status !== 200) throw new Error(`log/${key} is refused: ${status}`)
}

/** The lines of requests; every line of the log has to be JSON. */
function requests(text: string): Line[] {
  const lines = text.trim().split('\n').filter(Boolean)
  return lines.map((line) => JSON.parse(line) as Line).filter(({ msg }) => msg === 'request')
}

/** Syncs a device with the server, the password in the address. */
async function sync(t: Test, { port }: Logged): Promise<void> {
  const local = await device(t)
  await local.bulkDocs([1, 2, 3].map((n) => ({ _id: `note:${n}`, n })))
  const away = new PouchDB(`http://${CREDENTIALS}@127.0.0.1:${port}/notes`)
  await local.sync(away)
}

async function stop({ child }: Logged): Promise<string> {
  child.process.kill('SIGTERM')
  const { stdout, stderr } = await child.ended
  return stdout + stderr
}

t.test('the level is raised without a restart; then a sync leaves one line a request', async (t) => {
  const logged = await start(t)
  await sync(t, logged)
  t.same(requests(logged.stdout()), [], 'nothing is said of requests at level info')
  await setLog(logged, 'level', 'debug')
  await sync(t, logged)
  await call(logged, 'GET', '/notes/_changes?since=0', undefined, { 'x-couch-request-id': 'asked-by-us' })
  await until('the last line is there', () => logged.stdout().includes('asked-by-us'))
  const lines = requests(logged.stdout())
  t.equal(new Set(lines.map(({ id }) => id)).size, lines.length, 'one line a request')
  for (const line of lines) checkMembers(t, line)
  const calls = lines.map(({ method, path }) => `${method} ${path}`)
  for (const expected of ['GET /notes', 'POST /notes/_revs_diff', 'GET /notes/_changes']) {
    t.ok(calls.includes(expected), expected)
  }
  t.match(lines.at(-1), {
    id: 'asked-by-us',
    method: 'GET',
    path: '/notes/_changes',
    database: 'notes',
    account: 'anna',
    status: 200,
  })
  await setLog(logged, 'level', 'info')
  await call(logged, 'GET', '/', undefined, { 'x-couch-request-id': 'too-late' })
  t.notMatch(await stop(logged), 'too-late', 'the level is lowered again')
})

function checkMembers(t: Test, line: Line): void {
  t.match(
    line,
    { id: /./, method: /^[A-Z]+$/, path: /^\//, account: 'anna', address: '127.0.0.1', status: Number },
    JSON.stringify(line),
  )
  t.match(line, { ms: Number, bytes: Number })
  t.ok(Number(line.bytes) > 0 && Number(line.ms) >= 0)
  t.equal(line.level, 'debug')
  if (String(line.path).startsWith('/notes')) t.equal(line.database, 'notes')
}

t.test('no password, token or cookie reaches a log, whatever happens', async (t) => {
  const logged = await start(t)
  const file = join(logged.dataDir, 'requests.log')
  await setLog(logged, 'level', 'debug')
  await secretCalls(t, logged)
  await setLog(logged, 'file', file)
  await secretCalls(t, logged)
  const log = (await stop(logged)) + (await readFile(file, 'utf8'))
  t.ok(requests(log).length > 20, 'requests were logged')
  const secrets = [PASSWORD, WRONG_PASSWORD, TOKEN, COOKIE]
  const encoded = [CREDENTIALS, `anna:${WRONG_PASSWORD}`].map((text) => basic(text).slice('Basic '.length))
  for (const secret of [...secrets, ...encoded, '-pbkdf2']) t.notOk(log.includes(secret), secret)
})

/** Calls with secrets in every place that has one, most of them refused. */
async function secretCalls(t: Test, logged: Logged): Promise<void> {
  await sync(t, logged)
  const wrong = { authorization: basic(`anna:${WRONG_PASSWORD}`) }
  const statuses = [
    await call(logged, 'GET', '/notes', undefined, wrong),
    await call(logged, 'PUT', '/other', undefined, wrong),
    await call(logged, 'GET', '/notes', undefined, { authorization: `Bearer ${TOKEN}` }),
    await call(logged, 'GET', `/notes?token=${TOKEN}`, undefined, { authorization: `Basic ${TOKEN}:` }),
    await call(logged, 'GET', '/notes', undefined, { cookie: `AuthSession=${COOKIE}` }),
    await call(logged, 'PUT', '/_config/admins/bob', JSON.stringify(WRONG_PASSWORD)),
    await call(logged, 'PUT', '/_config/admins/bob', `"${WRONG_PASSWORD}`),
    await call(logged, 'DELETE', '/_config/admins/bob'),
    await call(logged, 'PUT', '/_config/chttpd_auth/secret', JSON.stringify(COOKIE)),
    await call(logged, 'GET', `/notes/%zz?password=${PASSWORD}`),
  ].map(({ status }) => status)
  t.same(statuses, [401, 401, 401, 400, 400, 200, 400, 200, 200, 400])
}

t.test('log/file takes effect with the next line, and back again', async (t) => {
  const logged = await start(t)
  await setLog(logged, 'level', 'debug')
  const [first, second] = ['first.log', 'second.log'].map((name) => join(logged.dataDir, name)) as [
    string,
    string,
  ]
  const name = (id: string) => call(logged, 'GET', '/_up', undefined, { 'x-couch-request-id': id })
  await name('on-stdout')
  await setLog(logged, 'file', first)
  await name('in-first')
  await setLog(logged, 'file', second)
  await name('in-second')
  await setLog(logged, 'file', '')
  await name('on-stdout-again')
  t.equal((await call(logged, 'PUT', '/_config/log/file', '"/etc/passwd"')).status, 400)
  await name('still-on-stdout')
  const stdout = await stop(logged)
  const logs = { stdout, first: await readFile(first, 'utf8'), second: await readFile(second, 'utf8') }
  const where = {
    stdout: ['on-stdout', 'on-stdout-again', 'still-on-stdout'],
    first: ['in-first'],
    second: ['in-second'],
  }
  for (const [log, ids] of Object.entries(where)) {
    const named = requests(logs[log as keyof typeof logs]).filter(({ path }) => path === '/_up')
    t.same(
      named.map(({ id }) => id).filter((id) => /^(?:on|in|still)-/.test(String(id))),
      ids,
      log,
    )
  }
})
