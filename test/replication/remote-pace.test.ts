/** Pauses that a remote asks for count for everybody; closed connections are replaced at once; answers that drip end. */
import { createServer, type RequestListener, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import type { RemoteOptions } from '../../src/replication/remote/remote-pools.ts'
import { RemoteConnections, type RemoteRequest } from '../../src/replication/remote/remote-requests.ts'

const options: RemoteOptions = {
  mayBePrivate: true,
  proxy: undefined,
  timeoutMs: 5000,
  verifiesCertificates: true,
}
const never = new AbortController().signal

async function serve(t: Test, listener: RequestListener): Promise<URL> {
  const server = createServer(listener)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  return new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`)
}

function get(url: URL, signal = never): RemoteRequest {
  return { method: 'GET', url, headers: {}, signal }
}

function connections(t: Test, max?: number): RemoteConnections {
  const made = new RemoteConnections(max === undefined ? undefined : () => max)
  t.teardown(() => made.close())
  return made
}

t.test('Retry-After of one answer holds up all requests to the server, and can be given up', async (t) => {
  let isBusy = true
  const times: number[] = []
  const url = await serve(t, (_, answer) => {
    times.push(performance.now())
    answer.writeHead(isBusy ? 429 : 200, isBusy ? { 'retry-after': '1' } : {}).end('{}')
    isBusy = false
  })
  const remote = connections(t)
  t.match(await remote.send(get(url), options), { status: 429, retryAfterMs: 1000 })
  const abort = new AbortController()
  const given = remote.send(get(url, abort.signal), options)
  const others = [1, 2, 3].map(() => remote.send(get(new URL('/other', url)), options))
  abort.abort(new Error('given up'))
  await t.rejects(given)
  for (const { status } of await Promise.all(others)) t.equal(status, 200)
  t.equal(times.length, 4)
  for (const time of times.slice(1)) t.ok(time - (times[0] as number) > 950)
})

t.test('a request whose connection ends without an answer is sent once more at once', async (t) => {
  let requests = 0
  const url = await serve(t, (request, answer) => {
    requests += 1
    if (requests === 1 || request.url === '/down') request.socket.destroy()
    else answer.end('{}')
  })
  const remote = connections(t)
  t.equal((await remote.send(get(url), options)).status, 200)
  t.equal(requests, 2)
  await t.rejects(remote.send(get(new URL('/down', url)), options), /could not be reached/)
  t.equal(requests, 4)
})

t.test('a remote gets no more connections than allowed', async (t) => {
  const sockets = new Set<unknown>()
  const waiting: (() => void)[] = []
  const url = await serve(t, (request, answer) => {
    sockets.add(request.socket)
    waiting.push(() => answer.end('{}'))
    // Three connections are for requests, two for feeds.
    if (waiting.length === 3) for (const go of waiting.splice(0)) go()
  })
  const remote = connections(t, 5)
  const answers = Array.from({ length: 9 }, async () => (await remote.send(get(url), options)).text())
  await Promise.all(answers)
  t.equal(sockets.size, 3)
})

t.test(
  'feeds that are given up cost one connection each, and not one for each request after them',
  async (t) => {
    const sockets = new Set<unknown>()
    let waiting = 0
    const { promise: bothWait, resolve } = Promise.withResolvers<void>()
    const url = await serve(t, (request, answer) => {
      sockets.add(request.socket)
      if (request.url !== '/wait') answer.end('{}')
      else if (++waiting === 2) resolve()
    })
    const remote = connections(t, 5)
    const feed = async (path: string, signal?: AbortSignal) =>
      (await remote.send({ ...get(new URL(path, url), signal), isFeed: true }, options)).text()
    const abort = new AbortController()
    const given = [1, 2].map(() => t.rejects(feed('/wait', abort.signal)))
    await bothWait
    const others = [1, 2].map(() => feed('/'))
    abort.abort(new Error('another feed needs the place'))
    await Promise.all([...given, ...others])
    for (let n = 0; n < 20; n++) await feed('/')
    t.equal(sockets.size, 4)
  },
)

t.test('a feed over TLS whose connection fails is a fault of the remote', async (t) => {
  const { port } = await serve(t, (_, answer) => answer.end())
  const url = new URL(`https://127.0.0.1:${port}/db/_changes`)
  const feed = connections(t).send({ ...get(url), isFeed: true }, options)
  await t.rejects(feed, { name: 'PeerError', fault: 'unreachable' })
})

/** The head of a gzip stream, and a block without content. */
const GZIP_HEAD = Buffer.from('1f8b0800000000000003', 'hex')
const EMPTY_BLOCK = Buffer.from('000000ffff', 'hex')

t.test('an answer that drips is given up, in whatever form', async (t) => {
  const gone: Promise<void>[] = []
  const drip = (answer: ServerResponse, chunk: Uint8Array | string) => {
    const timer = setInterval(() => answer.write(chunk), 100)
    const { promise, resolve } = Promise.withResolvers<void>()
    gone.push(promise)
    answer.on('close', () => {
      clearInterval(timer)
      resolve()
    })
  }
  const url = await serve(t, ({ url: path }, answer) => {
    if (path === '/gzip') {
      answer.writeHead(200, { 'content-encoding': 'gzip' }).write(GZIP_HEAD)
      return drip(answer, EMPTY_BLOCK)
    }
    answer.writeHead(path === '/redirect' ? 307 : path === '/error' ? 500 : 200, { location: '/' })
    return drip(answer, ' ')
  })
  const remote = connections(t)
  for (const path of ['/', '/error', '/gzip', '/redirect']) {
    const answer = async () =>
      (await remote.send(get(new URL(path, url)), { ...options, timeoutMs: 500 })).text()
    await t.rejects(answer(), { name: 'PeerError', fault: 'timeout' }, path)
  }
  await Promise.all(gone)
})

t.test('interim answers do not put off the answer for ever', async (t) => {
  const url = await serve(t, ({ url: path }, answer) => {
    for (let n = 0; n < (path === '/few' ? 2 : 100); n++) answer.writeProcessing()
    answer.end('{}')
  })
  const remote = connections(t)
  t.equal((await remote.send(get(new URL('/few', url)), options)).status, 200)
  await t.rejects(remote.send(get(url), options), { name: 'PeerError', fault: 'invalid_answer' })
})
