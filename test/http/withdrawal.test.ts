/** What was let in ends when what let it in is withdrawn, whatever it does; what others do goes on. */
import { connect as openSocket, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { startAccountsServer } from './accounts-server.ts'
import { type Call, connect } from './client.ts'

const MB = 1024 * 1024
const LARGE = 24 * MB

type Server = Awaited<ReturnType<typeof startAccountsServer>> & { readonly call: Call }

/** A request that lasts. */
interface Lasting {
  readonly socket: Socket
  readonly ended: Promise<string>
  isOpen(): boolean
  text(): string
}

const COOKIE = 'AuthSession='

type Kind = 'continuous' | 'longpoll' | 'eventsource' | 'slow feed' | 'download' | 'upload' | 'bulk'

const FEED = 'GET /db/_changes?since=now&heartbeat=1000&feed='
const HEADS: Readonly<Record<Kind, string>> = {
  continuous: `${FEED}continuous`,
  longpoll: `${FEED}longpoll`,
  eventsource: `${FEED}eventsource`,
  'slow feed': 'GET /db/_changes?include_docs=true',
  download: 'GET /db/file/large',
  upload: 'PUT /db/new/file',
  bulk: 'POST /db/_bulk_docs',
}
const KINDS = Object.keys(HEADS) as Kind[]

/** Begins one, and keeps it going: readers read little at a time, and writers write little at a time. */
function last(t: Test, { port }: Server, kind: Kind, auth: string): Lasting {
  const socket = openSocket(port, '127.0.0.1')
  const chunks: Buffer[] = []
  let isOpen = true
  const credentials = auth.startsWith(COOKIE)
    ? `Cookie: ${auth}`
    : `Authorization: Basic ${Buffer.from(auth).toString('base64')}`
  const writes = kind === 'upload' || kind === 'bulk'
  const body = writes ? `Content-Type: application/json\r\nContent-Length: ${LARGE}\r\n` : ''
  socket.write(
    `${HEADS[kind]} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n${credentials}\r\n${body}\r\n${writes ? '{"docs":[' : ''}`,
  )
  const pace = setInterval(() => {
    if (writes && socket.writable) socket.write(' ')
    socket.resume()
  }, 100)
  socket.on('data', (chunk) => {
    chunks.push(chunk)
    if (kind === 'slow feed' || kind === 'download') socket.pause()
  })
  socket.on('error', () => {})
  const text = () => Buffer.concat(chunks).toString('latin1')
  const ended = new Promise<string>((resolve) => {
    socket.on('close', () => {
      isOpen = false
      clearInterval(pace)
      resolve(text())
    })
  })
  t.teardown(() => socket.destroy())
  return { socket, ended, isOpen: () => isOpen, text }
}

async function lastAll(t: Test, server: Server, auth: string): Promise<Map<Kind, Lasting>> {
  const lasting = new Map(KINDS.map((kind) => [kind, last(t, server, kind, auth)]))
  for (const kind of ['continuous', 'longpoll', 'eventsource', 'slow feed', 'download'] as const) {
    await until(() => lasting.get(kind)!.text().includes('HTTP/1.1 200'))
  }
  return lasting
}

/** Waits until it holds; the test's own time-out ends a wait for nothing. */
async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await sleep(10)
}

const VICTIMS = ['v1', 'v2', 'v3', 'v4', 'v5'] as const

/** A server with a database of 24 MB, whose members are `w` and five others. */
async function start(t: Test): Promise<Server> {
  const server = await startAccountsServer(t, [...VICTIMS, 'w'])
  const call = connect(t, server)
  const auth = 's:s'
  await call('PUT', '/db', { auth })
  await call('PUT', '/db/_security', { auth, json: { members: { names: [...VICTIMS, 'w'] } } })
  const text = 'settee '.repeat(MB / 7)
  for (let at = 0; at < 12; at++) {
    await call('POST', '/db/_bulk_docs', { auth, json: { docs: [{ text }, { text }] } })
  }
  await call('PUT', '/db/file/large', { auth, body: Buffer.alloc(LARGE, 'settee ') })
  return { ...server, call }
}

interface Withdrawal {
  readonly what: string
  /** The credentials of who loses something; PHONE stands for a token's secret, SESSION for a cookie. */
  readonly auth: string
  withdraw(server: Server, auth: string): Promise<unknown>
  /** What an upload under way is answered with. */
  readonly status: number
}

