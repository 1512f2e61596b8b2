/** A folder of backups in which others can write: whatever lies there, a restore and a verification say what is wrong. */
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { cp, mkdir, readFile, rename, rm, symlink, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t, { type Test } from 'tap'
import type { BackupManifest } from '../../src/backup/backup-format.ts'
import { reachServer } from '../../src/control/control-socket.ts'
import { startTestServer, temporaryFolder } from '../helpers/server.ts'
import { backUp } from './server.ts'

type Change = (folder: string, manifest: Record<string, unknown>) => Promise<unknown>

const FILE = 'databases/notes.sqlite'

/** Changes the file of the database, and lets the manifest agree with it. */
function file(change: (db: Sqlite.Database) => void): Change {
  return async (folder, manifest) => {
    const path = join(folder, FILE)
    const db = new Sqlite(path)
    db.unsafeMode()
    change(db)
    db.pragma('journal_mode = DELETE')
    db.close()
    const bytes = await readFile(path)
    const sha256 = createHash('sha256').update(bytes).digest('hex')
    const [database] = manifest.databases as [object]
    manifest.databases = [{ ...database, bytes: bytes.length, sha256 }]
  }
}

const schema = (...statements: readonly string[]) => file((db) => db.exec(statements.join(';')))

function named(change: object): Change {
  return async (_, manifest) => {
    const [database] = manifest.databases as [object]
    manifest.databases = [{ ...database, ...change }]
  }
}

const inPlace =
  (make: (path: string) => unknown): Change =>
  async (folder) => {
    const path = join(folder, FILE)
    await rename(path, `${path}.kept`)
    await make(path)
  }

const SCHEMA = /tables, views or triggers/
const RUN = 'WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r'

const CASES: readonly (readonly [what: string, change: Change, reason: RegExp])[] = [
  ['a path out of the folder', named({ file: '../x.sqlite' }), /outside/],
  ['an absolute path', named({ file: '/etc/passwd' }), /outside/],
  ['a path with a zero byte', named({ file: 'databases/a\0b' }), /outside/],
  ['a link to a file', inPlace((path) => symlink('/etc/passwd', path)), /cannot be read \(ELOOP\)/],
  ['a pipe', inPlace((path) => execFileSync('mkfifo', [path])), /cannot be read \(EINVAL\)/],
  ['a device', inPlace((path) => symlink('/dev/zero', path)), /cannot be read/],
  [
    'a link to another folder',
    async (folder) => {
      await rename(join(folder, 'databases'), `${folder}-elsewhere`)
      await symlink(`${folder}-elsewhere`, join(folder, 'databases'))
    },
    /outside/,
  ],
  ['a sparse file of a terabyte', async (folder) => truncate(join(folder, FILE), 2 ** 40), /does not match/],
  [
    'a log that the backup does not have',
    async (folder) => writeFile(join(folder, `${FILE}-wal`), 'x'),
    /log beside it/,
  ],
  [
    'a manifest that is a pipe',
    async (folder) => {
      await rm(join(folder, 'manifest.json'))
      execFileSync('mkfifo', [join(folder, 'manifest.json')])
    },
    /manifest/,
  ],
  [
    'a manifest of gigabytes',
    async (folder) => truncate(join(folder, 'manifest.json'), 4 * 2 ** 30),
    /more than/,
  ],
  [
    'lists in lists',
    async (folder) => writeFile(join(folder, 'manifest.json'), '['.repeat(1e6) + ']'.repeat(1e6)),
    /not a settee backup/,
  ],
  [
    'no list of databases',
    async (_, manifest) => {
      manifest.databases = { length: 1e9 }
    },
    /damaged/,
  ],
  ['sizes that are none', named({ bytes: '1' }), /damaged/],
  ['sums that are none', named({ sha256: {} }), /damaged/],
  [
    'an id that is a path',
    async (_, manifest) => {
      manifest.id = '../../x'
    },
    /damaged/,
  ],
  ['a trigger', schema('CREATE TRIGGER evil AFTER INSERT ON local BEGIN DELETE FROM doc; END'), SCHEMA],
  ['a view', schema(`CREATE VIEW evil AS ${RUN}`), SCHEMA],
  [
    'a view in place of a table',
    schema('DROP TABLE local', `CREATE VIEW local AS SELECT '' AS id, 1 AS rev, (${RUN}) AS body`),
    SCHEMA,
  ],
  ['a further table', schema('CREATE TABLE evil (x)'), SCHEMA],
  ['a virtual table', schema('CREATE VIRTUAL TABLE evil USING fts5(x)'), SCHEMA],
  ['an index of an expression', schema('CREATE INDEX evil ON local (hex(zeroblob(length(id))))'), SCHEMA],
  ['a computed column', schema('ALTER TABLE local ADD COLUMN evil AS (hex(zeroblob(1000000000)))'), SCHEMA],
  [
    'a changed check',
    file((db) => {
      db.pragma('writable_schema = ON')
      db.exec(
        "UPDATE sqlite_schema SET sql = replace(sql, 'CHECK (one = 1)', 'CHECK (length(hex(zeroblob(1e9))) > 0)')",
      )
    }),
    SCHEMA,
  ],
  [
    'a schema that is none',
    file((db) => {
      db.pragma('writable_schema = ON')
      db.exec("UPDATE sqlite_schema SET sql = 'CREATE TABLE x'")
    }),
    /damaged, or is not|tables, views/,
  ],
]

async function scene(t: Test) {
  const server = await startTestServer(t)
  await server.request('PUT', '/notes')
  await server.request('PUT', '/notes/a', { body: {} })
  const { id } = (await backUp(server, ['notes'])) as { id: string }
  const controls = await reachServer(server.dataDir)
  if (controls === null) throw new Error('the server does not listen')
  return { server, controls, id, folder: join(server.dataDir, 'backups', id) }
}

t.test('a restore', async (t) => {
  const { server, controls, folder } = await scene(t)
  const parent = await temporaryFolder(t)
  const restore = (backup: string, as: string | null = 'restored') =>
    controls.restore({ backup, databases: null, as })
  for (const [n, [what, change, reason]] of CASES.entries()) {
    const copy = join(parent, String(n))
    await cp(folder, copy, { recursive: true })
    const path = join(copy, 'manifest.json')
    const manifest = JSON.parse(await readFile(path, 'utf8')) as Record<string, unknown>
    const before = JSON.stringify(manifest)
    await change(copy, manifest)
    if (JSON.stringify(manifest) !== before) await writeFile(path, JSON.stringify(manifest))
    await t.rejects(restore(copy), { message: reason }, what)
    t.equal((await server.request('GET', '/_up')).status, 200)
  }
  t.equal((await server.request('GET', '/restored')).status, 404, 'no refused restore has created a database')
  const odd = join(parent, 'odd')
  await cp(folder, odd, { recursive: true })
  const whole = JSON.parse(await readFile(join(odd, 'manifest.json'), 'utf8')) as BackupManifest
  for (const name of ['../x', '_x', '', 'a\n', '__proto__']) {
    const databases = whole.databases.map((each) => ({ ...each, name }))
    await writeFile(join(odd, 'manifest.json'), JSON.stringify({ ...whole, databases }))
    await t.rejects(restore(odd, null), { code: 'illegal_database_name' }, name)
  }
  t.match(
    await restore(folder),
    { restored: [{ database: 'restored', doc_count: 1 }] },
    'the unchanged folder is restored',
  )
})

t.test('single files', async (t) => {
  const { controls, folder } = await scene(t)
  const parent = await temporaryFolder(t)
  const path = join(parent, 'notes.sqlite')
  const restore = (backup: string) => controls.restore({ backup, databases: null, as: 'restored' })
  execFileSync('mkfifo', [path])
  await t.rejects(restore(path), { message: /neither a folder nor a file/ })
  await rm(path)
  await cp(join(folder, FILE), path)
  execFileSync('mkfifo', [`${path}-wal`])
  await t.rejects(restore(path), { message: /is not a regular file/ })
  await rm(`${path}-wal`)
  await truncate(path, 2 ** 42)
  await t.rejects(restore(path), { message: /space|full/ })
})

t.test('the list and a verification', async (t) => {
  const { server, id, folder } = await scene(t)
  const backups = async () => (await server.request('GET', '/_settee/backups')).json
  const others = Array.from({ length: 6 }, (_, n) => join(folder, '..', `2026-01-01T00-00-0${n}Z`))
  for (const other of others) {
    await mkdir(other)
    execFileSync('mkfifo', [join(other, 'manifest.json')])
  }
  for (const name of ['DAMAGED', 'VERIFIED']) execFileSync('mkfifo', [join(folder, name)])
  t.match(
    (await backups()).backups.map((each: { id: string }) => each.id),
    [id],
    'an unreadable backup is left out of the list',
  )
  await rm(join(folder, FILE))
  execFileSync('mkfifo', [join(folder, FILE)])
  for (const name of ['DAMAGED', 'VERIFIED']) await rm(join(folder, name))
  t.equal((await server.request('POST', `/_settee/backups/${id}/verify`, { body: {} })).status, 202)
  while ((await backups()).verifying !== null) await new Promise(setImmediate)
  t.same((await backups()).backups[0].damage, [`${FILE}: cannot be read (EINVAL)`])
  const manifest = JSON.parse(await readFile(join(folder, 'manifest.json'), 'utf8')) as BackupManifest
  t.equal(manifest.id, id)
})
