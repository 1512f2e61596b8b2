/** Sessions of a listening server over its restart. */
import t from 'tap'
import { startTestServer, temporaryFolder } from '../../helpers/server.ts'

const env = { COUCHDB_USER: 'anna', COUCHDB_PASSWORD: 'secret' }

t.test('a restart keeps sessions, and does not revive those that were ended', async (t) => {
  const dataDir = await temporaryFolder(t)
  const before = await startTestServer(t, { dataDir, env })
  const login = async () => {
    const body = { name: 'anna', password: 'secret' }
    const { headers } = await before.request('POST', '/_session', { body })
    return String(headers['set-cookie']).split(';', 1)[0] ?? ''
  }
  const [kept, ended] = [await login(), await login()]
  t.equal((await before.request('DELETE', '/_session', { headers: { cookie: ended } })).status, 200)
  await before.close()
  const after = await startTestServer(t, { dataDir, env })
  const nameOf = async (cookie: string) =>
    (await after.request('GET', '/_session', { headers: { cookie } })).json.userCtx.name
  t.equal(await nameOf(kept), 'anna')
  t.equal(await nameOf(ended), null)
})
