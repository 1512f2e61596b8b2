/** Many continuous pulls from one remote share its connections. */
import t, { type Test } from 'tap'
import { certificateFiles } from '../../helpers/certificates.ts'
import { startTestServer, type TestServer } from '../../helpers/server.ts'

async function pull(puller: TestServer, source: string, names: readonly string[]): Promise<void> {
  for (const name of names) {
    const { status } = await puller.request('POST', '/_replicate', {
      body: { source: `${source}/${name}`, target: name, create_target: true, continuous: true },
    })
    if (status !== 202) throw new Error(`status ${status}`)
  }
}

/** Writes to each database, and waits until all of it has come. */
async function arrives(t: Test, from: TestServer, to: TestServer, names: readonly string[]): Promise<number> {
  const id = `at-${performance.now()}`
  const began = performance.now()
  for (const name of names) t.equal((await from.request('PUT', `/${name}/${id}`, { body: {} })).status, 201)
  for (const name of names) {
    while ((await to.request('GET', `/${name}/${id}`)).status !== 200) {
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
  }
  return performance.now() - began
}

async function opened(server: TestServer): Promise<number> {
  const { text } = await server.request('GET', '/_node/_local/_prometheus')
  const rows = text.matchAll(/^settee_http_connections_total(?:\{.*\})? (\d+)$/gm)
  return [...rows].reduce((sum, [, count]) => sum + Number(count), 0)
}

const names = Array.from({ length: 30 }, (_, n) => `db${n}`)

t.test('over HTTP/1.1 feeds take turns on few connections', { timeout: 60_000 }, async (t) => {
  const source = await startTestServer(t)
  const puller = await startTestServer(t)
  await puller.request('PUT', '/_node/_local/_config/replicator/http_connections', { body: '"5"' })
  for (const name of names) await source.request('PUT', `/${name}`)
  const before = await opened(source)
  await pull(puller, source.url, names)
  await arrives(t, source, puller, names)
  const elapsed = await arrives(t, source, puller, names)
  // 8 requests per second for 30 feeds.
  t.ok(elapsed < 10_000, `${elapsed} ms`)
  const count = (await opened(source)) - before
  t.ok(count <= 30, `${count} connections`)
})

t.test('over HTTP/2 all feeds wait at once on one connection', { timeout: 60_000 }, async (t) => {
  const files = await certificateFiles(t)
  const source = await startTestServer(t, { tls: files })
  const puller = await startTestServer(t)
  await puller.request('PUT', '/_node/_local/_config/replicator/verify_ssl_certificates', { body: '"false"' })
  for (const name of names) await source.request('PUT', `/${name}`)
  const before = await opened(source)
  await pull(puller, source.secureUrl, names)
  await arrives(t, source, puller, names)
  const elapsed = await arrives(t, source, puller, names)
  t.ok(elapsed < 3000, `${elapsed} ms`)
  // One after the other, since a feed that has no place would wait until another has news.
  const waits: number[] = []
  for (const name of names) waits.push(await arrives(t, source, puller, [name]))
  t.ok(Math.max(...waits) < 3000, `${Math.max(...waits)} ms`)
  const count = (await opened(source)) - before
  // 12 for requests, and 1 for feeds; another if the first takes over a second.
  t.ok(count <= 15, `${count} connections`)
  // A stop ends all streams of the connection at once.
  await source.stop()
  await source.start()
  await arrives(t, source, puller, names)
  for (const name of names.slice(-3)) await arrives(t, source, puller, [name])
})
