/** Backups of a listening server: their content, shared files, and damage. */
import { randomBytes } from 'node:crypto'
import { cp, mkdir, open, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { createConnection } from 'node:net'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import t, { type Test } from 'tap'
import type { BackupManifest } from '../../../src/backup/backup-format.ts'
import { controlPath } from '../../../src/control/control-socket.ts'
import { backUp, filesOf, finished, wrongSums } from '../../backup/server.ts'
import { startTestServer, type TestServer, temporaryFolder } from '../../helpers/server.ts'

t.setTimeout(280_000)

const MARK = 'bytes that stand in one attachment alone '.repeat(400)

async function filled(t: Test, options: Parameters<typeof startTestServer>[1] = {}): Promise<TestServer> {
  const server = await startTestServer(t, options)
  for (const name of ['notes', 'team%2Fplans', 'idle']) {
    await server.request('PUT', `/${name}`)
    await server.request('POST', `/${name}/_bulk_docs`, {
      body: { docs: Array.from({ length: 20 }, (_, n) => ({ _id: `d${n}`, n })) },
    })
  }
  await server.request('PUT', '/notes/_local/checkpoint', { body: { seq: 7 } })
  await server.request('PUT', '/notes/_security', { body: { members: { names: ['anna'] } } })
  await server.request('PUT', '/notes/d0/file', {
    body: MARK,
    headers: { 'if-match': await revOf(server, 'd0') },
  })
  return server
}

async function revOf(server: TestServer, id: string): Promise<string> {
  return (await server.request('GET', `/notes/${id}`)).json._rev
}

const backupsIn = (server: TestServer) => join(server.dataDir, 'backups')

async function manifestOf(server: TestServer, id: string): Promise<BackupManifest> {
  return JSON.parse(await readFile(join(backupsIn(server), id, 'manifest.json'), 'utf8'))
}

t.test('a backup has everything, and a server starts on it', async (t) => {
  const server = await filled(t)
  await server.request('PUT', '/_node/_local/_config/couch_peruser/delete_dbs', { body: '"true"' })
  t.strictSame((await server.request('GET', '/_settee/backups')).json, {
    backups: [],
    running: null,
    verifying: null,
    last_failure: null,
  })
  const made = await backUp(server)
  t.match(made, { verified: true, is_whole: true, reason: 'asked', databases: 4, left_out: [], damage: [] })
  const folder = join(backupsIn(server), made?.id ?? '')
  t.strictSame(await filesOf(folder), [
    'SHA256SUMS',
    'databases/_users.sqlite',
    'databases/idle.sqlite',
    'databases/notes.sqlite',
    'databases/team%2Fplans.sqlite',
    'local.ini',
    'manifest.json',
    'server.sqlite',
  ])
  t.strictSame(await wrongSums(folder), [])
  t.equal((await stat(folder)).mode & 0o777, 0o700)
  t.equal((await stat(join(folder, 'local.ini'))).mode & 0o777, 0o600)
  t.equal((await stat(join(folder, 'databases', 'notes.sqlite'))).mode & 0o777, 0o600)

  const { json: told } = await server.request('GET', `/_settee/backups/${made?.id}`)
  const { json: info } = await server.request('GET', '/notes')
  const notes = told.databases.find(({ name }: { name: string }) => name === 'notes')
  t.match(notes, {
    doc_count: info.doc_count,
    doc_del_count: 0,
    update_seq: 21,
    local_count: 1,
    same_as: null,
  })
  t.equal(String(notes.created_at), info.instance_start_time)

  const dataDir = await temporaryFolder(t)
  for (const part of ['databases', 'server.sqlite', 'local.ini']) {
    await cp(join(folder, part), join(dataDir, part), { recursive: true })
  }
  const again = await startTestServer(t, { dataDir })
  const uuid = async ({ request }: TestServer) => (await request('GET', '/')).json.uuid
  t.equal(await uuid(again), await uuid(server))
  for (const path of [
    '/_all_dbs',
    '/notes/_all_docs?include_docs=true',
    '/notes/_local/checkpoint',
    '/notes/_security',
    '/notes/_changes',
    '/_node/_local/_config/couch_peruser/delete_dbs',
    '/notes/d0/file',
  ]) {
    t.equal((await again.request('GET', path)).text, (await server.request('GET', path)).text, path)
  }
})

t.test('an unchanged database is the same file', async (t) => {
  const server = await filled(t)
  const first = await backUp(server)
  await server.request('PUT', '/notes/new', { body: {} })
  const second = await backUp(server)
  const { databases } = await manifestOf(server, second?.id ?? '')
  t.strictSame(
    databases.map(({ name, same_as }) => [name, same_as]),
    [
      ['_users', first?.id],
      ['idle', first?.id],
      ['notes', null],
      ['team/plans', first?.id],
    ],
  )
  const inode = async (id = '', name = '') => (await stat(join(backupsIn(server), id, 'databases', name))).ino
  t.equal(await inode(second?.id, 'idle.sqlite'), await inode(first?.id, 'idle.sqlite'))
  t.not(await inode(second?.id, 'notes.sqlite'), await inode(first?.id, 'notes.sqlite'))
  t.ok((second?.new_bytes ?? 0) < (second?.bytes ?? 0))
  t.equal((await server.request('DELETE', `/_settee/backups/${first?.id}`)).status, 200)
  t.equal((await server.request('DELETE', `/_settee/backups/${first?.id}`)).status, 404)
  t.strictSame(await wrongSums(join(backupsIn(server), second?.id ?? '')), [])
  t.strictSame(await readdir(backupsIn(server)), [second?.id])

  // A backup does not read a database that a restarted server has not opened.
  await server.close()
  const again = await startTestServer(t, { dataDir: server.dataDir })
  const third = await backUp(again)
  const { json: stats } = await again.request('GET', '/_node/_local/_stats/couchdb/open_databases')
  const fourth = await backUp(again)
  t.match([third?.databases, fourth?.databases], [4, 4])
  t.ok((fourth?.new_bytes ?? 0) < 100_000, JSON.stringify(fourth))
  t.match((await again.request('GET', '/_node/_local/_stats/couchdb/open_databases')).json, {
    value: stats.value,
  })
})

t.test('some databases by name; refusals', async (t) => {
  const server = await filled(t)
  const some = await backUp(server, ['team/plans', 'team/plans'])
  t.match(some, { is_whole: false, databases: 1, verified: true })
  const start = (body: unknown) => server.request('POST', '/_settee/backups', { body })
  t.match(await start({ databases: ['none'] }), {
    status: 404,
    json: { reason: 'There is no database none.' },
  })
  for (const bad of [{ databases: [] }, { databases: 'notes' }, { databases: [1] }, []]) {
    t.equal((await start(bad)).status, 400, JSON.stringify(bad))
  }
  for (const id of ['x', '..', '2026-11-22T01-30-00Z', '%2e%2e%2fdatabases']) {
    t.equal((await server.request('GET', `/_settee/backups/${id}`)).status, 404, id)
    t.equal((await server.request('DELETE', `/_settee/backups/${id}`)).status, 404, id)
  }
  const both = await Promise.all([start({}), start({})])
  t.strictSame(both.map(({ status }) => status).sort(), [202, 409])
  const { id } = both.find(({ status }) => status === 202)?.json ?? {}
  t.match(await finished(server, id), { is_whole: true })
  await server.request('PUT', '/_node/_local/_config/settee/backup_folder', {
    body: JSON.stringify(join(server.dataDir, 'not-mounted')),
  })
  t.match(await start({}), { status: 400, json: { reason: /is its disk mounted/ } })
  t.equal(
    (await server.request('PUT', '/_node/_local/_config/settee/backup_folder', { body: '"x/y"' })).status,
    400,
  )
})

/** Overwrites bytes of a file in place. */
async function damage(path: string, from: string): Promise<void> {
  const at = (await readFile(path)).indexOf(from)
  if (at === -1) throw new Error(`${from} is not in ${path}`)
  const file = await open(path, 'r+')
  await file.write('#', at + 10)
  await file.close()
}

t.test('damaged rows are named, all others are in the backup, and the good copy is kept', async (t) => {
  const logFile = join(await temporaryFolder(t), 'settee.log')
  const before = await filled(t)
  const first = await backUp(before)
  await before.request('PUT', '/notes/new', { body: {} })
  await before.close()
  await damage(join(before.dataDir, 'databases', 'notes.sqlite'), MARK.slice(0, 60))
  const server = await startTestServer(t, { dataDir: before.dataDir, logLevel: 'info', logFile })
  t.equal((await server.request('GET', '/_up?deep=1')).status, 200)
  const second = await backUp(server)
  t.match(second, {
    databases: 4,
    left_out: [],
    damaged: [{ name: 'notes', count: 1, parts: [{ kind: 'attachment', id: 'd0', name: 'file' }] }],
  })
  const deep = await server.request('GET', '/_up?deep=1')
  t.equal(deep.status, 503)
  t.equal(deep.json.status, 'failing')
  const fact = deep.json.facts.find(({ name }: { name: string }) => name === 'backup')
  t.match(fact, { ok: false, reason: /^In the database notes, and so in the last backup, 1 part is damaged/ })
  t.match(
    await readFile(logFile, 'utf8'),
    /"database":"notes","damage":\{"count":1,"parts":\[\{"kind":"attachment"/,
  )
  t.match((await server.request('GET', '/_settee/backups')).json.backups[0].damaged, second?.damaged)
  t.match(
    (await server.request('GET', '/_node/_local/_prometheus')).text,
    /^settee_backup_failures_total 1$/m,
  )
  t.equal((await server.request('GET', '/_up')).status, 200)

  await writeFile(
    join(server.dataDir, 'local.ini'),
    '[settee]\nbackup_keep_daily = 0\nbackup_keep_weekly = 0\n',
  )
  await server.request('POST', '/_node/_local/_config/_reload')
  const third = await backUp(server)
  t.match(third?.damaged, second?.damaged, 'a linked copy has what the first one has')
  t.ok((await readdir(backupsIn(server))).includes(first?.id ?? ''), 'the only one that has it whole stays')
})

/** Overwrites a part of a file. */
async function overwrite(path: string, at: number, length: number): Promise<void> {
  const file = await open(path, 'r+')
  await file.write(Buffer.alloc(length, 0xa5), 0, length, at)
  await file.close()
}

t.test(
  'a database whose pages or head are damaged is left out, and the others are in the backup',
  async (t) => {
    const before = await filled(t)
    await before.close()
    const fileOf = (name: string) => join(before.dataDir, 'databases', `${name}.sqlite`)
    await overwrite(fileOf('idle'), 0, 100)
    // All pages but the first: the file can be opened, but not read.
    const { size } = await stat(fileOf('notes'))
    await overwrite(fileOf('notes'), 3 * 8192, size - 3 * 8192)
    const server = await startTestServer(t, { dataDir: before.dataDir })
    const made = await backUp(server)
    t.match(made, { verified: true, databases: 2 })
    t.strictSame(made?.left_out.map(({ name }) => name).sort(), ['idle', 'notes'])
    t.ok(
      made?.left_out.every(({ reason }) => reason.startsWith('damaged: ')),
      JSON.stringify(made?.left_out),
    )
    const { status, json } = await server.request('GET', '/_up?deep=1')
    t.equal(status, 503)
    const fact = json.facts.find(({ name }: { name: string }) => name === 'backup')
    t.match(fact, {
      ok: false,
      reason: /^The last backup does not contain the database (?:idle|notes) and 1 more: /,
    })
  },
)

t.test('a damaged copy is never reused, and does not count as a backup', async (t) => {
  const server = await filled(t)
  const first = await backUp(server)
  const copies = join(backupsIn(server), first?.id ?? '', 'databases')
  await damage(join(copies, 'notes.sqlite'), MARK.slice(0, 60))
  await rm(join(copies, 'idle.sqlite'))
  const second = await backUp(server)
  t.match(second, { verified: true, databases: 4 })
  t.strictSame(await wrongSums(join(backupsIn(server), second?.id ?? '')), [])
  const { json } = await server.request('GET', `/_settee/backups/${first?.id}`)
  t.match(json, {
    verified: false,
    damage: ['databases/idle.sqlite: it is missing', 'databases/notes.sqlite: its bytes have changed'],
  })
})

t.test('remains of a crash are removed, and files of others are not', async (t) => {
  const server = await filled(t)
  const made = await backUp(server)
  const folder = backupsIn(server)
  const { uuid } = (await server.request('GET', '/')).json
  const id = '2020-01-01T00-00-00Z'
  await mkdir(join(folder, `${id}.${uuid.slice(0, 8)}.unfinished`))
  await mkdir(join(folder, `${id}.00000000.unfinished`))
  await mkdir(join(folder, id))
  await mkdir(join(folder, 'holiday-pictures'))
  await cp(join(folder, made?.id ?? ''), join(folder, '2021-01-01T00-00-00Z'), { recursive: true })
  const foreign = join(folder, '2021-01-01T00-00-00Z', 'manifest.json')
  await writeFile(foreign, (await readFile(foreign, 'utf8')).replace(uuid, '0'.repeat(32)))
  const again = await backUp(server)
  const { json } = await server.request('GET', '/_settee/backups')
  t.strictSame(
    json.backups.map(({ id }: { id: string }) => id),
    [again?.id, made?.id],
  )
  t.strictSame(
    (await readdir(folder)).filter((name) => ![again?.id, made?.id].includes(name)),
    [id, `${id}.00000000.unfinished`, '2021-01-01T00-00-00Z', 'holiday-pictures'],
  )
  await rename(join(folder, made?.id ?? ''), join(folder, 'elsewhere'))
  t.equal((await server.request('GET', `/_settee/backups/${made?.id}`)).status, 404)
})

t.test('the configured free space stays free', async (t) => {
  const server = await filled(t)
  const before = await backUp(server)
  await server.request('PUT', '/notes/new', { body: {} })
  const floor = '/_node/_local/_config/settee/free_space_floor'
  await server.request('PUT', floor, { body: `"${2 ** 50}"` })
  t.equal(await backUp(server), undefined)
  const { json } = await server.request('GET', '/_settee/backups')
  t.match(json.last_failure, { reason: /and 1125899907 MB \(settee\/free_space_floor\) stay free/ })
  t.strictSame(
    json.backups.map(({ id }: { id: string }) => id),
    [before?.id],
  )
  await server.request('PUT', floor, { body: '"1048576"' })
  t.match(await backUp(server), { verified: true, databases: 4 })
})

t.test('a database that is deleted during its copy is left out and reported', async (t) => {
  const server = await filled(t)
  const docs = Array.from({ length: 3000 }, (_, n) => ({ _id: `${n}`, text: 'x'.repeat(1000) }))
  for (const name of ['idle', 'notes']) {
    for (let round = 0; round < 4; round++) {
      await server.request('POST', `/${name}/_bulk_docs`, {
        body: { docs: docs.map((d) => ({ ...d, _id: `${round}-${d._id}` })) },
      })
    }
  }
  const { json } = await server.request('POST', '/_settee/backups', { body: {} })
  for (;;) {
    const { json: list } = await server.request('GET', '/_settee/backups')
    if (list.running === null || list.running.database === 'idle') break
  }
  const tasks = (await server.request('GET', '/_active_tasks')).json
  t.match(tasks, [{ type: 'backup', backup: json.id, progress: Number, databases_total: 4 }])
  t.equal((await server.request('DELETE', '/idle')).status, 200)
  t.equal((await server.request('PUT', '/idle')).status, 201)
  await server.request('PUT', '/idle/new', { body: {} })
  const made = await finished(server, json.id)
  t.match(made, { databases: 3, left_out: [{ name: 'idle', reason: /^deleted or replaced/ }] })
  t.equal((await server.request('GET', '/idle')).json.doc_count, 1)
  t.equal((await server.request('GET', '/_up?deep=1')).status, 200)
  await server.close()
  const again = await startTestServer(t, { dataDir: server.dataDir })
  t.equal((await again.request('GET', '/idle/new')).status, 200)
})

/** A call over the control socket, and its first line of progress. */
async function asked(server: TestServer, act: string, argument: object) {
  const socket = createConnection({ path: controlPath(server.dataDir), allowHalfOpen: true })
  socket.on('error', () => undefined)
  socket.end(`${JSON.stringify({ act, argument })}\n`)
  const lines = createInterface({ input: socket })[Symbol.asyncIterator]()
  await lines.next()
  return { socket, lines }
}

/** A database so large that its backup takes a while. */
async function withLarge(t: Test): Promise<TestServer> {
  const server = await filled(t)
  await server.request('PUT', '/zlast')
  for (let n = 0; n < 4; n++)
    await server.request('PUT', `/zlast/d${n}/file`, { body: randomBytes(8_000_000) })
  return server
}

t.test('a backup that a command waits for ends with the command, without a failure', async (t) => {
  const server = await withLarge(t)
  const { socket } = await asked(server, 'backUp', { to: null, databases: null })
  socket.destroy()
  t.equal(await finished(server, 'none'), undefined)
  const { json } = await server.request('GET', '/_settee/backups')
  t.match(json, { backups: [], running: null, last_failure: null })
  t.strictSame(await readdir(backupsIn(server)), [])
  t.match(await backUp(server), { is_whole: true }, 'the next one is made')
})

t.test('a server that stops does not wait for the backup that a command waits for', async (t) => {
  const server = await withLarge(t)
  const { lines } = await asked(server, 'backUp', { to: null, databases: null })
  await server.close()
  let last = ''
  for (let line = await lines.next(); !line.done; line = await lines.next()) last = line.value
  t.match(JSON.parse(last), { error: { code: 'unavailable' } })
  t.strictSame(await readdir(backupsIn(server)), [])
})
