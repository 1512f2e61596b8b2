/** A damaged server.sqlite is never read as what was written, and a server starts from the newest copy of it. */
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t from 'tap'
import { CouchError } from '../../../src/core/errors.ts'
import type { Catalog } from '../../../src/storage/catalog.ts'
import { SERVER_MIGRATIONS } from '../../../src/storage/sqlite/server-migrations.ts'
import { sqliteEngine } from '../../../src/storage/sqlite/sqlite-engine.ts'
import { writeOldFile } from '../../helpers/old-files.ts'
import { temporaryFolder } from '../../helpers/server.ts'
import { until } from '../../helpers/until.ts'
import { randomNumbers } from './random-damage.ts'

const ROUNDS = Number(process.env.SETTEE_DAMAGE ?? 150)
const SEED = Number(process.env.SETTEE_DAMAGE_SEED ?? Date.now() % 1e6)
const KINDS = ['token', 'ended-session', 'growth', 'secret']

async function readAll(catalog: Catalog): Promise<Map<string, unknown>> {
  const found = new Map<string, unknown>([
    ['uuid', catalog.folderUuid],
    ['server uuid', catalog.serverUuid],
    ['names', await catalog.names({}, 100)],
    ['a', await catalog.find('a')],
  ])
  const { rows, lastSeq } = await catalog.readUpdates({ since: 0 }, 100)
  found.set('updates', rows).set('last update', lastSeq)
  for (const kind of KINDS) {
    for (const { key, value } of await catalog.listRecords(kind, {}, 100)) found.set(`${kind} ${key}`, value)
    const keys = Array.from({ length: 25 }, (_, n) => `key ${n}`)
    found.set(`${kind} by key`, await catalog.readRecords(kind, keys))
  }
  return found
}

async function fill(dataDir: string, records: number) {
  const engine = sqliteEngine({ dataDir })
  const catalog = await engine.openCatalog()
  await until(() => existsSync(copyOf(dataDir)))
  for (const name of ['a', 'b', 'c']) await catalog.create(name)
  await catalog.adoptUuid('an-adopted-uuid')
  for (let n = 0; n < records; n++) {
    const writes = KINDS.map((kind) => ({
      kind,
      key: `key ${n}`,
      value: JSON.stringify({ kind, n, text: 'x'.repeat(n) }),
    }))
    await catalog.writeRecords(writes)
  }
  return { engine, catalog, truth: await readAll(catalog) }
}

const fileOf = (dataDir: string) => join(dataDir, 'server.sqlite')
const copyOf = (dataDir: string) => `${fileOf(dataDir)}.copy`

