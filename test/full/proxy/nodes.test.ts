/** Several nodes behind nginx and Caddy with the files of deploy/: where requests go, what is sent again, and a node's end. */
import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import { Agent, request } from 'undici'
import { setAdmin } from '../../../src/auth/admins.ts'
import { type Balancer, caddyOver, nginxOver } from '../../helpers/node-balancers.ts'
import { until } from '../../helpers/until.ts'
import { startMemoryServer } from '../../http/memory-server.ts'
import { SharedMemory } from '../../storage/memory/shared.ts'

const BALANCERS = { nginx: nginxOver, Caddy: caddyOver } as const
const authorization = `Basic ${btoa('boss:secret')}`

/** Two nodes over one state in memory, whose answers name them. */
async function startNodes(t: Test) {
  const shared = new SharedMemory()
  const start = (name: string) =>
    startMemoryServer(
      t,
      { 'settee/trusted_proxies': '127.0.0.1' },
      ({ server }) => {
        server.prependListener('request', (_request, response) => response.setHeader('x-node', name))
      },
      { shared },
    )
  const nodes = [await start('one'), await start('two')] as const
  await setAdmin(nodes[0].config, 'boss', 'secret')
  const ask = (url: string) => fetch(`${url}/_all_dbs`, { headers: { authorization } })
  for (const { url } of nodes) await until(async () => (await ask(url)).status === 200)
  return nodes
}

/** @param keepAlive false: a connection for each request, since nginx closes idle ones when it reloads */
function client(t: Test, { url, ca }: Balancer, keepAlive = true) {
  const dispatcher = new Agent({ connect: { ca }, pipelining: keepAlive ? 1 : 0 })
  t.teardown(() => dispatcher.destroy())
  return async (method: string, path: string, body: string | null = null) => {
    const answer = await request(url + path, {
      method: method as 'GET',
      dispatcher,
      headers: { authorization, ...(body !== null && { 'content-type': 'application/json' }) },
      body,
    })
    const node = String(answer.headers['x-node'])
    return { status: answer.statusCode, node, text: await answer.body.text() }
  }
}

for (const [name, start] of Object.entries(BALANCERS)) {
  t.test(`${name}: a database's requests go to one node, and all nodes work`, async (t) => {
    const nodes = await startNodes(t)
    const call = client(
      t,
      await start(
        t,
        nodes.map(({ url }) => url),
      ),
    )
    const homes = new Set<string>()
    for (let at = 0; at < 16; at++) {
      const answers = [
        await call('PUT', `/db${at}`),
        await call('PUT', `/db${at}/a`, '{}'),
        await call('POST', `/db${at}/_all_docs`, '{}'),
        await call('GET', `/db${at}?x=/y`),
        await call('GET', `/db${at}/_changes`),
        await call('DELETE', `/db${at}`),
      ]
      t.same(
        answers.map(({ status }) => status),
        [201, 201, 200, 200, 200, 200],
      )
      t.equal(new Set(answers.map(({ node }) => node)).size, 1)
      homes.add(answers[0]!.node)
    }
    t.equal(homes.size, 2, 'each node has some of the databases')
    const others = new Set<string>()
    for (let at = 0; at < 40; at++) others.add((await call('GET', '/_session')).node)
    t.equal(others.size, 2, 'sessions go to any node')
  })

  t.test(`${name}: without affinity, requests go to each node in turn`, async (t) => {
    const nodes = await startNodes(t)
    const urls = nodes.map(({ url }) => url)
    const call = client(t, await start(t, urls, { hasAffinity: false }))
    t.equal((await call('PUT', '/db')).status, 201)
    const seen = { one: 0, two: 0 }
    let rev = ''
    for (let at = 0; at < 40; at++) {
      const put = await call('PUT', `/db/a${rev && `?rev=${rev}`}`, '{}')
      t.equal(put.status, 201)
      rev = JSON.parse(put.text).rev
      const got = await call('GET', '/db/a')
      t.equal(JSON.parse(got.text)._rev, rev, 'the next node has what the last one stored')
      seen[got.node as 'one'] += 1
      seen[put.node as 'one'] += 1
    }
    t.ok(Math.min(seen.one, seen.two) >= 20, JSON.stringify(seen))
  })

  t.test(`${name}: a write that a node got is never sent again, and a read is`, async (t) => {
    const received: string[] = []
    let fails = (_method: string) => false
    const startFailing = async () => {
      const server = createServer((request, response: ServerResponse) => {
        request.resume().on('end', () => {
          // Caddy's health check.
          if (request.url === '/_up') {
            response.end('{}')
            return
          }
          received.push(request.method ?? '')
          if (fails(request.method ?? '')) request.socket.destroy()
          else response.end('{}')
        })
      })
      server.listen(0, '127.0.0.1')
      await once(server, 'listening')
      t.teardown(() => server.close())
      return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    }
    const urls = [await startFailing(), await startFailing()]
    for (const method of ['PUT', 'POST', 'DELETE', 'COPY', 'GET']) {
      // A new one, since each node counts as failed for 5 s.
      const call = client(t, await start(t, urls))
      received.length = 0
      let count = 0
      fails = (asked) => asked === method && ++count === 1
      const { status } = await call(method, '/db/a', method === 'PUT' || method === 'POST' ? '{}' : null)
      if (method === 'GET') t.same([status, received], [200, ['GET', 'GET']])
      else t.same([status, received], [502, [method]])
    }
  })

  t.test(`${name}: while a node is gone, the other answers`, async (t) => {
    const nodes = await startNodes(t)
    const urls = nodes.map(({ url }) => url)
    const call = client(t, await start(t, urls))
    for (let at = 0; at < 8; at++) t.equal((await call('PUT', `/db${at}`)).status, 201)
    await nodes[0].app.close()
    const lost: string[] = []
    for (let turn = 0; turn < 10; turn++) {
      for (let at = 0; at < 8; at++) {
        // The first request that meets the closed port is a write. Caddy 2.6 sends none again that has a body.
        if (name === 'Caddy') t.equal((await call('GET', `/db${at}`)).status, 200)
        const { status } = await call('PUT', `/db${at}/doc-${turn}`, '{}')
        if (status !== 201) lost.push(`db${at} ${status}`)
        t.equal((await call('GET', `/db${at}`)).status, 200)
        t.equal((await call('POST', `/db${at}`, '{}')).status, 201)
      }
    }
    t.same(lost, [])
  })
}

