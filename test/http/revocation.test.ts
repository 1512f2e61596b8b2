/** Rights that are revoked while a request is served. */

import { once } from 'node:events'
import { connect as openSocket, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import type { FastifyReply } from 'fastify'
import t, { type Test } from 'tap'
import { CouchError, type ErrorName } from '../../src/core/errors.ts'
import { ActiveRequests } from '../../src/http/plugins/revocation.ts'
import { startTestServer, type TestServer } from '../helpers/server.ts'
import { until } from '../helpers/until.ts'
import { startAccountsServer } from './accounts-server.ts'
import { type Call, connect } from './client.ts'

/** Requests end when the rights of their callers are revoked, whatever they do; others go on. */
t.test('requests end', async (t) => {
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
    {
      what: 'a password',
      auth: 'v3:v3',
      withdraw: ({ setPassword }) => setPassword('v3', 'new'),
      status: 401,
    },
    {
      what: 'a token',
      auth: 'v4:PHONE',
      withdraw: async ({ tokens }) => tokens.revoke((await tokens.list('v4', '', 1)).tokens[0]?.id ?? ''),
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

  t.test('a revocation ends everything that relied on it, and nothing else', async (t) => {
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

  t.test('a request without an answer yet gets the refusal', async (t) => {
    const server = await start(t)
    let isAsked = false
    const { app } = server
    const { databases } = app.services
    const database = await databases.get('db')
    const original = database.info
    database.info = async (...asked) => {
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

  t.test('a caller who revokes their own rights gets an answer', async (t) => {
    const { call } = await start(t)
    t.equal((await call('DELETE', '/_config/admins/t', { auth: 't:t' })).status, 200)
    const security = { members: { names: ['w'] }, admins: { names: ['w'] } }
    await call('PUT', '/db/_security', {
      auth: 's:s',
      json: { admins: { names: ['v1'] }, members: { names: [] } },
    })
    t.equal((await call('PUT', '/db/_security', { auth: 'v1:v1', json: security })).status, 200)
  })
})

/** Rights that are revoked while a body arrives are checked again in the turn of the write. */
t.test('writes are checked again', async (t) => {
  /** Sends a request without its last byte. @returns sends the last byte, and returns the answer */
  async function hold(
    t: Test,
    url: string,
    [line, body]: readonly [line: string, body: string],
    headers: readonly string[] = [],
  ): Promise<() => Promise<{ readonly status: number; readonly text: string }>> {
    const socket = openSocket(Number(new URL(url).port), '127.0.0.1')
    t.teardown(() => socket.destroy())
    await once(socket, 'connect')
    const heard: Buffer[] = []
    socket.on('data', (chunk) => heard.push(chunk))
    const closed = once(socket, 'close')
    const head = [
      `${line} HTTP/1.1`,
      'Host: localhost',
      'Connection: close',
      'Content-Type: application/json',
      ...headers,
    ]
    socket.write(`${[...head, `Content-Length: ${body.length}`].join('\r\n')}\r\n\r\n${body.slice(0, -1)}`)
    return async () => {
      socket.write(body.slice(-1))
      await closed
      const text = Buffer.concat(heard).toString('latin1')
      return { status: Number(text.split(' ', 2)[1]), text }
    }
  }

  const SET_UP = { action: 'enable_single_node', username: 'm', password: 'm', ensure_dbs_exist: [] }

  const STRANGERS: readonly (readonly [line: string, body: string])[] = [
    ['PUT /_config/admins/m', '"stranger"'],
    ['PUT /_node/_local/_config/admins/m', '"stranger"'],
    ['PUT /_node/_local/_config/jwt_keys/hmac:m', '"c2VjcmV0"'],
    ['POST /_cluster_setup', JSON.stringify(SET_UP)],
    ['PUT /_users/org.couchdb.user:m', '{"name":"m","type":"user","roles":[],"password":"m"}'],
    ['PUT /db/doc', '{"n":1}'],
    ['POST /db/_bulk_docs', '{"docs":[{"_id":"doc"}]}'],
    ['PUT /db/_security', '{"admins":{"names":["m"]},"members":{"names":["m"]}}'],
  ]

  async function adminsOf(server: TestServer, auth: string): Promise<readonly string[]> {
    const { json } = await server.request('GET', '/_node/_local/_config/admins', { auth })
    return Object.keys(json)
  }

  t.test('a request from before the first admin is anonymous once there is one', async (t) => {
    const server = await startTestServer(t)
    await server.request('PUT', '/_node/_local/_config/chttpd_auth/iterations', { body: '"10"' })
    t.equal((await server.request('PUT', '/db')).status, 201)
    const held = await Promise.all(STRANGERS.map((each) => hold(t, server.url, each)))
    // The heads have arrived: this request came after them.
    await sleep(50)
    t.equal((await server.request('PUT', '/_config/admins/anna', { body: '"pw"' })).status, 200)
    const auth = 'anna:pw'
    const security = (await server.request('GET', '/db/_security', { auth })).text
    const answers = await Promise.all(held.map((end) => end()))
    for (const [at, { status }] of answers.entries()) t.equal(status, 401, STRANGERS[at]![0])
    t.strictSame(await adminsOf(server, auth), ['anna'])
    t.equal((await server.request('GET', '/_users/org.couchdb.user:m', { auth })).status, 404)
    t.equal((await server.request('GET', '/db/doc', { auth })).status, 404)
    t.equal((await server.request('GET', '/db/_security', { auth })).text, security)
    t.strictSame((await server.request('GET', '/_config/jwt_keys', { auth })).json, {})
  })

  t.test('of several would-be first admins exactly one succeeds', async (t) => {
    const server = await startTestServer(t)
    const names = Array.from({ length: 8 }, (_, n) => `a${n}`)
    const answers = await Promise.all(
      names.map((name, n) =>
        n % 2 === 0
          ? server.request('PUT', `/_config/admins/${name}`, { body: '"pw"' })
          : server.request('POST', '/_cluster_setup', {
              body: { ...SET_UP, username: name, password: 'pw' },
            }),
      ),
    )
    const winners = names.filter((_, n) => answers[n]!.status < 300)
    t.equal(winners.length, 1)
    for (const { status } of answers) t.ok(status < 300 || status === 401)
    t.strictSame(await adminsOf(server, `${winners[0]}:pw`), winners)
    const [n] = (await server.request('GET', '/_config/cluster', { auth: `${winners[0]}:pw` })).text
    t.ok(n)
  })

  t.test('a script that sends its admin while the server is open goes on as that admin', async (t) => {
    const server = await startTestServer(t)
    const headers = [`Authorization: Basic ${Buffer.from('anna:pw').toString('base64')}`]
    const end = await hold(t, server.url, ['PUT /_config/couchdb/max_dbs_open', '"99"'], headers)
    await sleep(50)
    await server.request('PUT', '/_config/admins/anna', { body: '"pw"' })
    t.equal((await end()).status, 200)
  })

  t.test(
    'a token is not made by a password that was changed meanwhile, nor an admin by one who is none any more',
    async (t) => {
      const server = await startAccountsServer(t, ['v'])
      const call = connect(t, server)
      const basic = (name: string) => [
        `Authorization: Basic ${Buffer.from(`${name}:${name}`).toString('base64')}`,
      ]
      const token = await hold(t, server.url, ['POST /_settee/tokens', '{"name":"phone"}'], basic('v'))
      const admin = await hold(t, server.url, ['PUT /_config/admins/x', '"pw"'], basic('t'))
      await sleep(50)
      await server.setPassword('v', 'new')
      t.equal((await call('DELETE', '/_config/admins/t', { auth: 's:s' })).status, 200)
      t.equal((await token()).status, 401)
      t.equal((await admin()).status, 401)
      t.strictSame((await server.tokens.list('v', '', 1)).tokens, [])
      t.equal(server.config.get('admins', 'x'), undefined)
    },
  )
})

t.test('the list of requests', async (t) => {
  interface Fake {
    readonly request: {
      readonly user: { readonly name: string | null }
      readonly database: { readonly name: string } | null
      readonly isWaitingFeed: boolean
      readonly raw: { readonly socket: { destroyed: boolean } }
    }
  }

  function fake(
    name: string | null,
    database: string | null = null,
    isWaitingFeed = false,
  ): Fake & FastifyReply {
    const request = {
      user: { name },
      database: database === null ? null : { name: database },
      isWaitingFeed,
      raw: { socket: { destroyed: false } },
    }
    return { request } as unknown as Fake & FastifyReply
  }

  /** Notes which are looked at, tick by tick. */
  function start(t: Test, refusals: Readonly<Record<string, ErrorName>> = {}) {
    const seen: string[] = []
    const cuts: string[] = []
    const calls = new ActiveRequests({
      tickMs: 5,
      checkAgain: async ({ user }) => {
        seen.push(String(user.name))
        const refusal = refusals[String(user.name)]
        if (refusal !== undefined) throw new CouchError(refusal)
      },
      cut: ({ user }, _reply, { code }) => {
        cuts.push(`${user.name} ${code}`)
      },
    })
    t.teardown(() => calls.close())
    return { calls, seen, cuts }
  }

  t.test('requests that a revocation concerns are checked twice, not at once', async (t) => {
    const { calls, seen, cuts } = start(t)
    for (const name of ['anna', 'bert', null]) calls.add(fake(name))
    calls.revokeAccounts(new Set(['anna', 'nobody']))
    t.strictSame(seen, [], 'no request is checked at once, so that the one that revokes is answered')
    await until(() => seen.length === 2)
    t.strictSame(seen, ['anna', 'anna'])
    calls.revokeAccounts('all')
    await until(() => seen.length === 8)
    t.strictSame(seen.slice(2).sort(), ['anna', 'anna', 'bert', 'bert', 'null', 'null'])
    t.strictSame(cuts, [])
  })

  t.test('a database concerns all its requests', async (t) => {
    const { calls, seen } = start(t)
    calls.add(fake('anna', 'notes'))
    calls.add(fake('bert', 'other'))
    calls.add(fake('carl'))
    calls.revokeDatabase('notes')
    await until(() => seen.length === 2)
    t.strictSame(seen, ['anna', 'anna'])
  })

  t.test('a refusal ends a request, an unknown result only at the second check', async (t) => {
    const refusals = {
      anna: 'wrong_credentials',
      bert: 'forbidden',
      carl: 'unavailable',
      dora: 'no_database',
      emil: 'bad_request',
    } as const
    const { calls, cuts } = start(t, refusals)
    const replies = Object.keys(refusals).map((name) => fake(name))
    for (const reply of replies) calls.add(reply)
    calls.revokeAccounts('all')
    await until(() => cuts.length >= 3)
    t.strictSame(cuts, ['anna wrong_credentials', 'bert forbidden', 'emil bad_request'])
    for (const at of [0, 1, 4]) replies[at]!.request.active!.remove()
    await until(() => cuts.length > 3)
    t.strictSame(cuts.slice(3), ['carl unavailable'])
  })

  t.test('a waiting feed is checked in the second round only', async (t) => {
    const { calls, seen } = start(t)
    calls.add(fake('feed', 'notes', true))
    calls.add(fake('upload', 'notes'))
    calls.revokeDatabase('notes')
    await until(() => seen.length === 3)
    t.strictSame([seen[0], ...seen.slice(1).sort()], ['upload', 'feed', 'upload'])
  })

  t.test('ended requests are not kept', async (t) => {
    const { calls } = start(t)
    const reply = fake('anna')
    calls.add(reply)
    t.equal(calls.size, 1)
    reply.request.active!.remove()
    t.equal(calls.size, 0)
    // Of a connection that went while the answer waited behind another, nobody tells.
    for (let at = 0; at < 5000; at++) {
      const lost = fake('anna')
      lost.request.raw.socket.destroyed = true
      calls.add(lost)
    }
    t.ok(calls.size < 4096, String(calls.size))
  })
})
