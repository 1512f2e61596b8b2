/** By which address devices reach a server, as it sees it: with TLS of its own, and without. */
import t from 'tap'
import { openConfig } from '../../src/config/config.ts'
import type { ConfigFlags } from '../../src/config/sources.ts'
import { reachServer } from '../../src/control/control-socket.ts'
import { ownUrl } from '../../src/vaults/vault-control.ts'
import { type CertificateOptions, certificateFiles } from '../helpers/certificates.ts'
import { startTestServer, temporaryFolder } from '../helpers/server.ts'

/** As a server that does not run would be reached by its settings. */
async function configured(flags: ConfigFlags, certificate?: CertificateOptions): Promise<string> {
  const tls = certificate === undefined ? undefined : await certificateFiles(t, certificate)
  const named = tls === undefined ? {} : { tlsCert: tls.certFile, tlsKey: tls.keyFile }
  const config = await openConfig({
    dataDir: await temporaryFolder(t),
    env: {},
    flags: { ...named, ...flags },
  })
  return ownUrl(config, null)
}

t.test('without TLS it is where it listens', async (t) => {
  t.equal(await configured({}), 'http://127.0.0.1:5984/')
  t.equal(await configured({ bind: '::1', port: 6000 }), 'http://[::1]:6000/')
})

t.test('with TLS it is a name of the certificate that leads there', async (t) => {
  const everywhere = { bind: '0.0.0.0' }
  const at = (names: string[], addresses: string[], flags: ConfigFlags = everywhere) =>
    configured(flags, { names, addresses })
  t.equal(await at(['notes.example.com', 'other.example.com'], []), 'https://notes.example.com:6984/')
  t.equal(await at(['localhost', '*.example.com', 'nas.lan'], ['127.0.0.1']), 'https://nas.lan:6984/')
  t.equal(await at([], ['127.0.0.1', '192.168.1.10']), 'https://192.168.1.10:6984/')
  t.equal(await at([], ['2001:db8::1']), 'https://[2001:db8::1]:6984/')
  t.equal(await at(['nas.lan'], [], { ...everywhere, tlsPort: 443 }), 'https://nas.lan:443/')
  t.equal(await at(['nas.lan'], [], { tlsBind: '0.0.0.0' }), 'https://nas.lan:6984/')
  t.equal(await at(['nas.lan', 'localhost'], [], {}), 'https://localhost:6984/', 'only this machine')
})

t.test('where no name of the certificate leads there it is without TLS', async (t) => {
  const everywhere = { bind: '0.0.0.0' }
  const url = 'http://0.0.0.0:5984/'
  t.equal(await configured(everywhere, { names: ['*.example.com'], addresses: [] }), url)
  t.equal(await configured(everywhere, { names: ['localhost'], addresses: ['127.0.0.1', '::1'] }), url)
  t.equal(await configured({}, { names: ['notes.example.com'], addresses: [] }), 'http://127.0.0.1:5984/')
  t.equal(await configured({ ...everywhere, tlsCert: '/nowhere.pem', tlsKey: '/nowhere.pem' }), url)
})

t.test('a server that runs tells where it listens', async (t) => {
  const server = await startTestServer(t, { tls: await certificateFiles(t) })
  const controls = await reachServer(server.dataDir)
  const state = await controls?.readVault({ database: 'work', account: 'work' })
  const { port } = new URL(server.secureUrl)
  t.match(state, { url: `https://localhost:${port}/`, listening: `${server.url}/` })
})
