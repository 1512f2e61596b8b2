/** PouchDB, nano and curl over settee's own TLS, by HTTP/1.1 and by HTTP/2. */
import t from 'tap'
import { certificateFiles } from '../helpers/certificates.ts'
import { startTestServer } from '../helpers/server.ts'
import { editInTurns, overHttp1, overHttp2, secureRemote } from '../proxy/secure-devices.ts'
import { device, liveSync } from './devices.ts'

t.test('two devices sync live, one by HTTP/1.1 and one by HTTP/2', async (t) => {
  const tls = await certificateFiles(t)
  const env = { COUCHDB_USER: 'user', COUCHDB_PASSWORD: 'password' }
  const server = await startTestServer(t, { tls, env })
  await server.request('PUT', '/db', { auth: 'user:password' })
  const address = `${server.secureUrl.replace('//', '//user:password@')}/db`
  const devices = [await device(t), await device(t)] as const
  const bytes = Buffer.alloc(3 * 1024 * 1024, 'settee ')
  const picture = { content_type: 'image/png', data: bytes.toString('base64') }
  await devices[0].put({ _id: 'file:picture', _attachments: { picture } })
  const syncs = [
    liveSync(t, devices[0], secureRemote(address, overHttp1(t, { ca: tls.cert }))),
    liveSync(t, devices[1], secureRemote(address, overHttp2(t, tls.cert))),
  ]
  await editInTurns(devices, 1000)
  const found = await devices[1].get('file:picture', { attachments: true })
  t.equal(found._attachments?.picture?.data, picture.data)
  for (const { errors, denied } of syncs) t.strictSame([errors, denied], [[], []])
  for (const { stop } of syncs) await stop()
})
