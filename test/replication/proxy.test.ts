/** Replications through an HTTP proxy. */
import { createServer } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { startTestServer } from '../helpers/server.ts'

/**
 * Tunnels to every address, for one user.
 * @param others where it leads to instead of some addresses
 * @returns its address, and the addresses that were asked for
 */
async function startProxy(
  t: Test,
  credentials: string,
  others: Readonly<Record<string, string>> = {},
): Promise<{ port: number; asked: string[] }> {
  const asked: string[] = []
  const sockets = new Set<Socket>()
  const wanted = `Basic ${Buffer.from(credentials).toString('base64')}`
  const proxy = createServer((_, answer) => answer.writeHead(405).end())
  proxy.on('connect', (request, socket: Socket, head) => {
    asked.push(String(request.url))
    sockets.add(socket)
    socket.on('error', () => socket.destroy())
    if (request.headers['proxy-authorization'] !== wanted) {
      socket.end('HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n')
      return
    }
    const [host, port] = (others[String(request.url)] ?? String(request.url)).split(':')
    const through = connect(Number(port), host, () => {
      socket.write('HTTP/1.1 200 OK\r\n\r\n')
      through.write(head)
      through.pipe(socket).pipe(through)
    })
    through.on('error', () => socket.destroy())
    sockets.add(through)
  })
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve))
  t.teardown(() => {
    for (const socket of sockets) socket.destroy()
    proxy.close()
  })
  return { port: (proxy.address() as AddressInfo).port, asked }
}

t.test('through a proxy, once and continuously', async (t) => {
  const server = await startTestServer(t)
  const { port, asked } = await startProxy(t, 'p:secret')
  await server.request('PUT', '/full')
  await server.request('PUT', '/full/a', { body: {} })
  const replicate = (body: object) => server.request('POST', '/_replicate', { body })
  const ends = { source: `${server.url}/full`, target: 'copy' }
  const proxy = `http://p:secret@127.0.0.1:${port}`
  const { json } = await replicate({ ...ends, proxy, create_target: true })
  t.match(json, { ok: true, history: [{ docs_written: 1 }] })
  t.ok(asked.length > 0)
  t.ok(asked.every((address) => `http://${address}` === server.url))
  t.equal((await replicate({ ...ends, proxy, continuous: true })).status, 202)
  await server.request('PUT', '/full/b', { body: {} })
  while ((await server.request('GET', '/copy/b')).status !== 200) await new Promise(setImmediate)
  const refused = await replicate({ ...ends, proxy: `http://p:no@127.0.0.1:${port}`, retries_per_request: 0 })
  t.match(refused, { status: 500, json: { error: 'replication_failed' } })
  t.notMatch(refused.text, /p:no/)
})

t.test('a server of the internet sends nobody to a private address', async (t) => {
  const server = await startTestServer(t)
  await server.request('PUT', '/full')
  const elsewhere = createServer((request, answer) => {
    answer.writeHead(307, { location: `${server.url}${request.url}` }).end()
  })
  await new Promise<void>((resolve) => elsewhere.listen(0, '127.0.0.1', resolve))
  t.teardown(() => elsewhere.close())
  const here = `127.0.0.1:${(elsewhere.address() as AddressInfo).port}`
  const { port } = await startProxy(t, 'p:secret', { '93.184.216.34:80': here })
  const replicate = (source: string) =>
    server.request('POST', '/_replicate', {
      body: { source, target: 'copy', create_target: true, proxy: `http://p:secret@127.0.0.1:${port}` },
    })
  t.match(await replicate('http://93.184.216.34/full'), {
    status: 403,
    json: { reason: /private addresses/ },
  })
  t.match(await replicate(`http://${here}/full`), { status: 200 }, 'a private one may')
})