const WITHDRAWALS: readonly Withdrawal[] = [
  { what: 'an account', auth: 'v2:v2', withdraw: async ({ remove }) => remove('v2'), status: 401 },
  { what: 'a password', auth: 'v3:v3', withdraw: ({ setPassword }) => setPassword('v3', 'new'), status: 401 },
  {
    what: 'a token',
    auth: 'v4:PHONE',
    withdraw: ({ tokens }) => tokens.revoke(tokens.list('v4')[0]?.id ?? ''),
    status: 401,
  },
  {
    what: 'a session',
    auth: 'SESSION',
    withdraw: ({ call }, cookie) => call('DELETE', '/_session', { headers: { cookie } }),
    status: 401,
  },
  {
    what: 'an admin',
    auth: 't:t',
    withdraw: ({ call }) => call('DELETE', '/_config/admins/t', { auth: 's:s' }),
    status: 401,
  },
  // The last, since it has everybody's requests looked at: another's feed might be cut before it hears of its own end.
  {
    what: 'membership',
    auth: 'v1:v1',
    withdraw: ({ call }) =>
      call('PUT', '/db/_security', {
        auth: 's:s',
        json: { members: { names: [...VICTIMS.filter((name) => name !== 'v1'), 'w'] } },
      }),
    status: 403,
  },
]

/** @returns the cookie of a new session */
async function logIn({ call }: Server): Promise<string> {
  const { headers } = await call('POST', '/_session', { json: { name: 'v5', password: 'v5' } })
  return String(headers['set-cookie']).split(';', 1)[0]!
}

t.test('everything ends that was let in by what is withdrawn, and nothing else', async (t) => {
  const server = await start(t)
  const { secret } = await server.tokens.make({ account: 'v4', name: 'phone', isAdmin: false })
  const others = await lastAll(t, server, 'w:w')
  // Another device of the account whose token goes, and of the one whose session does.
  const siblings = [
    last(t, server, 'continuous', 'v4:v4'),
    last(t, server, 'continuous', await logIn(server)),
  ]
  const session = await logIn(server)
  const auths = WITHDRAWALS.map(({ auth }) => auth.replace('PHONE', secret).replace('SESSION', session))
  const lasting = await Promise.all(auths.map((auth) => lastAll(t, server, auth)))
  for (const [at, { withdraw }] of WITHDRAWALS.entries()) await withdraw(server, auths[at]!)
  for (const [at, { what, status }] of WITHDRAWALS.entries()) {
    const texts = new Map<Kind, string>()
    for (const kind of KINDS) texts.set(kind, await lasting[at]!.get(kind)!.ended)
    for (const kind of ['continuous', 'longpoll', 'eventsource'] as const) {
      t.match(texts.get(kind), /0\r\n\r\n$/, `${what}: ${kind} ends in order`)
    }
    t.notMatch(texts.get('slow feed'), /0\r\n\r\n$/, `${what}: the slow feed is cut`)
    t.ok((texts.get('download')?.length ?? 0) < LARGE, `${what}: the download is cut`)
    for (const kind of ['upload', 'bulk'] as const) {
      t.match(texts.get(kind), new RegExp(`^HTTP/1.1 ${status} `), `${what}: ${kind} is refused`)
      t.match(texts.get(kind), status === 401 ? '"error":"unauthorized"' : '"error":"forbidden"')
    }
  }
  for (const [kind, other] of others) t.ok(other.isOpen(), `${kind} of another goes on`)
  for (const sibling of siblings) t.ok(sibling.isOpen(), 'another device goes on')
  t.equal((await server.call('PUT', '/db/marked', { auth: 'w:w', body: '{}' })).status, 201)
  for (const kind of ['continuous', 'eventsource', 'longpoll'] as const) {
    await until(() => others.get(kind)!.text().includes('"marked"'))
  }
  t.equal(
    (await server.call('GET', '/db/new', { auth: 'w:w' })).status,
    404,
    'nothing of the uploads is kept',
  )
  const cuts = server.lines.filter((line) => line.includes('the rights of its caller were revoked'))
  t.ok(cuts.length >= 3 * WITHDRAWALS.length, 'one line for each that did not end in order')
})

t.test('a request that waits for its answer is answered with the refusal', async (t) => {
  const server = await start(t)
  let isAsked = false
  const { app } = server
  const { databases } = app.services
  const original = databases.get('db').info
  databases.get('db').info = async (...asked) => {
    isAsked = true
    await sleep(60_000, undefined, { ref: false })
    return original(...asked)
  }
  const headers = { origin: 'app://obsidian.md' }
  const asked = [server.call('GET', '/db', { auth: 'v1:v1', headers })]
  await until(() => isAsked)
  server.remove('v1')
  for (const answer of await Promise.all(asked)) {
    t.equal(answer.status, 401)
    t.match(answer.headers, {
      'access-control-allow-origin': headers.origin,
      'x-couch-request-id': String,
      server: /CouchDB/,
      connection: 'close',
    })
    t.match(answer.json, { error: 'unauthorized', reason: 'Name or password is incorrect.' })
  }
})

t.test('who withdraws from himself is answered', async (t) => {
  const { call } = await start(t)
  t.equal((await call('DELETE', '/_config/admins/t', { auth: 't:t' })).status, 200)
  const security = { members: { names: ['w'] }, admins: { names: ['w'] } }
  await call('PUT', '/db/_security', {
    auth: 's:s',
    json: { admins: { names: ['v1'] }, members: { names: [] } },
  })
  t.equal((await call('PUT', '/db/_security', { auth: 'v1:v1', json: security })).status, 200)
})
