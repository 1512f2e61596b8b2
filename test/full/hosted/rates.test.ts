/** Rate limits of a listening server: a flood is delayed, and only the excess is refused. */
import { once } from 'node:events'
import { connect as netConnect } from 'node:net'
import t, { type Test } from 'tap'
import { Agent, request } from 'undici'
import { until } from '../../helpers/until.ts'
import { startHostedServer } from '../../hosted/hosted-server.ts'
import { connect } from '../../http/client.ts'
import { device, liveSync, remote } from '../../protocol/devices.ts'

const ANNA = { auth: 'anna:anna' }
const BERT = { auth: 'bert:bert' }
const ROOT = { auth: 'root:root' }

async function startWithNotes(t: Test, settings: Record<string, string>) {
  const server = await startHostedServer(t, settings)
  const call = connect(t, server)
  await call('PUT', '/notes', ANNA)
  await call('PUT', '/notes/doc', { ...ANNA, body: '{}' })
  const agent = new Agent({ connections: 500 })
  t.teardown(() => agent.destroy())
  /** Sends this many requests at once. @returns the answers in any order */
  const flood = (times: number, path: string, body?: object, auth: string | null = 'anna:anna') =>
    Promise.all(
      Array.from({ length: times }, async () => {
        const {
          statusCode,
          headers,
          body: answer,
        } = await request(server.url + path, {
          dispatcher: agent,
          method: body === undefined ? 'GET' : 'POST',
          headers: {
            ...(auth !== null && { authorization: `Basic ${Buffer.from(auth).toString('base64')}` }),
            ...(body !== undefined && { 'content-type': 'application/json' }),
          },
          body: body === undefined ? null : JSON.stringify(body),
        })
        return { status: statusCode, headers, text: await answer.text() }
      }),
    )
  return { ...server, call, flood }
}

t.test('requests above the rate are delayed, and answered', async (t) => {
  const { flood } = await startWithNotes(t, { 'quota/requests': '20' })
  const answers = await flood(130, '/notes/doc')
  t.ok(answers.every(({ status }) => status === 200))
})

t.test('a flood is refused with Retry-After, and does not affect another tenant', async (t) => {
  const { flood, call } = await startWithNotes(t, { 'quota/requests': '60' })
  const flooding = flood(1000, '/notes/doc')
  const quiet = await call('GET', '/_settee/account', BERT)
  t.match(quiet, { status: 404 }, 'answered, though there is no such account')
  const answers = await flooding
  const refused = answers.filter(({ status }) => status === 429)
  t.ok(refused.length > 50 && refused.length < 800, `${refused.length} refused`)
  t.ok(answers.every(({ status }) => status === 200 || status === 429))
  for (const { headers, text } of refused.slice(0, 5)) {
    t.ok(Number(headers['retry-after']) >= 1)
    t.match(JSON.parse(text), { error: 'too_many_requests', reason: /60 a second/ })
  }
})

t.test('_bulk_get and _local are never refused', async (t) => {
  const { flood } = await startWithNotes(t, { 'quota/requests': '100' })
  const others = flood(450, '/notes/doc')
  const bulks = flood(200, '/notes/_bulk_get', { docs: [{ id: 'doc' }] })
  const locals = flood(100, '/notes/_local/none')
  const encoded = flood(100, '/notes/_local%2Fnone')
  t.ok((await bulks).every(({ status }) => status === 200))
  t.ok([...(await locals), ...(await encoded)].every(({ status }) => status === 404))
  await others
})

t.test('admins and _up have no rate limit', async (t) => {
  const { flood } = await startWithNotes(t, { 'quota/requests': '1' })
  t.ok((await flood(300, '/notes/doc', undefined, 'root:root')).every(({ status }) => status === 200))
  t.ok((await flood(100, '/_up')).every(({ status }) => status === 200))
})

t.test('an address without logins has a rate limit of its own', async (t) => {
  const { flood, call } = await startWithNotes(t, { 'quota/requests': '20' })
  const statuses = (await flood(1000, '/notes/doc', undefined, null)).map(({ status }) => status)
  t.ok(statuses.includes(429), 'refused before anybody asks who it is')
  t.ok(statuses.includes(401))
  t.equal((await call('GET', '/notes/doc', BERT)).status, 404, 'an account is not')
})

t.test('a client that leaves during a pipeline leaves no work behind', async (t) => {
  const { url, call } = await startWithNotes(t, { 'quota/requests': '1000' })
  const authorization = `Basic ${Buffer.from('anna:anna').toString('base64')}`
  const head = `Host: x\r\nAuthorization: ${authorization}\r\n\r\n`
  for (let round = 0; round < 10; round++) {
    const socket = netConnect(Number(new URL(url).port), '127.0.0.1')
    await once(socket, 'connect')
    // The first request takes long, so the others wait for their turn on the connection.
    const feed = `GET /notes/_changes?feed=longpoll&since=now HTTP/1.1\r\n${head}`
    const one = `GET /notes/doc HTTP/1.1\r\n${head}`
    socket.write(feed + one.repeat(10))
    await once(socket, 'data')
    socket.destroy()
    await once(socket, 'close')
  }
  await until('all have left', async () => (await call('GET', '/notes/doc', ANNA)).status === 200)
})

t.test('live syncs above the number of feeds take turns, and none breaks', async (t) => {
  const { url, call, hosted } = await startWithNotes(t, { 'quota/feeds': '2' })
  const there = () => remote(`${url.replace('://', '://anna:anna@')}/notes`)
  const devices = await Promise.all([device(t), device(t), device(t)])
  const syncs = devices.map((local) => liveSync(t, local, there().db))
  await until('two of them wait for news', () => hosted.feeds.count('anna') === 2)
  await call('PUT', '/notes/news', { ...ANNA, body: '{}' })
  await until('all have heard', async () => {
    const counts = await Promise.all(devices.map(async (local) => (await local.info()).doc_count))
    return counts.every((count) => count === 2)
  })
  t.ok(hosted.feeds.count('anna') <= 2)
  t.same(
    syncs.flatMap(({ errors }) => errors),
    [],
  )
  t.match((await call('GET', '/_settee/accounts', ROOT)).json, {
    accounts: [{ name: 'anna', usage: { databases: 1 } }],
  })
})
