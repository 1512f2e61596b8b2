/** Behind Caddy with deploy/Caddyfile, but with our own certificate. */
import t from 'tap'
import { Agent, request } from 'undici'
import { freePort } from '../../cli/child.ts'
import { look, onlyWrong } from '../../doctor/looking.ts'
import { certificateFiles } from '../../helpers/certificates.ts'
import { runCaddy } from '../../helpers/node-balancers.ts'
import { startTestServer } from '../../helpers/server.ts'
import { device, liveSync } from '../../protocol/devices.ts'
import { editInTurns, overHttp1, overHttp2, secureRemote } from '../../proxy/secure-devices.ts'

const DEPLOYED = new URL('../../../deploy/Caddyfile', import.meta.url)

t.test('live sync behind Caddy, by HTTP/1.1 and by HTTP/2', async (t) => {
  const server = await startTestServer(t)
  await server.request('PUT', '/_node/_local/_config/settee/trusted_proxies', { body: '"127.0.0.1"' })
  await server.request('PUT', '/db')
  const [port, tls] = [await freePort(), await certificateFiles(t)]
  await runCaddy(t, port, {
    file: DEPLOYED,
    edit: (text) => text.replace('\treverse_proxy', `\ttls ${tls.certFile} ${tls.keyFile}\n\treverse_proxy`),
    env: { SETTEE_UPSTREAM: server.url.replace('http://', '') },
  })
  const address = `https://127.0.0.1:${port}/db`
  for (const allowH2 of [false, true]) {
    const dispatcher = new Agent({ allowH2, connect: { ca: tls.cert } })
    t.teardown(() => dispatcher.destroy())
    const made = await request(`${address}/by-${allowH2}`, { method: 'PUT', body: '{}', dispatcher })
    t.match(made, { statusCode: 201, headers: { location: `${address}/by-${allowH2}` } })
    await made.body.dump()
  }
  const devices = [await device(t), await device(t)] as const
  const syncs = [
    liveSync(t, devices[0], secureRemote(address, overHttp1(t, { ca: tls.cert }))),
    liveSync(t, devices[1], secureRemote(address, overHttp2(t, tls.cert))),
  ]
  const { slowest } = await editInTurns(devices, 0)
  t.ok(slowest < 25_000, `the slowest edit took ${Math.round(slowest)} ms`)
  for (const { errors } of syncs) t.strictSame(errors, [])
  const looked = await look(address, { ca: tls.cert })
  onlyWrong(t, looked)
  t.match(looked.one('server').text, /behind Caddy\.$/)
  // Caddy sends its own Server header in addition to the server's.
  t.match(looked.one('version'), { state: 'fine', text: /Caddy, CouchDB\/\S+ \(settee\// })
})
