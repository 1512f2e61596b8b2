/** What ends requests from our side, over HTTP/2 and a whole server: a right that is withdrawn, and the server's stop. */
import type { OutgoingHttpHeaders } from 'node:http2'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { listenSecurely } from '../../src/http/transport/secure-listener.ts'
import { certificateFiles } from '../helpers/certificates.ts'
import { startTestServer } from '../helpers/server.ts'
import { startAccountsServer } from './accounts-server.ts'
import { connect } from './client.ts'
import { openSession, type Session, type Stream } from './http2-client.ts'

const MB = 1024 * 1024
const LARGE = 6 * MB
const FEED = '/db/_changes?since=now&feed='

/** Requests that last, each on a stream of one connection. */
const KINDS = {
  continuous: [`GET ${FEED}continuous&heartbeat=100`, 'feed'],
  longpoll: [`GET ${FEED}longpoll`, 'feed'],
  eventsource: [`GET ${FEED}eventsource`, 'feed'],
  'slow feed': ['GET /db/_changes?include_docs=true', 'slow'],
  download: ['GET /db/file/large', 'slow'],
  upload: ['PUT /db/new/file', 'writer'],
  bulk: ['POST /db/_bulk_docs', 'writer'],
} as const
type Kind = keyof typeof KINDS

const basic = (auth: string) => `Basic ${Buffer.from(auth).toString('base64')}`

/** Begins one; its reader takes nothing after the head, or its writer goes on writing. */
function last(t: Test, { open }: Session, kind: Kind, auth: string): Stream {
  const [line, role] = KINDS[kind]
  const [method, path] = line.split(' ')
  const headers: OutgoingHttpHeaders = { ':method': method, ':path': path, authorization: basic(auth) }
  if (kind === 'bulk') headers['content-type'] = 'application/json'
  const opened = open(headers, role !== 'writer')
  const { stream } = opened
  if (role === 'slow') stream.pause()
  if (role !== 'writer') return opened
  stream.write('{"docs":[')
  const pace = setInterval(() => stream.writable && stream.write(' '), 50)
  stream.once('close', () => clearInterval(pace))
  t.teardown(() => clearInterval(pace))
  return opened
}

function lastAll(t: Test, session: Session, auth: string): Map<Kind, Stream> {
  const kinds = Object.keys(KINDS) as Kind[]
  return new Map(kinds.map((kind) => [kind, last(t, session, kind, auth)]))
}

const playing = (streams: Map<Kind, Stream>, role: string) =>
  [...streams].filter(([kind]) => KINDS[kind][1] === role)

async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await sleep(10)
}

t.test('a right that is withdrawn ends its own streams, and no others of the connection', async (t) => {
  const { app, config, remove, lines, ...server } = await startAccountsServer(t, ['v', 'w'])
  const call = connect(t, server)
  await call('PUT', '/db', { auth: 's:s' })
  await call('PUT', '/db/_security', { auth: 's:s', json: { members: { names: ['v', 'w'] } } })
  await call('PUT', '/db/file/large', { auth: 's:s', body: Buffer.alloc(LARGE, 'settee ') })
  await call('PUT', '/db/long', { auth: 's:s', json: { text: 'settee '.repeat(MB / 7) } })
  const tls = await certificateFiles(t)
  await config.set('ssl', 'cert_file', tls.certFile)
  await config.set('ssl', 'key_file', tls.keyFile)
  const secure = await listenSecurely(app, { host: '127.0.0.1', port: 0 })
  t.teardown(() => secure.close())
  const session = await openSession(t, secure.url, tls.cert)
  const [victims, others] = [lastAll(t, session, 'v:v'), lastAll(t, session, 'w:w')]
  await until(() => app.requestTally.counts().underWay === victims.size + others.size)
  for (const [, { until: has }] of playing(victims, 'feed')) await has(/\n/)
  remove('v')
  for (const [kind, { heard }] of playing(victims, 'feed')) {
    t.match(await heard, { status: 200, isWhole: true }, `${kind} ends in order`)
  }
  for (const [kind, { stream, heard }] of playing(victims, 'slow')) {
    await until(() => stream.destroyed || stream.rstCode !== 0)
    t.match(await heard, { isWhole: false }, `${kind} is cut`)
  }
  for (const [kind, { heard }] of playing(victims, 'writer')) {
    t.match(await heard, { status: 401, isWhole: true, json: { error: 'unauthorized' } }, kind)
  }
  for (const [kind, { stream }] of others) t.notOk(stream.closed, `${kind} of another goes on`)
  await call('PUT', '/db/marked', { auth: 'w:w', body: '{}' })
  for (const [, { until: has }] of playing(others, 'feed')) await has(/"marked"/)
  t.match(await session.ask('GET /db/new', { headers: { authorization: basic('w:w') } }), { status: 404 })
  const cuts = lines.filter((line) => line.includes('the rights of its caller were revoked'))
  t.ok(cuts.length >= 4)
  session.session.destroy()
})

t.test('a server that is stopped', async (t) => {
  const tls = await certificateFiles(t)
  const env = { COUCHDB_USER: 'anna', COUCHDB_PASSWORD: 'secret' }
  const server = await startTestServer(t, { tls, env })
  const auth = 'anna:secret'
  await server.request('PUT', '/db', { auth })
  await server.request('PUT', '/db/file/large', { auth, body: Buffer.alloc(LARGE, 'settee ') })
  const idle = await openSession(t, server.secureUrl, tls.cert)
  const session = await openSession(t, server.secureUrl, tls.cert)
  const streams = lastAll(t, session, auth)
  const { stream, heard } = session.open({ ':path': '/db/file/large', authorization: basic(auth) })
  await streams.get('continuous')?.until(/\n\n/)
  const gone = [idle, session].map(
    (each) => new Promise((resolve) => each.session.once('close', () => resolve(each))),
  )
  const closing = server.close()
  for (const [kind, feed] of playing(streams, 'feed')) {
    t.match(await feed.heard, { status: 200, isWhole: true }, `${kind} ends in order`)
  }
  t.match((await streams.get('longpoll')?.heard)?.json, { results: [], last_seq: /^\d+-/ })
  stream.resume()
  t.match(await heard, { status: 200, isWhole: true }, 'a download that is taken comes to its end')
  for (const [kind, writer] of playing(streams, 'writer')) {
    t.match(await writer.heard, { isWhole: false }, `${kind} is cut when its time is over`)
  }
  await closing
  await Promise.all(gone)
  t.pass('no connection is left')
})
