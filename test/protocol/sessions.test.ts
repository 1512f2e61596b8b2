/** Sessions, lockouts and their log on a whole server: feeds by cookie, and what fail2ban reads. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import nano from 'nano'
import t, { type Test } from 'tap'
import { Agent, request } from 'undici'
import { sealSession } from '../../src/auth/sessions.ts'
import { startTestServer, type TestServer, temporaryFolder } from '../helpers/server.ts'
import { until } from './devices.ts'

async function start(t: Test, options: Parameters<typeof startTestServer>[1] = {}): Promise<TestServer> {
  const server = await startTestServer(t, options)
  const set = (key: string, value: string) =>
    server.request('PUT', `/_node/_local/_config/${key}`, { body: JSON.stringify(value) })
  await set('chttpd_auth/iterations', '10')
  await set('admins/s', 'secret-of-s')
  await server.request('PUT', '/db', { auth: 's:secret-of-s' })
  return server
}

async function logIn(server: TestServer): Promise<string> {
  const body = { username: 's', password: 'secret-of-s' }
  const { headers } = await server.request('POST', '/_session', { body })
  return String(headers['set-cookie']).split(';', 1)[0] ?? ''
}

/** A feed, and what has come of it. */
async function openFeed(
  t: Test,
  server: TestServer,
  headers: Record<string, string>,
  path = '/db/_changes?feed=continuous&heartbeat=100',
) {
  const agent = new Agent()
  t.teardown(() => agent.destroy())
  const answer = await request(server.url + path, { dispatcher: agent, headers })
  const { statusCode, body } = answer
  const feed = { statusCode, headers: answer.headers, text: '', hasEnded: false }
  body.on('data', (chunk) => {
    feed.text += String(chunk)
  })
  for (const event of ['end', 'error', 'close']) {
    body.on(event, () => {
      feed.hasEnded = true
    })
  }
  return feed
}

t.test('a feed outlives its cookie, but not its session', async (t) => {
  const server = await start(t, { env: { COUCHDB_SECRET: 'known' } })
  const auth = 's:secret-of-s'
  const { json: hash } = await server.request('GET', '/_node/_local/_config/admins/s', { auth })
  const salt = String(hash).split(',')[1] ?? ''
  const seconds = Math.floor(Date.now() / 1000) - 595
  const cookie = `AuthSession=${sealSession('s', seconds.toString(16).toUpperCase(), `known${salt}`, 'sha256')}`
  const feed = await openFeed(t, server, { cookie })
  t.equal(feed.statusCode, 200)
  const renewed = String(feed.headers['set-cookie']).split(';', 1)[0] ?? ''
  t.match(renewed, /^AuthSession=[\w-]{20,}$/, 'its head renews the session')
  await until('its own cookie has run out', async () => {
    const { status } = await server.request('GET', '/db', { headers: { cookie } })
    return status === 401
  })
  // Whoever may come in has changed: each feed looks at its caller again.
  await server.request('PUT', '/_node/_local/_config/admins/other', { auth, body: '"x"' })
  await server.request('PUT', '/db/doc', { auth, body: '{}' })
  await until('a change comes', () => feed.text.includes('"id":"doc"'))
  t.notOk(feed.hasEnded)
  await server.request('DELETE', '/_session', { headers: { cookie: renewed } })
  await until('the feed ends with the session', () => feed.hasEnded)
})

t.test('each kind of feed ends when its session does; those of others go on', async (t) => {
  const server = await start(t)
  const [mine, other] = [await logIn(server), await logIn(server)]
  const paths = ['continuous', 'eventsource', 'longpoll'].flatMap((kind) =>
    ['/db/_changes', '/_db_updates'].map(
      (path) => `${path}?feed=${kind}&since=now&heartbeat=100&timeout=60000`,
    ),
  )
  const feeds = await Promise.all(paths.map((path) => openFeed(t, server, { cookie: mine }, path)))
  const theirs = await openFeed(t, server, { cookie: other })
  t.ok(feeds.every(({ statusCode }) => statusCode === 200))
  await server.request('DELETE', '/_session', { headers: { cookie: mine } })
  await until('they have ended', () => feeds.every(({ hasEnded }) => hasEnded))
  t.notOk(theirs.hasEnded)
})

t.test('a feed whose password has changed ends, and counts for no lockout', async (t) => {
  const server = await start(t)
  const auth = 's:secret-of-s'
  const authorization = `Basic ${Buffer.from(auth).toString('base64')}`
  const feeds = await Promise.all(Array.from({ length: 10 }, () => openFeed(t, server, { authorization })))
  await server.request('PUT', '/_node/_local/_config/admins/s', { auth, body: '"another"' })
  await until('they have ended', () => feeds.every(({ hasEnded }) => hasEnded))
  t.equal((await server.request('GET', '/db', { auth: 's:another' })).status, 200)
})

t.test('nano logs in with a cookie', async (t) => {
  const server = await start(t)
  const couch = nano({ url: server.url })
  const login = await couch.auth('s', 'secret-of-s')
  t.match(login, { ok: true, name: 's', roles: ['_admin'] })
  t.match(await couch.session(), { userCtx: { name: 's' } })
  t.match(await couch.use('db').insert({}, 'by-cookie'), { ok: true })
})

t.test('the filter of docs/operating.md finds every failed login, and its address', async (t) => {
  const logFile = join(await temporaryFolder(t), 'settee.log')
  const server = await start(t, { logFile, logLevel: 'info' })
  const names = ['s', 'x","address":"192.0.2.9","account":"', '"msg":"a login failed"}', '1.2.3.4', 'é漢']
  for (const name of names) {
    for (let guess = 0; guess < 6; guess++) {
      const body = { name, password: `wrong-${guess}` }
      const { status } = await server.request('POST', '/_session', { body })
      t.equal(status, guess < 5 ? 401 : 403)
    }
  }
  await server.close()
  const page = await readFile(new URL('../../docs/operating.md', import.meta.url), 'utf8')
  const pattern = /^failregex = (.*)$/m.exec(page)?.[1] ?? ''
  const filter = new RegExp(pattern.replace('<ADDR>', '(?<address>[0-9a-f.:]+)'))
  const lines = (await readFile(logFile, 'utf8')).trim().split('\n')
  const found = lines.flatMap((line) => {
    // fail2ban takes the date out before it looks.
    const undated = line.replace(/"time":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d/, '')
    return filter.exec(undated)?.groups?.address ?? []
  })
  t.equal(found.length, names.length * 5)
  t.strictSame([...new Set(found)], ['127.0.0.1'])
  t.notOk(lines.some((line) => line.includes('wrong-')))
})