t.test('a changed bit of the file or its log: all as it was, or an error and then the copy', async (t) => {
  t.comment(`seed ${SEED}`)
  const folder = await mkdtemp(join(tmpdir(), 'settee-server-damage-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  const first = join(folder, 'first')
  const { engine, truth } = await fill(first, 24)
  const crashed = join(folder, 'crashed')
  mkdirSync(crashed)
  for (const suffix of ['', '-wal']) copyFileSync(fileOf(first) + suffix, fileOf(crashed) + suffix)
  await engine.close()
  t.ok(existsSync(copyOf(first)), 'closing makes the copy that is due')
  const whole = { file: readFileSync(fileOf(first)), copy: readFileSync(copyOf(first)) }
  const left = { file: readFileSync(fileOf(crashed)), log: readFileSync(`${fileOf(crashed)}-wal`) }
  const random = randomNumbers(SEED)
  const counts = { same: 0, remade: 0, copy: 0 }
  for (let round = 0; round < ROUNDS; round++) {
    const dataDir = join(folder, `round-${round}`)
    mkdirSync(join(dataDir, 'databases'), { recursive: true })
    for (const name of ['a', 'b', 'c'])
      copyFileSync(join(first, 'databases', `${name}.sqlite`), join(dataDir, 'databases', `${name}.sqlite`))
    writeFileSync(copyOf(dataDir), whole.copy)
    const isLog = round % 3 === 2
    const bytes = Buffer.from(isLog ? left.log : whole.file)
    const at = random(bytes.length)
    bytes.writeUInt8((bytes[at] as number) ^ (1 << random(8)), at)
    writeFileSync(fileOf(dataDir), isLog ? left.file : bytes)
    if (isLog) writeFileSync(`${fileOf(dataDir)}-wal`, bytes)
    const what = `round ${round}, a bit of byte ${at} of the ${isLog ? 'log' : 'file'}`
    const again = sqliteEngine({ dataDir })
    try {
      const catalog = await again.openCatalog().catch(async (error: unknown) => {
        if (!(error instanceof CouchError) || error.code !== 'damaged_server_file') {
          // Only a number of the version may look like that of a newer settee.
          if (!/was written by a newer settee/.test(String(error))) t.fail(what, { error })
          return null
        }
        counts.copy += 1
        const opened = await again.openCatalog(copyOf(dataDir), true)
        const kept = readdirSync(join(dataDir, 'replaced'))
        if (!kept.some((name) => /^server\..*\.damaged\.sqlite$/.test(name)))
          t.fail(`${what}: nothing is kept`)
        return opened
      })
      if (catalog === null) continue
      const found = await readAll(catalog)
      if (isSame(found, truth)) counts.same += 1
      else if (isRemade(found, truth)) counts.remade += 1
      else t.same(found, truth, what)
    } finally {
      await again.close()
      rmSync(dataDir, { recursive: true, force: true })
    }
  }
  t.comment(JSON.stringify(counts))
  t.ok(counts.copy > 0 && counts.same > 0, `${ROUNDS} rounds`)
})

function isSame(found: Map<string, unknown>, truth: Map<string, unknown>): boolean {
  return JSON.stringify([...found]) === JSON.stringify([...truth])
}

/** Whether nothing but records that are made anew is missing. */
function isRemade(found: Map<string, unknown>, truth: Map<string, unknown>): boolean {
  const others = (all: Map<string, unknown>) => new Map([...all].filter(([key]) => !key.startsWith('growth')))
  return isSame(others(found), others(truth))
}

t.test(
  'a damaged record is an error with its kind, in lists, too; one that is made anew is missing',
  async (t) => {
    const dataDir = await temporaryFolder(t)
    const { engine, catalog } = await fill(dataDir, 3)
    t.teardown(() => engine.close())
    const outside = new Sqlite(fileOf(dataDir))
    outside.exec("UPDATE record SET value = 'other' WHERE key = 'key 1'")
    outside.close()
    const error = {
      code: 'damaged_server_file',
      message: /^A record of the kind token of server.sqlite is damaged/,
    }
    await t.rejects(catalog.readRecords('token', ['key 1']), error)
    await t.rejects(catalog.listRecords('token', {}, 10), error)
    const expected = { kind: 'token', key: 'key 1', value: 'x', expected: 'y' }
    await t.rejects(catalog.writeRecords([expected]), error, 'nothing is decided on it')
    t.same(await catalog.readRecords('token', ['key 2']), [
      JSON.stringify({ kind: 'token', n: 2, text: 'xx' }),
    ])
    t.same(await catalog.readRecords('growth', ['key 1']), [null])
    const pages = [
      await catalog.listRecords('growth', {}, 2),
      await catalog.listRecords('growth', { after: 'key 0' }, 1),
    ]
    t.same(
      pages.map((page) => page.map(({ key }) => key)),
      [['key 0', 'key 2'], ['key 2']],
    )
    await catalog.writeRecords([{ kind: 'token', key: 'key 1', value: 'new' }])
    t.same(await catalog.readRecords('token', ['key 1']), ['new'], 'a new value replaces it')
  },
)

t.test(
  'the copy follows changes, is never one of a damaged file, and a folder without its file is no new one',
  async (t) => {
    const dataDir = await temporaryFolder(t)
    const faults: unknown[] = []
    const watch = { onServerFault: (error: unknown) => void faults.push(error) }
    const engine = sqliteEngine({ dataDir, watch })
    t.teardown(() => engine.close())
    const catalog = await engine.openCatalog()
    await catalog.writeRecords([{ kind: 'token', key: 'a', value: '1' }])
    await until(() => existsSync(copyOf(dataDir)))
    const tokens = (path: string) => {
      const file = new Sqlite(path, { readonly: true })
      const found = file.prepare("SELECT value FROM record WHERE kind = 'token'").pluck().all()
      file.close()
      return found
    }
    t.same(tokens(copyOf(dataDir)), ['1'])
    await catalog.writeRecords([{ kind: 'token', key: 'a', value: '2' }])
    const outside = new Sqlite(fileOf(dataDir))
    outside.exec("UPDATE record SET value = '3' WHERE kind = 'token'")
    outside.close()
    await engine.close()
    t.match(faults, [{ code: 'damaged_server_file' }])
    t.same(tokens(copyOf(dataDir)), ['1'], 'the copy before stays')
    const fault = {
      code: 'damaged_server_file',
      message: /server\.sqlite is damaged: the record "a" of the kind "token"/,
    }
    await t.rejects(engine.openCatalog(), fault)

    rmSync(fileOf(dataDir))
    await t.rejects(engine.openCatalog(), { code: 'damaged_server_file', message: /it is missing/ })
    const again = await engine.openCatalog(copyOf(dataDir), true)
    t.same(await again.readRecords('token', ['a']), ['1'])
    await again.create('notes')
    await engine.close()
    writeFileSync(fileOf(dataDir), '')
    rmSync(copyOf(dataDir))
    await t.rejects(engine.openCatalog(), { code: 'damaged_server_file', message: /it is empty/ })
  },
)

t.test('a file that somebody has put back is used, and not the newer copy, also after a crash', async (t) => {
  const dataDir = await temporaryFolder(t)
  const { engine, catalog } = await fill(dataDir, 1)
  const old = join(dataDir, 'old')
  await catalog.writeRecords([{ kind: 'token', key: 'key 0', value: 'old' }])
  await (engine.copies as { copyCatalog(path: string): Promise<void> }).copyCatalog(old)
  for (let n = 0; n < 5; n++) await catalog.writeRecords([{ kind: 'token', key: 'key 0', value: `new ${n}` }])
  await engine.close()
  copyFileSync(old, fileOf(dataDir))
  const next = await engine.openCatalog()
  await next.writeRecords([{ kind: 'growth', key: 'key 0', value: '' }])
  t.same(await next.readRecords('token', ['key 0']), ['old'])
  const crashed = await temporaryFolder(t)
  for (const name of ['server.sqlite', 'server.sqlite-wal', 'server.sqlite.copy'])
    copyFileSync(join(dataDir, name), join(crashed, name))
  await engine.close()
  const other = sqliteEngine({ dataDir: crashed })
  t.teardown(() => other.close())
  t.same(await (await other.openCatalog()).readRecords('token', ['key 0']), ['old'])
})

t.test('rows of an older settee get their checksums after the opening', async (t) => {
  const dataDir = await temporaryFolder(t)
  const { engine } = await fill(dataDir, 10)
  await engine.close()
  const oldDir = await temporaryFolder(t)
  writeOldFile(fileOf(oldDir), fileOf(dataDir), 4, SERVER_MIGRATIONS)
  const more = new Sqlite(fileOf(oldDir))
  more.exec(
    `INSERT INTO record SELECT 'many', 'key ' || value, 'x' FROM json_each('[${Array.from({ length: 3000 }, (_, n) => n)}]')`,
  )
  more.close()
  const old = sqliteEngine({ dataDir: oldDir })
  t.teardown(() => old.close())
  const catalog = await old.openCatalog()
  t.same((await catalog.listRecords('many', {}, 5000)).length, 3000, 'it serves at once')
  const file = new Sqlite(fileOf(oldDir), { readonly: true })
  t.teardown(() => file.close())
  const without = file.prepare('SELECT count(*) FROM record WHERE checksum IS NULL').pluck()
  await until(() => file.prepare("SELECT 1 FROM server WHERE key = 'unsummed'").get() === undefined)
  t.equal(without.get(), 0)
  await old.close()
  const outside = new Sqlite(fileOf(oldDir))
  outside.exec("UPDATE record SET checksum = NULL WHERE kind = 'many' AND key = 'key 7'")
  outside.close()
  await t.rejects(old.openCatalog(), { code: 'damaged_server_file' }, 'from then on, none may lack it')
})
