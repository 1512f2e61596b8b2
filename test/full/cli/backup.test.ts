/** `settee backup`, `restore` and `adopt`, on a running and on a stopped server, and on an empty machine. */
import { createHash } from 'node:crypto'
import { cp, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t, { type Test } from 'tap'
import { wrongSums } from '../../backup/server.ts'
import { build, builtSettee } from '../../cli/child.ts'
import { startTestServer, type TestServer, temporaryFolder } from '../../helpers/server.ts'

t.before(() => build(t))

async function run(t: Test, dataDir: string, args: string[]) {
  const { code, stdout, stderr } = await builtSettee(t, args, { env: { SETTEE_DATA: dataDir } }).ended
  return { code, stdout, stderr }
}

const ALL = /^(\/\S+): 2 databases, [\d.]+ MB \([\d.]+ MB new\), verified\.\n$/

/** The folder in a line of output. */
const folderIn = (stdout: string) => stdout.slice(0, stdout.indexOf(': '))

t.test('whether the server runs or not', async (t) => {
  const server = await startTestServer(t)
  const { dataDir } = server
  await server.request('PUT', '/notes')
  await server.request('PUT', '/notes/a', { body: {} })
  const other = join(await temporaryFolder(t), 'usb')

  const check = async (inWords: string) => {
    const own = await run(t, dataDir, ['backup'])
    t.match(own, { code: 0, stdout: ALL, stderr: '' }, inWords)
    t.ok(folderIn(own.stdout).startsWith(join(dataDir, 'backups')))
    t.strictSame(await wrongSums(folderIn(own.stdout)), [])
    const some = await run(t, dataDir, ['backup', '--to', other, '--db', 'notes', '--json'])
    t.match(some, { code: 0, stderr: '' }, inWords)
    const done = JSON.parse(some.stdout)
    t.match(done, { verified: true, is_whole: false, databases: 1, left_out: [], path: join(other, done.id) })
    t.strictSame(await wrongSums(done.path), [])
    const missing = await run(t, dataDir, ['backup', '--db', 'none'])
    t.strictSame(missing, { code: 1, stdout: '', stderr: 'settee: There is no database none.\n' }, inWords)
    for (const [to, why] of [
      [join(other, 'a', 'b'), /cannot be used: its parent folder does not exist\.\n$/],
      [join(dataDir, 'server.sqlite', 'a'), /cannot be used: a part of its path is a file\.\n$/],
      [
        join(dataDir, 'databases'),
        /is used by settee in the data folder; backups need a folder of their own\.\n$/,
      ],
      [join(dataDir, 'tmp', 'a'), /is used by settee in the data folder/],
      [dataDir, /is used by settee in the data folder/],
    ] as const) {
      t.match(
        await run(t, dataDir, ['backup', '--to', to]),
        { code: 1, stdout: '', stderr: why },
        `${inWords}: ${to}`,
      )
    }
  }
  await check('it runs')
  t.equal((await server.request('GET', '/_settee/backups')).json.backups.length, 1)
  await server.close()
  await check('it is stopped')
  t.equal((await readdir(join(dataDir, 'backups'))).length, 2)
  t.strictSame(
    (await readdir(join(dataDir, 'databases'))).filter((name) => !name.endsWith('.sqlite')),
    [],
  )
})

t.test('mistakes', async (t) => {
  const dataDir = join(await temporaryFolder(t), 'data')
  await mkdir(dataDir)
  t.match(await run(t, dataDir, ['backup', 'notes']), { code: 1, stderr: /Unexpected argument "notes"/ })
  t.match(await run(t, dataDir, ['backup', '--port', '1']), {
    code: 1,
    stderr: /settee backup has no option --port/,
  })
  t.match(await run(t, dataDir, ['backup', '--to', '']), { code: 1, stderr: /--to needs a value/ })
  await rm(dataDir, { recursive: true })
  t.match(await run(t, dataDir, ['backup']), { code: 1, stderr: /data folder .* does not exist/ })
})

const ID = '2026-11-22T01-30-00Z'

/** A backup of a stopped server, in the format of docs/decisions/0023. @returns its folder */
async function backUp(t: Test, dataDir: string): Promise<string> {
  const folder = join(await temporaryFolder(t), ID)
  await mkdir(join(folder, 'databases'), { recursive: true })
  const stamped = async (file: string) => {
    const bytes = await readFile(join(folder, file))
    return { file, bytes: bytes.length, sha256: createHash('sha256').update(bytes).digest('hex') }
  }
  const databases = []
  for (const file of await readdir(join(dataDir, 'databases'))) {
    const copy = join('databases', file)
    const source = new Sqlite(join(dataDir, copy), { readonly: true })
    source.prepare('VACUUM INTO ?').run(join(folder, copy))
    source.close()
    databases.push({ name: file.replace('.sqlite', ''), ...(await stamped(copy)) })
  }
  for (const file of ['server.sqlite', 'local.ini']) await cp(join(dataDir, file), join(folder, file))
  const manifest = {
    format: 'settee-backup',
    format_version: 1,
    id: ID,
    settee: '0.1.0',
    server_uuid: 'a'.repeat(32),
    begun_at: '2026-11-22T01:30:00.000Z',
    ended_at: '2026-11-22T01:30:01.000Z',
    left_out: [],
    verified: true,
    server: await stamped('server.sqlite'),
    config: await stamped('local.ini'),
    databases,
  }
  await writeFile(join(folder, 'manifest.json'), JSON.stringify(manifest))
  return folder
}

async function idsIn(server: TestServer, database: string, auth = 'anna:secret'): Promise<string[]> {
  const { json } = await server.request('GET', `/${database}/_all_docs`, { auth })
  return (json.rows as { id: string }[])?.map(({ id }) => id)
}

/** A stopped server's folder with an admin and two databases, and a backup of it. */
async function withBackup(t: Test) {
  const first = await startTestServer(t)
  const { dataDir } = first
  await first.request('PUT', '/_node/_local/_config/chttpd_auth/iterations', { body: '"10"' })
  await first.request('PUT', '/_node/_local/_config/admins/anna', { body: '"secret"' })
  const auth = 'anna:secret'
  for (const name of ['notes', 'tasks']) {
    await first.request('PUT', `/${name}`, { auth })
    await first.request('PUT', `/${name}/a`, { auth, body: {} })
  }
  const { uuid } = (await first.request('GET', '/', { auth })).json
  await first.close()
  return { dataDir, auth, uuid, backup: await backUp(t, dataDir) }
}

t.test('a running server', async (t) => {
  const { dataDir, auth, backup } = await withBackup(t)
  await cp(backup, join(dataDir, 'backups', ID), { recursive: true })
  const server = await startTestServer(t, { dataDir })
  await server.request('PUT', '/later', { auth })
  for (const name of ['notes', 'tasks']) await server.request('PUT', `/${name}/b`, { auth, body: {} })

  t.match(await run(t, dataDir, ['restore', backup, '--all']), { code: 1, stderr: /add --yes/ })
  const one = await run(t, dataDir, ['restore', ID, '--db', 'notes', '--yes'])
  t.match(one, {
    code: 0,
    stdout: /^Restored notes from .*: 1 document; the replaced file is kept in .*replaced/,
  })
  t.same([await idsIn(server, 'notes'), await idsIn(server, 'tasks')], [['a'], ['a', 'b']])

  const beside = await run(t, dataDir, [
    'restore',
    backup,
    '--db',
    'notes',
    '--as',
    'notes2',
    '--yes',
    '--json',
  ])
  t.match(JSON.parse(beside.stdout), {
    restored: [{ database: 'notes2', from: 'notes', kept: null, doc_count: 1 }],
  })
  t.same(await idsIn(server, 'notes2'), ['a'])

  const taken = await run(t, dataDir, ['restore', backup, '--db', 'notes', '--as', 'tasks', '--yes'])
  t.match(taken, { code: 1, stderr: /The database tasks exists already/ })
  const all = await run(t, dataDir, ['restore', backup, '--all', '--yes', '--json'])
  const told = JSON.parse(all.stdout) as {
    restored: { database: string; kept: string }[]
    untouched: string[]
  }
  t.same(told.restored.map(({ database }) => database).sort(), ['_users', 'notes', 'tasks'])
  t.same(told.untouched, ['later', 'notes2'])
  t.same(await idsIn(server, 'tasks'), ['a'])

  const { kept } = told.restored.find(({ database }) => database === 'tasks') as { kept: string }
  t.match(await run(t, dataDir, ['restore', kept, '--db', 'tasks', '--yes']), { code: 0 })
  t.same(await idsIn(server, 'tasks'), ['a', 'b'], 'a restore is undone')

  const live = join(dataDir, 'databases', 'notes.sqlite')
  t.match(await run(t, dataDir, ['restore', live, '--db', 'tasks', '--yes']), {
    code: 1,
    stderr: /is the file of a database that is being served, not a copy of it/,
  })
  t.match(await run(t, dataDir, ['restore', '/nowhere', '--all']), { code: 1, stderr: /There is no backup/ })
  t.match(await run(t, dataDir, ['adopt', 'tasks']), {
    code: 0,
    stdout: 'Devices will compare these databases again: tasks.\n',
  })
  t.match(await run(t, dataDir, ['adopt', 'none']), { code: 1, stderr: /does not exist/ })
  t.match(await run(t, dataDir, ['restore', backup, '--all', '--server', '--yes']), {
    code: 1,
    stderr: /stop it/,
  })

  const asked = (body: object) => server.request('POST', `/_settee/backups/${ID}/restore`, { auth, body })
  t.match(await asked({ database: 'tasks', as: 'tasks2' }), {
    status: 200,
    json: { ok: true, database: 'tasks2' },
  })
  t.match(await asked({ database: 'none' }), { status: 404 })
  t.same(await idsIn(server, 'tasks2'), ['a'])
})

t.test('a damaged backup changes nothing', async (t) => {
  const { dataDir, backup } = await withBackup(t)
  const server = await startTestServer(t, { dataDir })
  const copy = join(backup, 'databases', 'tasks.sqlite')
  const bytes = await readFile(copy)
  bytes[bytes.length - 100] = (bytes.at(-100) as number) ^ 1
  await writeFile(copy, bytes)
  const { code, stderr } = await run(t, dataDir, ['restore', backup, '--all', '--yes'])
  t.match([code, stderr], [1, /tasks\.sqlite does not match the backup's manifest/])
  t.same((await readdir(dataDir)).includes('replaced'), false)
  t.same(await idsIn(server, 'notes'), ['a'])
  t.match(await run(t, dataDir, ['restore', '/nowhere', '--all', '--yes']), { code: 1, stderr: /no backup/ })
  t.match(await run(t, dataDir, ['restore', dataDir, '--all', '--yes']), { code: 1, stderr: /no manifest/ })
})

t.test('another, empty machine', async (t) => {
  const { backup, uuid } = await withBackup(t)
  const dataDir = join(await temporaryFolder(t), 'new')
  const { code, stdout, stderr } = await run(t, dataDir, ['restore', backup, '--all', '--yes'])
  t.match([code, stderr], [0, ''])
  t.match(stdout, /Restored the server's own data and local\.ini too/)
  const server = await startTestServer(t, { dataDir })
  t.same(await idsIn(server, 'notes'), ['a'])
  t.equal((await server.request('GET', '/notes')).status, 401, 'the admin is there')
  t.equal((await server.request('GET', '/', { auth: 'anna:secret' })).json.uuid, uuid)
})

t.test('a stopped server is restored completely', async (t) => {
  const { dataDir, backup, auth } = await withBackup(t)
  const meanwhile = await startTestServer(t, { dataDir })
  await meanwhile.request('PUT', '/_node/_local/_config/log/level', { auth, body: '"error"' })
  await meanwhile.request('PUT', '/notes/b', { auth, body: {} })
  await meanwhile.request('PUT', '/later', { auth })
  await meanwhile.close()
  const done = await run(t, dataDir, ['restore', backup, '--all', '--server', '--yes'])
  t.match(done, { code: 0, stdout: /left unchanged: later/ })
  const kept = await readdir(join(dataDir, 'replaced'))
  t.match(kept.sort(), [/^_users\./, /^local\..*ini$/, /^notes\./, /^server\./, /^tasks\./])
  const server = await startTestServer(t, { dataDir })
  t.notMatch(await readFile(join(dataDir, 'local.ini'), 'utf8'), /level/)
  t.same(await idsIn(server, 'notes'), ['a'])
  t.same((await server.request('GET', '/_all_dbs', { auth })).json, ['_users', 'later', 'notes', 'tasks'])
})