t.test('nginx: a node that is marked as down ends without losing a request', async (t) => {
  const nodes = await startNodes(t)
  const nginx = await nginxOver(
    t,
    nodes.map(({ url }) => url),
    { hasAffinity: false },
  )
  const call = client(t, nginx, false)
  t.equal((await call('PUT', '/db')).status, 201)
  const seen: string[] = []
  let isEnded = false
  const writer = async (name: number) => {
    for (let at = 0; !isEnded; at++) {
      const { status, node } = await call('PUT', `/db/${name}-${at}`, '{}')
      seen.push(`${status} ${node}`)
    }
  }
  const writers = [writer(1), writer(2), writer(3)]
  await until(() => seen.includes('201 one') && seen.includes('201 two'))
  await nginx.drain(nodes[0].url)
  // Old workers finish what they have.
  let before = -1
  await until(async () => {
    before = seen.length
    await until(() => seen.length > before + 50)
    return !seen.slice(before).includes('201 one')
  })
  await nodes[0].app.close()
  const count = seen.length
  await until(() => seen.length > count + 50)
  isEnded = true
  await Promise.all(writers)
  t.same([...new Set(seen)].sort(), ['201 one', '201 two'])
})

t.test('Caddy: a node whose /_up is not 200 gets no more requests', async (t) => {
  let isUp = true
  const start = async (name: string, status: () => number) => {
    const server = createServer((request, response) => {
      response.writeHead(request.url === '/_up' ? status() : 200, { 'x-node': name }).end()
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    t.teardown(() => server.close())
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  }
  const urls = [await start('one', () => (isUp ? 200 : 404)), await start('two', () => 200)]
  const call = client(t, await caddyOver(t, urls, { hasAffinity: false }))
  const seen = async () => {
    const nodes = new Set<string>()
    for (let at = 0; at < 10; at++) nodes.add((await call('GET', '/')).node)
    return [...nodes].sort().join()
  }
  t.equal(await seen(), 'one,two')
  isUp = false
  await until(async () => (await seen()) === 'two')
  isUp = true
  await until(async () => (await seen()) === 'one,two')
})
