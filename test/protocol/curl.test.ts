/** The unchanged commands of the self-hosting guide, and common mistakes with them. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import PouchDB from 'pouchdb'
import t, { type Test } from 'tap'
import { request } from 'undici'
import { build, type Child, cleanEnv, freePort } from '../cli/child.ts'
import { settled, startTestServer, type TestServer } from '../helpers/server.ts'
import { until } from '../helpers/until.ts'
import { atPort, killHard, type Printed, served, sh } from './curl-shell.ts'
import { device } from './devices.ts'

const OK = '{"ok":true}\n'
const NOT_ADMIN = '{"error":"unauthorized","reason":"You are not a server admin."}\n'
const WRONG_PASSWORD =
  '{"error":"unauthorized","reason":"Name or password is incorrect. You are not a server admin."}\n'
const WRONG_CREDENTIALS = '{"error":"unauthorized","reason":"Name or password is incorrect."}\n'
const NOT_MEMBER = '{"error":"unauthorized","reason":"You are not authorized to access this db."}\n'

type Step = readonly [command: string, status: number, body: string | RegExp]

/** @param server waits after each change of a setting until all nodes of the server know it; by default there are no others */
async function follow(
  t: Test,
  port: number,
  steps: readonly Step[],
  server: Pick<TestServer, 'settingsMs'> = {},
): Promise<void> {
  for (const [command, status, body] of steps) {
    checkAnswer(t, await sh(command, port), command, status, body)
    if (/-X PUT .*\/_config\//.test(command)) await settled(server)
  }
}

function checkAnswer(
  t: Test,
  printed: Printed,
  command: string,
  status: number,
  body: string | RegExp,
): void {
  t.equal(printed.status, status, command)
  if (typeof body === 'string') t.equal(printed.body, body, command)
  else t.match(printed.body, body, command)
}

/** The accounts after the steps of the guide. */
const SECURED: readonly Step[] = [
  ['curl -X PUT http://127.0.0.1:5984/somedatabase', 401, NOT_ADMIN],
  ['curl -X PUT http://anna:wrong@127.0.0.1:5984/somedatabase', 401, WRONG_PASSWORD],
  ['curl -X PUT http://bob:secret@127.0.0.1:5984/somedatabase', 401, WRONG_PASSWORD],
  ['curl http://127.0.0.1:5984/_all_dbs', 401, NOT_ADMIN],
  [`curl -X PUT http://127.0.0.1:5984/_config/admins/eve -d '"mine"'`, 401, NOT_ADMIN],
  ['curl http://127.0.0.1:5984/my-notes', 401, NOT_MEMBER],
  ['curl http://127.0.0.1:5984/_up', 200, /^\{"status":"ok"/],
]

t.test('the self-hosting guide works unchanged, and its effects survive a kill -9', async (t) => {
  await build(t)
  const port = await freePort()
  const dataDir = t.testdir()
  const first = await served(t, port, dataDir)
  await follow(t, port, [
    ['curl -X PUT http://127.0.0.1:5984/my-notes', 201, OK],
    ['curl -X GET http://127.0.0.1:5984/_all_dbs', 200, '["_users","my-notes"]\n'],
    [`curl -X PUT http://127.0.0.1:5984/_config/admins/anna -d '"secret"'`, 200, '""\n'],
    [
      `curl -X PUT http://anna:secret@127.0.0.1:5984/my-notes/_security -d '{"admins":{"names":["anna"]}}'`,
      200,
      OK,
    ],
    ...SECURED,
    ['curl -X PUT http://anna:secret@127.0.0.1:5984/somedatabase', 201, OK],
    [
      `curl -X PUT http://anna:secret@127.0.0.1:5984/my-notes/note:1 -d '{"title":"kept"}'`,
      201,
      /^\{"ok":true/,
    ],
  ])
  await killHard(first)
  const second = await served(t, port, dataDir)
  await follow(t, port, [
    ['curl -X PUT http://anna:secret@127.0.0.1:5984/my-notes', 412, /^\{"error":"file_exists"/],
    ['curl -X GET http://anna:secret@127.0.0.1:5984/_all_dbs', 200, '["_users","my-notes","somedatabase"]\n'],
    ['curl http://anna:secret@127.0.0.1:5984/my-notes/_security', 200, '{"admins":{"names":["anna"]}}\n'],
    [
      `curl -X PUT http://anna:secret@127.0.0.1:5984/my-notes/_security -d '{"admins":{"names":["anna"]}}'`,
      200,
      OK,
    ],
    ...SECURED,
    ['curl -X PUT http://anna:secret@127.0.0.1:5984/another', 201, OK],
    ['curl http://anna:secret@127.0.0.1:5984/my-notes/note:1', 200, /"title":"kept"\}\n$/],
    // The old value is the hash, because anna already exists.
    [
      `curl -X PUT http://anna:secret@127.0.0.1:5984/_config/admins/anna -d '"new"'`,
      200,
      /^"-pbkdf2:sha256-/,
    ],
    ['curl http://anna:secret@127.0.0.1:5984/my-notes', 401, WRONG_CREDENTIALS],
    ['curl http://anna:new@127.0.0.1:5984/my-notes', 200, /"db_name":"my-notes"/],
  ])
  second.process.kill('SIGTERM')
  t.equal((await second.ended).code, 0)
})

t.test('a password that is not a JSON string creates no admin, and the server stays open', async (t) => {
  const { url } = await startTestServer(t)
  const port = Number(new URL(url).port)
  const bodies = [
    'secret',
    '5',
    `'""'`,
    `'" "'`,
    'null',
    'true',
    '[]',
    `'["secret"]'`,
    `'{"a":1}'`,
    `''`,
    `'"secret'`,
  ]
  for (const body of bodies) {
    for (const path of ['_config', '_node/_local/_config']) {
      await follow(t, port, [
        [
          `curl -X PUT http://127.0.0.1:5984/${path}/admins/anna -d ${body}`,
          400,
          /^\{"error":"bad_request","reason":"/,
        ],
      ])
    }
  }
  await follow(t, port, [
    ['curl http://127.0.0.1:5984/_config/admins', 200, '{}\n'],
    ['curl -X PUT http://127.0.0.1:5984/open', 201, OK],
    ['curl http://anybody:anything@127.0.0.1:5984/_all_dbs', 200, '["_users","open"]\n'],
  ])
})

t.test("an admin's name is percent-decoded", async (t) => {
  const server = await startTestServer(t)
  const port = Number(new URL(server.url).port)
  const steps: readonly Step[] = [
    [`curl -X PUT http://127.0.0.1:5984/_config/admins/anna%20mar%C3%ADa -d '"pass word"'`, 200, '""\n'],
    [`curl -u 'anna maría:pass word' -X PUT http://127.0.0.1:5984/hers`, 201, OK],
    ['curl http://anna%20mar%C3%ADa:pass%20word@127.0.0.1:5984/_all_dbs', 200, '["_users","hers"]\n'],
    [
      `curl -u 'anna maría:pass word' http://127.0.0.1:5984/_config/admins`,
      200,
      /^\{"anna maría":"-pbkdf2:sha256-[^"]+"\}\n$/,
    ],
    [`curl -u 'anna%20maria:pass word' http://127.0.0.1:5984/_all_dbs`, 401, WRONG_CREDENTIALS],
    [
      `curl -u 'anna maría:pass word' -X PUT http://127.0.0.1:5984/_config/admins/a%2Fb -d '"x"'`,
      200,
      '""\n',
    ],
    ['curl -u a/b:x http://127.0.0.1:5984/_all_dbs', 200, '["_users","hers"]\n'],
  ]
  await follow(t, port, steps, server)
})

/** The access to a database, by the members of its security object. */
const MEMBERS: readonly [security: string | null, status: number, what: string][] = [
  [null, 401, 'a database without a security object is for server admins only'],
  ['{"admins":{"names":["anna"]}}', 401, 'one that does not mention members is closed'],
  ['{}', 401, 'an empty security object does not mention members'],
  ['{"members":{"names":[],"roles":[]}}', 200, 'empty lists are public'],
  ['{"members":{}}', 200, 'no lists are empty lists'],
  ['{"members":{"names":["bob"]}}', 401, 'a database with members is for members'],
  ['{"members":{"roles":["family"]}}', 401, 'a database with roles is for who has them'],
]

t.test('access depends on the members of the security object', async (t) => {
  const server = await startTestServer(t)
  const port = Number(new URL(server.url).port)
  const admin: Step = [`curl -X PUT http://127.0.0.1:5984/_config/admins/anna -d '"secret"'`, 200, '""\n']
  await follow(t, port, [admin], server)
  for (const [n, [security, status, what]] of MEMBERS.entries()) {
    t.comment(what)
    const db = `db${n}`
    await follow(t, port, [[`curl -X PUT http://anna:secret@127.0.0.1:5984/${db}`, 201, OK]])
    if (security !== null) {
      await follow(t, port, [
        [`curl -X PUT http://anna:secret@127.0.0.1:5984/${db}/_security -d '${security}'`, 200, OK],
      ])
    }
    const seen = status === 200 ? /"total_rows":0/ : NOT_MEMBER
    await follow(t, port, [
      [`curl http://127.0.0.1:5984/${db}/_all_docs`, status, seen],
      [`curl http://anna:secret@127.0.0.1:5984/${db}/_all_docs`, 200, /"total_rows":0/],
      // A login must be correct even where none is needed. After five failures, the name is locked out.
      [`curl http://stranger${n}:secret@127.0.0.1:5984/${db}/_all_docs`, 401, WRONG_CREDENTIALS],
      [`curl -X PUT http://127.0.0.1:5984/${db}/_security -d '{}'`, 401, /^\{"error":"unauthorized"/],
    ])
  }
})

t.test('a refused security object changes nothing', async (t) => {
  const { url } = await startTestServer(t)
  const port = Number(new URL(url).port)
  await follow(t, port, [
    ['curl -X PUT http://127.0.0.1:5984/db', 201, OK],
    [`curl -X PUT http://127.0.0.1:5984/db/_security -d '{"admins":{"names":["anna"]}}'`, 200, OK],
    [
      `curl -X PUT http://127.0.0.1:5984/db/_security -d '{"admins":{"names":"anna"}}'`,
      400,
      /^\{"error":"bad_request"/,
    ],
    [`curl -X PUT http://127.0.0.1:5984/db/_security -d '[]'`, 400, /^\{"error":"bad_request"/],
    [`curl -X PUT http://127.0.0.1:5984/db/_security -d 'x'`, 400, /^\{"error":"bad_request"/],
    ['curl http://127.0.0.1:5984/db/_security', 200, '{"admins":{"names":["anna"]}}\n'],
  ])
})

/** Longer than any step takes, except for a feed that does not end; in milliseconds. */
const HEARTBEAT = 20_000

interface OpenFeed {
  /** The output so far. */
  text(): string
  /** Resolves with curl's exit code: 0 if the server has ended the answer correctly. */
  readonly ended: Promise<unknown>
}

/** Runs `curl -N` in a shell, and waits for the feed's first row. */
async function openFeed(t: Test, port: number, kind: string): Promise<OpenFeed> {
  const address = `http://127.0.0.1:5984/my-notes/_changes?feed=${kind}&heartbeat=${HEARTBEAT}`
  const command = atPort(`exec curl -s -N --max-time 60 '${address}'`, port)
  const child = spawn('sh', ['-c', command], { env: cleanEnv(), stdio: ['ignore', 'pipe', 'ignore'] })
  t.teardown(() => child.kill('SIGKILL'))
  let text = ''
  const ended = once(child, 'close').then(([code]) => code)
  const arrived = new Promise<void>((resolve, reject) => {
    child.stdout.setEncoding('utf8').on('data', (more: string) => {
      text += more
      if (text.includes('note:1')) resolve()
    })
    ended.then(() => reject(new Error(`The feed ended at once: ${text}`)), reject)
  })
  await arrived
  return { text: () => text, ended }
}

async function openServer(t: Test): Promise<number> {
  const { url } = await startTestServer(t)
  const port = Number(new URL(url).port)
  await sh('curl -X PUT http://127.0.0.1:5984/my-notes', port)
  await sh(`curl -X PUT http://127.0.0.1:5984/my-notes/note:1 -d '{}'`, port)
  return port
}

/** Runs commands, and expects the feeds to end without the write of the second command. */
async function endAfter(
  t: Test,
  port: number,
  feeds: OpenFeed[],
  commands: readonly string[],
): Promise<void> {
  const since = performance.now()
  for (const command of commands) t.match(await sh(command, port), { status: /^20[01]$/ }, command)
  for (const feed of feeds) {
    t.equal(await feed.ended, 0, 'the feed has ended as it should')
    t.notMatch(feed.text(), 'note:2', 'nothing was told that was written afterwards')
  }
  t.ok(performance.now() - since < HEARTBEAT, 'within one heartbeat')
}

const MAKE_ADMIN = `curl -X PUT http://127.0.0.1:5984/_config/admins/anna -d '"secret"'`
const WRITE = `curl -X PUT http://anna:secret@127.0.0.1:5984/my-notes/note:2 -d '{}'`
const CLOSE = `curl -X PUT http://anna:secret@127.0.0.1:5984/my-notes/_security -d '{"admins":{"names":["anna"]}}'`
const OPEN = `curl -X PUT http://127.0.0.1:5984/my-notes/_security -d '{"members":{"names":[]}}'`

for (const [when, after] of [
  ['and nobody writes', []],
  ['and somebody writes', [WRITE]],
] as const) {
  t.test(`open feeds end within one heartbeat when the first admin is created ${when}`, async (t) => {
    const port = await openServer(t)
    const feeds = await Promise.all(['continuous', 'eventsource'].map((kind) => openFeed(t, port, kind)))
    await endAfter(t, port, feeds, [MAKE_ADMIN, ...after])
  })

  t.test(`open feeds of a public database end within one heartbeat when it is closed ${when}`, async (t) => {
    const port = await openServer(t)
    for (const command of [OPEN, MAKE_ADMIN]) await sh(command, port)
    const feeds = await Promise.all(['continuous', 'eventsource'].map((kind) => openFeed(t, port, kind)))
    await endAfter(t, port, feeds, [CLOSE, ...after])
  })
}

t.test('feeds of a database that stays public continue when the first admin is created', async (t) => {
  const port = await openServer(t)
  await sh(OPEN, port)
  const feed = await openFeed(t, port, 'continuous&limit=2')
  await sh(MAKE_ADMIN, port)
  await sh(`curl -X PUT http://127.0.0.1:5984/my-notes/note:2 -d '{}'`, port)
  t.equal(await feed.ended, 0)
  t.match(feed.text(), 'note:2')
})

const PASSWORD = 'Correct-Horse-Battery'
const WRONG_SECRET = 'Wrong-Donkey-Staple'
const TOKEN = 'eyJhbGciOi.Bearer-Token.Signature'
const COOKIE = 'YW5uYTo2NTVG.Session-Cookie'
const CREDENTIALS = `anna:${PASSWORD}`

/** A line of the log. */
type Line = Readonly<Record<string, unknown>>

interface Logged {
  readonly port: number
  readonly dataDir: string
  readonly child: Child
  /** The output of the process so far. */
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

/** The log lines of requests. Every line of the log must be JSON. */
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

t.test('the level is raised without a restart; then a sync leaves one line per request', async (t) => {
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

t.test('no password, token or cookie is ever logged', async (t) => {
  const logged = await start(t)
  const file = join(logged.dataDir, 'requests.log')
  await setLog(logged, 'level', 'debug')
  await secretCalls(t, logged)
  await setLog(logged, 'file', file)
  await secretCalls(t, logged)
  const log = (await stop(logged)) + (await readFile(file, 'utf8'))
  t.ok(requests(log).length > 20, 'requests were logged')
  const secrets = [PASSWORD, WRONG_SECRET, TOKEN, COOKIE]
  const encoded = [CREDENTIALS, `anna:${WRONG_SECRET}`].map((text) => basic(text).slice('Basic '.length))
  for (const secret of [...secrets, ...encoded, '-pbkdf2']) t.notOk(log.includes(secret), secret)
})

/** Calls with secrets in every possible place. Most are refused. */
async function secretCalls(t: Test, logged: Logged): Promise<void> {
  await sync(t, logged)
  const wrong = { authorization: basic(`anna:${WRONG_SECRET}`) }
  const statuses = [
    await call(logged, 'GET', '/notes', undefined, wrong),
    await call(logged, 'PUT', '/other', undefined, wrong),
    await call(logged, 'GET', '/notes', undefined, { authorization: `Bearer ${TOKEN}` }),
    await call(logged, 'GET', `/notes?token=${TOKEN}`, undefined, { authorization: `Basic ${TOKEN}:` }),
    await call(logged, 'GET', '/notes', undefined, { cookie: `AuthSession=${COOKIE}` }),
    await call(logged, 'PUT', '/_config/admins/bob', JSON.stringify(WRONG_SECRET)),
    await call(logged, 'PUT', '/_config/admins/bob', `"${WRONG_SECRET}`),
    await call(logged, 'DELETE', '/_config/admins/bob'),
    await call(logged, 'PUT', '/_config/chttpd_auth/secret', JSON.stringify(COOKIE)),
    await call(logged, 'GET', `/notes/%zz?password=${PASSWORD}`),
  ].map(({ status }) => status)
  t.same(statuses, [401, 401, 401, 400, 400, 200, 400, 200, 200, 400])
}

t.test('log/file takes effect with the next line, in both directions', async (t) => {
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
