/**
 * The next start finishes the steps that a crash interrupted. No database is left without an owner, or open to others.
 */
import { rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { startChildServer } from '../../helpers/child-server.ts'
import { temporaryFolder } from '../../helpers/server.ts'
import { until } from '../../helpers/until.ts'
import { startHostedServer } from '../../hosted/hosted-server.ts'
import { connect } from '../../http/client.ts'
import { call } from '../../protocol/call.ts'

const ANNA = { auth: 'anna:anna' }
const ROOT = { auth: 'root:root' }

t.test('a crash between the steps of creating and deleting a database', async (t) => {
  const first = await startHostedServer(t)
  const { owners } = first.hosted
  const call = connect(t, first)
  for (const name of ['whole', 'unsecured', 'gone', 'left']) await call('PUT', `/${name}`, ANNA)
  await call('PUT', '/cabin', ROOT)
  // The state before each step of a creation or deletion.
  await owners.set('never-made', { account: 'anna', state: 'making' })
  await call('DELETE', '/unsecured', ANNA)
  await call('PUT', '/unsecured', ROOT)
  await owners.set('unsecured', { account: 'anna', state: 'making' })
  await call('DELETE', '/gone', ANNA)
  await owners.set('gone', { account: 'anna', state: 'owned' })
  await owners.begin('gone')
  t.equal((await call('GET', '/unsecured', ANNA)).status, 404, 'an unfinished database is not accessible')
  await first.close()

  const second = await startHostedServer(t, {}, first.dataDir)
  const again = connect(t, second)
  t.same((await again('GET', '/_all_dbs', ANNA)).json, ['left', 'unsecured', 'whole'])
  t.equal((await again('GET', '/unsecured', ANNA)).status, 200)
  t.equal((await again('GET', '/unsecured', { auth: 'bert:bert' })).status, 404)
  t.same(await second.hosted.owners.databasesOf('anna', {}, 10), ['left', 'unsecured', 'whole'])
  t.same(await second.hosted.owners.formerDatabasesOf('anna'), ['gone'])
  t.equal((await again('PUT', '/never-made', { auth: 'bert:bert' })).status, 201, 'the name is free')
  t.equal((await again('PUT', '/gone', { auth: 'bert:bert' })).status, 201)
  t.equal(await second.hosted.owners.ownerOf('cabin'), undefined)
})

t.test('an account does not get back a name that it has given up', async (t) => {
  const first = await startHostedServer(t)
  const call = connect(t, first)
  await call('PUT', '/wiki', ANNA)
  await call('DELETE', '/wiki', ANNA)
  const setup = { action: 'finish_cluster', ensure_dbs_exist: ['wiki'] }
  t.equal((await call('POST', '/_cluster_setup', { ...ROOT, json: setup })).status, 201)
  await first.close()
  const second = await startHostedServer(t, {}, first.dataDir)
  const again = connect(t, second)
  t.equal((await again('GET', '/wiki', ANNA)).status, 404)
  t.equal((await again('DELETE', '/wiki', ANNA)).status, 404)
  t.same((await again('GET', '/_all_dbs', ANNA)).json, [])
  t.equal(await second.hosted.owners.ownerOf('wiki'), undefined)
})

t.test('a database whose file was removed by hand', async (t) => {
  const first = await startHostedServer(t)
  const call = connect(t, first)
  for (const name of ['kept', 'removed']) t.equal((await call('PUT', `/${name}`, ANNA)).status, 201)
  await first.close()
  await rm(join(first.dataDir, 'databases', 'removed.sqlite'))
  const second = await startHostedServer(t, {}, first.dataDir)
  const again = connect(t, second)
  await until('it is missed', async () => (await second.hosted.owners.totalsOf('anna')).databases === 1)
  t.same((await again('GET', '/_all_dbs', ANNA)).json, ['kept'])
  t.equal((await again('PUT', '/removed', { auth: 'bert:bert' })).status, 201, 'the name is free')
})

t.test('a crash during the deletion of an account', async (t) => {
  const first = await startHostedServer(t)
  const call = connect(t, first)
  await call('POST', '/_settee/accounts', { ...ROOT, json: { name: 'anna', password: 'anna' } })
  for (const name of ['a', 'b']) await call('PUT', `/${name}`, ANNA)
  await first.hosted.tenants.change('anna', { isBeingDeleted: true })
  t.match(await call('GET', '/a', ANNA), { status: 403, json: { reason: /being deleted/ } })
  await call('DELETE', '/a', ROOT)
  await first.close()
  const second = await startHostedServer(t, {}, first.dataDir)
  const again = connect(t, second)
  t.same((await again('GET', '/_all_dbs', ROOT)).json, ['_users'])
  t.equal((await again('GET', '/_settee/accounts/anna', ROOT)).status, 404)
  t.same(await second.hosted.owners.namesInUpdates('anna'), { own: [], former: [] })
  t.same(second.tokensDeleted, ['anna'])
})

t.test('kill -9 during the deletion of an account', async (t) => {
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
