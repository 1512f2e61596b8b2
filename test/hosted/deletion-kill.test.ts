/** The deletion of an account outlives the server's process. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { startChildServer } from '../helpers/child-server.ts'
import { temporaryFolder } from '../helpers/server.ts'
import { until } from '../protocol/devices.ts'
import { call } from '../protocol/served.ts'

const ROOT = { auth: 'root:root' }

t.test('kill -9 in the midst of the deletion of an account', async (t) => {
  const dataDir = await temporaryFolder(t)
  const ini =
    '[settee]\nmode = hosted\n[chttpd_auth]\niterations = 10\n[admins]\nroot = root\n[quota]\ndatabases = 100\n'
  await writeFile(join(dataDir, 'local.ini'), ini)
  const server = await startChildServer(t, { dataDir })
  const account = { ...ROOT, body: { name: 'anna', password: 'anna' } }
  t.equal((await call(server, 'POST', '/_settee/accounts', account)).status, 201)
  const names = Array.from({ length: 25 }, (_, at) => `anna-${at}`)
  for (const name of names) await call(server, 'PUT', `/${name}?owner=anna`, ROOT)
  const listed = async () => (await call(server, 'GET', '/_all_dbs', ROOT)).json as string[]
  t.equal((await listed()).length, 26)
  const deletion = call(server, 'DELETE', '/_settee/accounts/anna', ROOT).catch(() => undefined)
  await until('some are gone', async () => (await listed()).length < 26)
  await server.kill()
  await deletion
  await server.start()
  await until(
    'the account is gone',
    async () => (await call(server, 'GET', '/_settee/accounts/anna', ROOT)).status === 404,
  )
  t.same(await listed(), ['_users'])
})
