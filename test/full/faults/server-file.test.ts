/** A server whose server.sqlite is damaged: it starts from the newest copy, or not at all, and never as an empty one. */
import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { type ServerProcess, startServerProcess } from '../../faults/server-process.ts'
import { until } from '../../helpers/until.ts'

const login = (name: string, password: string) => ({
  authorization: `Basic ${Buffer.from(`${name}:${password}`).toString('base64')}`,
})
const ANNA = login('anna', 'secret')
const INI = '[admins]\nanna = secret\n[chttpd_auth]\niterations = 10\n'

const pathIn = ({ dataDir }: ServerProcess, name: string) => join(dataDir, name)

/** Overwrites all pages of a file but the first. */
function damage(path: string): void {
  const bytes = readFileSync(path)
  bytes.fill(0xa5, 8192)
  writeFileSync(path, bytes)
}

async function makeToken(server: ServerProcess, name: string) {
  const { json } = await server.ask('POST', '/_settee/tokens', { name }, ANNA)
  return { id: json.id as string, as: login('anna', json.token) }
}

async function backUp(server: ServerProcess): Promise<string> {
  const { json } = await server.ask('POST', '/_settee/backups', {}, ANNA)
  await until(
    async () => (await server.ask('GET', '/_settee/backups', undefined, ANNA)).json.running === null,
  )
  return json.id
}

async function isLoggedIn(t: Test, server: ServerProcess, as: ReturnType<typeof login>): Promise<void> {
  t.match(await server.ask('GET', '/_session', undefined, as), {
    status: 200,
    json: { userCtx: { name: 'anna' } },
  })
}

/** Nobody without a login is let in, and what the server has is there. */
async function isItself(t: Test, server: ServerProcess, uuid: string): Promise<void> {
  t.match(await server.ask('GET', '/_all_dbs'), { status: 401 }, 'requests without a login are refused')
  t.match(await server.ask('GET', '/notes', undefined, ANNA), { status: 200 })
  t.equal((await server.ask('GET', '/', undefined, ANNA)).json.uuid, uuid)
}

t.test('it starts from its copy, or from a newer backup, and says so', async (t) => {
  const server = await startServerProcess(t, { ini: INI })
  await server.ask('PUT', '/notes', undefined, ANNA)
  const { uuid } = (await server.ask('GET', '/', undefined, ANNA)).json
  const early = await makeToken(server, 'early')
  const inBackup = await makeToken(server, 'in the backup')
  const backup = await backUp(server)
  const copy = pathIn(server, 'server.sqlite.copy')
  await until(() => existsSync(copy))
  await server.stop()
  const file = pathIn(server, 'server.sqlite')

  damage(file)
  const damaged = readFileSync(file)
  await server.start()
  await isItself(t, server, uuid)
  for (const { as } of [early, inBackup]) await isLoggedIn(t, server, as)
  const told = () => server.log().filter(({ msg }) => /^server\.sqlite was damaged/.test(msg))
  t.match(told(), [
    { level: 'error', msg: /by its copy of 2.*server\.sqlite\.copy.*revoked or deleted are valid again/ },
  ])
  const kept = readdirSync(pathIn(server, 'replaced')).filter((name) => name.endsWith('.damaged.sqlite'))
  t.same(
    kept.map((name) => readFileSync(join(pathIn(server, 'replaced'), name)).equals(damaged)),
    [true],
  )
  await server.stop()

  // The copy is damaged as well.
  for (const path of [file, copy]) damage(path)
  await server.start()
  await isItself(t, server, uuid)
  await isLoggedIn(t, server, inBackup.as)
  t.match(told(), [{}, { msg: new RegExp(`backups/${backup}/server.sqlite`) }])
  // A server that was killed has a log, too.
  const late = await makeToken(server, 'late')
  const madeAt = Date.now()
  await until(() => existsSync(copy) && statSync(copy).mtimeMs > madeAt)
  await server.kill()
  const log = readFileSync(`${file}-wal`)
  log.fill(0xa5, Math.floor(log.length / 3))
  writeFileSync(`${file}-wal`, log)
  await server.start()
  await isItself(t, server, uuid)
  await isLoggedIn(t, server, late.as)
  t.equal(told().length, 3)
  await server.stop()
})

t.test('without a whole copy it does not start, and nothing is changed', async (t) => {
  const server = await startServerProcess(t, { ini: INI })
  await server.ask('PUT', '/notes', undefined, ANNA)
  const files = ['server.sqlite', 'server.sqlite.copy'].map((name) => pathIn(server, name))
  await until(() => files.every((path) => existsSync(path)))
  await server.stop()
  const whole = files.map((path) => readFileSync(path))
  for (const path of files) damage(path)
  const before = files.map((path) => readFileSync(path))
  const refusal =
    /server\.sqlite is damaged: .*, and none of its copies is whole\. Restore it: settee restore/
  await t.rejects(server.start(), { message: refusal })
  t.same(
    files.map((path) => readFileSync(path)),
    before,
  )
  t.notOk(existsSync(pathIn(server, 'replaced')))
  for (const path of files) writeFileSync(path, '')
  await t.rejects(server.start(), { message: /server\.sqlite is damaged: it is empty/ })
  rmSync(files[1] as string)
  await t.rejects(server.start(), { message: /it is empty/ })
  for (const [at, path] of files.entries()) writeFileSync(path, whole[at] as Buffer)
  await server.start()
  t.match(await server.ask('GET', '/notes', undefined, ANNA), { status: 200 })
  await server.stop()
})
