/** One client that asks without end beside one that asks now and then. */
import { connect, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { setAdmin } from '../../src/auth/admins.ts'
import { ClientNetworks } from '../../src/http/transport/connection.ts'
import { startMemoryServer } from './memory-server.ts'

const UP = 'GET /_up HTTP/1.1\r\nHost: localhost\r\n\r\n'
/** 64 kB of them, about what one read takes. */
const MANY = 2000
const CONNECTIONS = 8
const AUTHORIZATION = `Basic ${Buffer.from('anna:secret').toString('base64')}`

/** A server with an admin, so that not everybody is one. */
async function start(t: Test, settings: Record<string, string>) {
  const server = await startMemoryServer(t, settings)
  await setAdmin(server.config, 'anna', 'secret')
  return server
}

interface Client {
  readonly socket: Socket
  answers(): number
}

function open(t: Test, port: number, localAddress: string): Client {
  const socket = connect({ port, host: '127.0.0.1', localAddress })
  t.teardown(() => socket.destroy())
  let count = 0
  socket.on('data', (chunk) => {
    count += chunk.toString('latin1').split('HTTP/1.1 ').length - 1
  })
  socket.on('error', () => undefined)
  return { socket, answers: () => count }
}

async function until(holds: () => boolean): Promise<void> {
  while (!holds()) await sleep(5)
}

t.test('networks', async (t) => {
  const networks = new ClientNetworks()
  for (let at = 0; at < 20_000; at += 1) networks.of(`10.${at >> 16}.${(at >> 8) & 255}.${at & 255}`)
  t.equal(networks.size, 10_000, 'are forgotten when there are too many')
})

t.test('a bucket', async (t) => {
  const network = new ClientNetworks().of('192.0.2.1')
  const taken = (now: number) => {
    let count = 0
    while (network.take(10, now)) count += 1
    return count
  }
  t.equal(taken(1000), 20, 'holds the tokens of two seconds')
  t.equal(taken(1500), 5, 'fills again')
  network.charge()
  t.equal(network.tokens(10, 1500), -1)
  network.refund()
  t.equal(taken(60_000), 20)
})

t.test('pipelined requests without an account wait for tokens', async (t) => {
  const settings = { 'settee/stranger_requests': '100' }
  const { port, app, url } = await start(t, settings)
  let [most, served] = [0, 0]
  app.server.prependListener('request', () => {
    most += 1
  })
  const clients = Array.from({ length: CONNECTIONS }, () => open(t, port, '127.0.0.2'))
  for (const { socket } of clients) socket.write(UP.repeat(MANY))
  const since = performance.now()
  await until(() => {
    served = clients.reduce((sum, { answers }) => sum + answers(), 0)
    return served > 150
  })
  const headers = { authorization: AUTHORIZATION }
  const { status } = await fetch(`${url}/_session`, { headers })
  t.equal(status, 200, 'another network is served meanwhile')
  await sleep(500)
  served = clients.reduce((sum, { answers }) => sum + answers(), 0)
  const seconds = (performance.now() - since) / 1000
  t.ok(served <= 200 + 100 * (seconds + 1), `${served} answers in ${seconds} s`)
  t.ok(most < MANY * 4, `what is not served is not read either: ${most} requests`)
})

t.test('pipelined requests with an account are all answered, in their order', async (t) => {
  const settings = { 'settee/stranger_requests': '1' }
  const { port } = await start(t, settings)
  const { socket } = open(t, port, '127.0.0.2')
  const chunks: Buffer[] = []
  socket.on('data', (chunk: Buffer) => chunks.push(chunk))
  const head = (at: number) =>
    `GET /_session HTTP/1.1\r\nHost: a\r\nX-Couch-Request-ID: r${at}\r\nAuthorization: ${AUTHORIZATION}\r\n\r\n`
  socket.write(head(0))
  await until(() => chunks.length > 0)
  socket.write(Array.from({ length: 500 }, (_, at) => head(at + 1)).join(''))
  const ids = () => [
    ...Buffer.concat(chunks)
      .toString()
      .matchAll(/X-Couch-Request-ID: r(\d+)/gi),
  ]
  await until(() => ids().length === 501)
  t.same(
    ids().map(([, id]) => Number(id)),
    Array.from({ length: 501 }, (_, at) => at),
  )
})

t.test('heads that are refused and preflights take tokens, too', async (t) => {
  const cors = { 'chttpd/enable_cors': 'true', 'cors/origins': '*' }
  const { port, app } = await start(t, { ...cors, 'settee/stranger_requests': '10' })
  const preflight =
    'OPTIONS /db HTTP/1.1\r\nHost: a\r\nOrigin: https://a.example\r\nAccess-Control-Request-Method: PUT\r\n\r\n'
  const client = open(t, port, '127.0.0.2')
  client.socket.write(preflight.repeat(100))
  await until(() => client.answers() >= 15)
  await sleep(200)
  t.ok(client.answers() < 30, `${client.answers()} preflights`)
  for (let at = 0; at < 50; at += 1) open(t, port, '127.0.0.3').socket.write('no HTTP\r\n\r\n')
  await sleep(300)
  t.ok(app.requestTally.invalid < 40, `${app.requestTally.invalid} heads`)
})

t.test('a client behind a trusted proxy has its own tokens', async (t) => {
  const settings = { 'settee/trusted_proxies': '127.0.0.1', 'settee/stranger_requests': '10' }
  const { url } = await start(t, settings)
  const ask = (address: string) =>
    fetch(`${url}/_up`, { headers: { 'x-forwarded-for': address } }).then(({ status }) => status)
  const flood = Array.from({ length: 60 }, () => ask('192.0.2.1'))
  let isOver = false
  void Promise.all(flood).then(() => {
    isOver = true
  })
  t.equal(await ask('192.0.2.2'), 200)
  t.notOk(isOver, 'the other one waits')
  t.same(new Set(await Promise.all(flood)), new Set([200]), 'and is answered')
})

t.test('a network has a share of the connections', async (t) => {
  const { port, url, app } = await start(t, { 'settee/max_network_connections': '10' })
  const slow =
    'POST /_session HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{'
  for (let at = 0; at < 10; at += 1) open(t, port, '127.0.0.2').socket.write(slow)
  await until(() => app.requestTally.counts().underWay === 10)
  const heard: string[] = []
  for (let at = 0; at < 20; at += 1) {
    const { socket } = open(t, port, '127.0.0.2')
    socket.on('data', (chunk: Buffer) => heard.push(chunk.toString()))
    socket.write(slow)
  }
  await until(() => heard.length === 20)
  t.ok(heard.every((text) => /^HTTP\/1.1 503.*settee\/max_network_connections/s.test(text)))
  t.equal((await fetch(`${url}/_up`)).status, 200)
  t.equal((await fetch(`${url}/_session`)).status, 200, 'others have theirs')
})

t.test('a trusted proxy has all of the connections', async (t) => {
  const settings = { 'settee/max_network_connections': '1', 'settee/trusted_proxies': '127.0.0.1' }
  const { port } = await start(t, settings)
  const clients = Array.from({ length: 5 }, () => open(t, port, '127.0.0.1'))
  for (const { socket } of clients) socket.write(UP)
  await until(() => clients.every(({ answers }) => answers() === 1))
  t.pass('it speaks for many')
})
