/** The settings that say where the databases are. */
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { openConfig } from '../../src/config/config.ts'
import { listSettings, valuesAtStart } from '../../src/config/setting-list.ts'
import { divide, storeLocation, threadsForFiles } from '../../src/config/store-location.ts'
import { temporaryFolder } from '../helpers/server.ts'

const STORE = 'postgres://anna@db.example/notes?sslmode=require'

async function locate(dataDir: string, env: NodeJS.ProcessEnv = {}) {
  return storeLocation(await openConfig({ dataDir, env, flags: {} }), dataDir)
}

async function folderWith(t: Test, ini: string): Promise<string> {
  const dataDir = await temporaryFolder(t)
  await writeFile(join(dataDir, 'local.ini'), ini)
  return dataDir
}

t.test('without a setting the databases are files, and with one they are in the store', async (t) => {
  const dataDir = await temporaryFolder(t)
  t.same(await locate(dataDir), { location: { kind: 'files', dataDir }, threads: 2 })
  const node = await folderWith(t, `[settee]\nstore = ${STORE}\nstore_password_file = /run/secrets/db\n`)
  const { location, threads } = await locate(node)
  t.match(location, {
    kind: 'postgres',
    address: {
      host: 'db.example',
      user: 'anna',
      database: 'notes',
      passwordFile: '/run/secrets/db',
      tls: { checks: 'none' },
    },
  })
  t.ok(location.kind === 'postgres' && threads >= 1)
})

t.test(
  'a folder that was a node never becomes an empty server, nor a server with databases a node',
  async (t) => {
    const dataDir = await temporaryFolder(t)
    await locate(dataDir, { SETTEE_STORE: STORE })
    t.equal(await readFile(join(dataDir, 'store'), 'utf8'), 'postgres://anna@db.example:5432/notes\n')
    await t.rejects(locate(dataDir), {
      name: 'StartError',
      message: /is the folder of a node whose databases are in postgres:/,
    })
    await locate(dataDir, { SETTEE_STORE: 'postgres://anna@127.0.0.1/other' })
    const old = await temporaryFolder(t)
    await writeFile(join(old, 'server.sqlite'), '')
    await t.rejects(locate(old, { SETTEE_STORE: STORE }), { name: 'StartError', message: /settee move/ })
  },
)

t.test('a password in the address is refused without showing it, wherever it is', async (t) => {
  const store = 'postgres://anna:geheim@db.example/notes'
  const dataDir = await folderWith(t, `[settee]\nstore = ${store}\n`)
  for (const options of [
    { dataDir, env: {}, flags: {} },
    { dataDir: '/no', env: { SETTEE_STORE: store }, flags: {} },
    { dataDir: '/no', env: {}, flags: { store } },
  ]) {
    const error = await openConfig(options).catch((thrown: Error) => thrown)
    t.match(error, { name: 'StartError', message: /store_password_file/ })
    t.notMatch((error as Error).message, /geheim/)
  }
})

t.test('the store cannot be changed over HTTP, and is a setting of the node', async (t) => {
  const dataDir = await folderWith(t, `[settee]\nstore = ${STORE}\n`)
  const config = await openConfig({ dataDir, env: {}, flags: {} })
  for (const key of ['store', 'store_password_file'])
    await t.rejects(config.set('settee', key, '/etc/passwd'), { code: 'bad_request' })
  await t.rejects(config.set('settee', 'store', 'postgres://eve@elsewhere/notes'), {
    message: /can be set in local.ini, the environment and the command line alone/,
  })
  const { settings } = listSettings(config, valuesAtStart(config), [])
  t.match(
    settings.find(({ key }) => key === 'store'),
    { value: STORE, editable: false, secret: false, source: 'local.ini' },
  )
  t.equal(config.get('couchdb', 'database_dir'), undefined)
})

t.test('two threads serve files, in hosted mode one for each core, and any number that is set', async (t) => {
  t.same(
    [1, 4, 64].map((cores) => threadsForFiles(false, cores)),
    [2, 2, 2],
  )
  t.same(
    [1, 4, 64].map((cores) => threadsForFiles(true, cores)),
    [2, 4, 8],
  )
  const files = await folderWith(t, '[settee]\ndatabase_threads = 5\n')
  t.equal((await locate(files)).threads, 5)
  const node = await folderWith(t, `[settee]\nstore = ${STORE}\ndatabase_threads = 3\n`)
  t.equal((await locate(node)).threads, 3)
})

t.test('the connections of a node are divided among its threads', async (t) => {
  for (const [connections, wanted, threads, poolSize] of [
    [9, 1, 1, 2],
    [9, 64, 1, 2],
    [30, 2, 2, 6],
    [30, 64, 8, 2],
    [100, 8, 8, 9],
    [15, 8, 3, 2],
  ] as const) {
    t.same(divide(connections, wanted), { threads, poolSize })
    t.ok((threads + 2) * (poolSize + 1) <= connections)
  }
})
