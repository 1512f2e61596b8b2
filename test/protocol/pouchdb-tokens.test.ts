/** A device that syncs with a token where its account's password would stand; docs/settee-api.md. */
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { startTestServer, type TestServer, temporaryFolder } from '../helpers/server.ts'
import { device, rejectsWith, remote } from './devices.ts'

const ADMIN = 'anna:pa:ss'

/** A database `notes` whose member is the account `anna`. */
async function served(t: Test, dataDir: string, logFile: string): Promise<TestServer> {
  const server = await startTestServer(t, { dataDir, logLevel: 'debug', logFile })
  const made = await server.request('PUT', '/_node/_local/_config/chttpd_auth/iterations', { body: '"10"' })
  t.equal(made.status, 200)
  await server.request('PUT', '/_node/_local/_config/admins/anna', { body: '"pa:ss"' })
  await server.request('PUT', '/notes', { auth: ADMIN })
  const body = { members: { names: ['anna'] } }
  await server.request('PUT', '/notes/_security', { auth: ADMIN, body })
  return server
}

async function newToken(server: TestServer, name: string): Promise<{ id: string; token: string }> {
  const { status, json } = await server.request('POST', '/_settee/tokens', { auth: ADMIN, body: { name } })
  if (status !== 201) throw new Error(`${status} ${JSON.stringify(json)}`)
  return json
}

function notes({ url }: TestServer, token: string) {
  return remote(`${url}/notes`, { auth: { username: 'anna', password: token } }).db
}

/** The bytes of every file below a folder. */
async function everything(folder: string): Promise<Buffer> {
  const files = await readdir(folder, { recursive: true, withFileTypes: true })
  const paths = files.filter((file) => file.isFile()).map((file) => join(file.parentPath, file.name))
  return Buffer.concat(await Promise.all(paths.map((path) => readFile(path))))
}

t.test('two devices sync with tokens of their own, and one of them is lost', async (t) => {
  const [dataDir, logs] = [await temporaryFolder(t), await temporaryFolder(t)]
  const server = await served(t, dataDir, join(logs, 'settee.log'))
  const [phone, desk] = [await device(t), await device(t)]
  const tokens = { phone: await newToken(server, 'phone'), desk: await newToken(server, 'desk') }

  await phone.bulkDocs([{ _id: 'a' }, { _id: 'b' }])
  t.match(await phone.sync(notes(server, tokens.phone.token)), { push: { docs_written: 2 } })
  t.match(await desk.sync(notes(server, tokens.desk.token)), { pull: { docs_written: 2 } })

  const revoked = await server.request('DELETE', `/_settee/tokens/${tokens.phone.id}`, { auth: ADMIN })
  t.equal(revoked.status, 200)
  await phone.put({ _id: 'c' })
  await rejectsWith(t, phone.sync(notes(server, tokens.phone.token)), { status: 401 })
  await desk.put({ _id: 'd' })
  t.match(await desk.sync(notes(server, tokens.desk.token)), { push: { docs_written: 1 } })

  const { json } = await server.request('GET', '/_settee/tokens', { auth: ADMIN })
  t.match(json, { tokens: [{ name: 'desk', last_use: { address: '127.0.0.1', time: String } }] })
  const kept = json.tokens[0].last_use
  for (const { token } of Object.values(tokens)) {
    const secret = token.slice('stt_'.length)
    const header = Buffer.from(`anna:${token}`).toString('base64').replace(/=+$/, '').slice(0, -1)
    for (const folder of [dataDir, logs]) {
      const bytes = await everything(folder)
      t.ok(bytes.length > 100)
      t.notOk(bytes.includes(secret), 'no secret on the disk')
      t.notOk(bytes.includes(header))
    }
  }

  t.test('after a restart', async (t) => {
    await server.close()
    const again = await startTestServer(t, { dataDir })
    await rejectsWith(t, phone.sync(notes(again, tokens.phone.token)), { status: 401 })
    const listed = await again.request('GET', '/_settee/tokens', { auth: ADMIN })
    t.strictSame(listed.json.tokens[0].last_use, kept, 'the last use was written when it closed')
    t.match(await desk.sync(notes(again, tokens.desk.token)), { push: { docs_written: 0 } })
  })
})

t.test('a token goes with its account', async (t) => {
  const server = await served(t, await temporaryFolder(t), join(await temporaryFolder(t), 'settee.log'))
  const made = await server.request('PUT', '/_node/_local/_config/admins/bob', { auth: ADMIN, body: '"bob"' })
  t.equal(made.status, 200)
  const { json } = await server.request('POST', '/_settee/tokens', {
    auth: 'bob:bob',
    body: { name: 'x', admin: true },
  })
  const auth = `bob:${json.token}`
  t.equal((await server.request('GET', '/_all_dbs', { auth })).status, 200)
  await server.request('DELETE', '/_node/_local/_config/admins/bob', { auth: ADMIN })
  t.equal((await server.request('GET', '/', { auth })).status, 401)
  const nobody = await server.request('POST', '/_settee/tokens?account=bob', {
    auth: ADMIN,
    body: { name: 'y' },
  })
  t.match([nobody.status, nobody.json], [404, { reason: 'The account does not exist.' }])
  await server.request('PUT', '/_node/_local/_config/admins/bob', { auth: ADMIN, body: '"bob"' })
  t.equal((await server.request('GET', '/', { auth })).status, 401, 'and a new account has none')
})
