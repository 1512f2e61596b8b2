/** `settee export` and `settee import`, with couchbackup's own programs at the other end, and `settee size`. */
import { createHash } from 'node:crypto'
import { readdir, readFile, rm, stat, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { gunzipSync, gzipSync } from 'node:zlib'
import Sqlite from 'better-sqlite3'
import t, { type Test } from 'tap'
import { shown, tableOf } from '../../../src/cli/size-command.ts'
import { build, builtSettee } from '../../cli/child.ts'
import { startTestServer, type TestServer, temporaryFolder } from '../../helpers/server.ts'
import { backUp, fill, restore, start as startWithFile } from '../../protocol/couchbackup.ts'
import { serverHistories } from '../../protocol/histories.ts'

t.before(() => build(t))

async function run(t: Test, dataDir: string, args: string[], input?: string) {
  const options = { env: { SETTEE_DATA: dataDir }, ...(input !== undefined && { input }) }
  return builtSettee(t, args, options).ended
}

/** Attachments of all sizes, also on a losing leaf. */
async function attach({ request }: TestServer, db: string): Promise<void> {
  const file = (data: Buffer) => ({ content_type: 'application/x', data: data.toString('base64') })
  const large = createHash('shake256', { outputLength: 3_000_000 }).update('large').digest()
  const rev = (letter: string) => ({ _rev: `1-${letter.repeat(32)}` })
  const docs = [
    { _id: 'files', ...rev('a'), _attachments: { 'a b': file(Buffer.from('small')), large: file(large) } },
    { _id: 'files', ...rev('b'), _attachments: { other: file(Buffer.alloc(0)) } },
    ...Array.from({ length: 700 }, (_, n) => ({ _id: `more${n}`, ...rev('c'), text: 'x'.repeat(3000) })),
  ]
  await request('POST', `/${db}/_bulk_docs`, { body: { docs, new_edits: false } })
}

t.test('couchrestore restores an export, and settee imports it', async (t) => {
  const { server, file } = await startWithFile(t)
  await fill(server, 'notes')
  await attach(server, 'notes')
  const before = await serverHistories(server, 'notes')
  const to = `${file}.gz`
  const { code, stdout, stderr } = await run(t, server.dataDir, ['export', 'notes', '--to', to])
  t.match(
    [code, stdout, stderr],
    [0, '', /^Exported the database notes: \d+ documents, 20 deleted documents\.\nIt has att/],
  )
  const text = gunzipSync(await readFile(to)).toString()
  t.match(text.split('\n')[0], /^\{"name":"settee","version":"[\d.]+","mode":"full","attachments":true\}$/)
  t.ok(text.split('\n').length > 3, 'long lines are cut')
  await writeFile(file, text)

  await server.request('PUT', '/restored')
  await restore(server, 'restored', file, { attachments: true })
  t.strictSame(await serverHistories(server, 'restored'), before)

  const imported = await run(t, server.dataDir, ['import', 'imported', '--from', to])
  t.match([imported.code, imported.stdout], [0, ''], imported.stderr)
  t.match(
    imported.stderr,
    /^Imported into the new database imported: \d+ documents, 20 deleted documents\.\n$/,
  )
  t.strictSame(await serverHistories(server, 'imported'), before)
  const again = await run(t, server.dataDir, ['export', 'imported'])
  t.equal(again.stdout.length, text.length, 'on the standard output')
  t.same(await readdir(join(server.dataDir, 'tmp')), [])
  t.same(await readdir(join(server.dataDir, 'control')), ['settee.sock'])
})

t.test('what the disk has damaged is named, and everything else is in the file', async (t) => {
  const server = await startTestServer(t)
  await server.request('PUT', '/notes')
  const file = (text: string) => ({
    f: { content_type: 'text/plain', data: Buffer.from(text).toString('base64') },
  })
  const docs = [
    ...['body', 'row', 'good'].map((id) => ({ _id: id, text: id })),
    { _id: 'picture', _attachments: file('a picture'.repeat(50_000)) },
    { _id: 'same', _attachments: file('another picture') },
  ]
  await server.request('POST', '/notes/_bulk_docs', { body: { docs } })
  await server.close()
  const database = new Sqlite(join(server.dataDir, 'databases', 'notes.sqlite'))
  database.exec(`
    UPDATE revision SET body = replace(body, 'body', 'b"dy') WHERE body LIKE '%"body"%';
    UPDATE chunk SET data = zeroblob(length(data)) WHERE blob = (SELECT max(blob) FROM chunk WHERE length(data) > 1000);
    UPDATE doc SET seq = seq + 100, leaves = 3 WHERE id = 'row'`)
  database.close()
  const { code, stdout, stderr } = await run(t, server.dataDir, ['export', 'notes'])
  t.equal(code, 1)
  t.match(
    stderr,
    /^settee: The export lacks 3 revisions, .*: (body|picture) \(1-\w+\), (body|picture) \(1-\w+\)\. /m,
  )
  const lines = stdout.trim().split('\n').slice(1)
  const ids = lines.flatMap((line) => (JSON.parse(line) as { _id: string }[]).map(({ _id }) => _id))
  t.same(ids.sort(), ['good', 'same'])
  const folder = join(await temporaryFolder(t), 'all')
  const all = await run(t, server.dataDir, ['export', '--all', '--to', folder])
  t.match([all.code, all.stderr], [1, /^settee: notes: The export lacks 3 revisions/m])
  t.ok((await readdir(folder)).includes('notes.json.gz'), 'the file stays')
})

t.test('strings are exported unchanged', async (t) => {
  const server = await startTestServer(t)
  await server.request('PUT', '/notes')
  const body = '{"big":9007199254740993,"1":1e400,"0":-0,"text":"\\u00e9"}'
  await server.request('PUT', '/notes/exact', { body, headers: { 'content-type': 'application/json' } })
  const { stdout } = await run(t, server.dataDir, ['export', 'notes'])
  t.match(await run(t, server.dataDir, ['import', 'copy'], stdout), { code: 0 })
  const exact = async (db: string) => (await server.request('GET', `/${db}/exact`)).text
  t.ok((await exact('copy')).includes('"1":1e400,"0":-0'))
  t.equal(await exact('copy'), await exact('notes'))
})

t.test('settee imports a backup of couchbackup, also on a stopped server', async (t) => {
  const { server, file } = await startWithFile(t)
  await fill(server, 'notes')
  await attach(server, 'notes')
  const before = await serverHistories(server, 'notes')
  await backUp(server, 'notes', file, { attachments: true })
  const { dataDir } = server
  await server.close()
  const imported = await run(t, dataDir, ['import', 'copy', '--from', file])
  t.equal(imported.code, 0, imported.stderr)
  const exported = await run(t, dataDir, ['export', 'copy'])
  t.equal(exported.code, 0, exported.stderr)
  const again = await startTestServer(t, { dataDir })
  t.strictSame(await serverHistories(again, 'copy'), before)
  const input = await run(t, dataDir, ['import', 'third'], exported.stdout)
  t.equal(input.code, 0, 'from the standard input')
  t.strictSame(await serverHistories(again, 'third'), before)
})

t.test('all databases are exported, each into a file of its own', async (t) => {
  const { server } = await startWithFile(t)
  await fill(server, 'notes')
  await server.request('PUT', '/work%2Fplans%2Ba')
  await server.request('PUT', '/work%2Fplans%2Ba/one', { body: { text: 'x' } })
  const before = await serverHistories(server, 'notes')
  const to = join(await temporaryFolder(t), 'exports')
  const done = await run(t, server.dataDir, ['export', '--all', '--to', to])
  t.match(done, { code: 0, stdout: '', stderr: /^Exported 3 databases to .*exports\.\n$/ })
  t.same((await readdir(to)).sort(), ['_users.json.gz', 'notes.json.gz', 'work%2Fplans%2Ba.json.gz'])
  const imported = await run(t, server.dataDir, ['import', 'copy', '--from', join(to, 'notes.json.gz')])
  t.equal(imported.code, 0, imported.stderr)
  t.strictSame(await serverHistories(server, 'copy'), before)
  t.match(await run(t, server.dataDir, ['export', '--all', '--to', to]), { code: 1, stderr: /is not empty/ })
})

t.test('refusals', async (t) => {
  const server = await startTestServer(t)
  const { dataDir } = server
  const folder = await temporaryFolder(t)
  const file = join(folder, 'backup')
  const rev = `1-${'a'.repeat(32)}`
  const line = (...ids: string[]) => `${JSON.stringify(ids.map((_id) => ({ _id, _rev: rev })))}\n`
  const head = '{"name":"@cloudant/couchbackup","version":"2.11.0","mode":"full"}\n'
  const asked = (...args: string[]) => run(t, dataDir, args)
  const count = async (db: string) => (await server.request('GET', `/${db}`)).json.doc_count

  await writeFile(file, head + line('a') + line('b', 'c'))
  t.match(await asked('import', 'notes', '--from', file), { code: 0, stderr: /: 3 documents/ })
  t.match(await asked('import', 'notes', '--from', file), {
    code: 1,
    stderr:
      /^settee: The database notes holds 3 documents and 0 deleted documents; nothing was imported\. Use --merge/,
  })
  await writeFile(file, head + line('a', 'd'))
  t.match(await asked('import', 'notes', '--from', file, '--merge'), { code: 0, stderr: /: 1 documents/ })

  await writeFile(
    file,
    `${head}${line('a')}[{"_id":"b"${'{"marker":"@cloudant/couchbackup:resume"}'}\n${line('b')}`,
  )
  t.match(await asked('import', 'resumed', '--from', file), { code: 0, stderr: /: 2 documents/ })

  await writeFile(file, `${head}${line('a')}${line('b').slice(0, -9)}`)
  t.match(await asked('import', 'cut', '--from', file), {
    code: 1,
    stderr: /^settee: Line 3 cannot be imported/,
  })
  t.equal(await count('cut'), 1)

  await writeFile(`${file}.gz`, gzipSync(head + line('a')).subarray(0, -12))
  t.match(await asked('import', 'cut gzip', '--from', `${file}.gz`), { code: 1, stderr: /^settee: / })
  await writeFile(file, 'no backup\n')
  t.match(await asked('import', 'none', '--from', file), {
    code: 1,
    stderr: /^settee: This is not a couchbackup file/,
  })
  await writeFile(file, '')
  t.match(await asked('import', 'none', '--from', file), { code: 1, stderr: /^settee: The file is empty/ })
  t.equal((await server.request('GET', '/none')).status, 404, 'nothing was made')
  t.match(await asked('import', 'Bad name', '--from', file), { code: 1 })
  t.match(await asked('import', 'none', '--from', join(folder, 'nowhere')), { code: 1, stderr: /ENOENT/ })

  await writeFile(file, head + line('_bad', 'good'))
  t.match(await asked('import', 'bad', '--from', file), {
    code: 1,
    stderr: /^settee: Line 2 cannot be imported/,
  })

  t.match(await asked('export', 'nowhere', '--to', join(folder, 'new')), {
    code: 1,
    stderr: /does not exist/,
  })
  await t.rejects(stat(join(folder, 'new')), { code: 'ENOENT' }, 'no file is left')
  t.match(await asked('export', 'notes', '--to', file), { code: 1, stderr: /cannot be created \(EEXIST\)/ })
  t.match(await asked('export'), { code: 1, stderr: /needs the name of a database/ })
  t.match(await asked('import', 'notes', '--to', 'x'), { code: 1, stderr: /has no option --to/ })
})

t.test('an interrupted export leaves no file behind', async (t) => {
  const server = await startTestServer(t)
  await server.request('PUT', '/notes')
  await attach(server, 'notes')
  await server.close()
  const to = join(await temporaryFolder(t), 'notes.gz')
  const isThere = () =>
    stat(to).then(
      () => true,
      () => false,
    )
  // On a busy machine, the export may end before the signal arrives.
  for (let code: unknown = 0; code === 0; ) {
    await rm(to, { force: true })
    const { dataDir } = server
    const child = builtSettee(t, ['export', 'notes', '--to', to], { env: { SETTEE_DATA: dataDir } })
    while (!(await isThere())) await delay(5)
    child.process.kill('SIGINT')
    code = (await child.ended).code
    if (code !== 0) t.equal(code, 'SIGINT')
  }
  t.notOk(await isThere())
})

t.test('bytes with three digits', async (t) => {
  const cases: [bytes: number, text: string][] = [
    [0, '0 B'],
    [999, '999 B'],
    [1000, '1.00 kB'],
    [9_994, '9.99 kB'],
    [9_995, '10.0 kB'],
    [99_960, '100 kB'],
    [999_600, '1.00 MB'],
    [123_456_789, '123 MB'],
    [2 ** 50, '1.13 PB'],
  ]
  for (const [bytes, text] of cases) t.equal(shown(bytes), text)
  t.equal(tableOf([]), '')
})

t.test('all databases, one database, and a missing one', async (t) => {
  const server = await startTestServer(t)
  const { dataDir } = server
  for (const name of ['notes', 'a-longer-name']) await server.request('PUT', `/${name}`)
  await server.request('PUT', '/notes/x', { body: { text: 'a'.repeat(50_000) } })
  for (const isRunning of [true, false]) {
    if (!isRunning) await server.close()
    const { code, stdout, stderr } = await run(t, dataDir, ['size'])
    t.match({ code, stderr }, { code: 0, stderr: '' })
    const [head, ...lines] = stdout.trimEnd().split('\n')
    t.match(head, /^database +file +live +old +kept +tombstones +attachments +other +free$/)
    t.same(
      lines.map((line) => line.split(' ')[0]),
      ['_users', 'a-longer-name', 'notes', 'all'],
    )
    t.match(lines[2], /50\.0 kB/)
    t.equal(
      new Set(
        stdout
          .trimEnd()
          .split('\n')
          .map((line) => line.length),
      ).size,
      1,
      'columns',
    )
    const one = await run(t, dataDir, ['size', 'notes', '--json'])
    const { database, file, parts } = JSON.parse(one.stdout)
    t.match({ database, parts }, { database: 'notes', parts: { live: { count: 1 } } })
    t.ok(file > 50_000)
    t.match(await run(t, dataDir, ['size', 'none']), {
      code: 1,
      stdout: '',
      stderr: /^settee: .*not exist.*\n$/,
    })
  }
  await truncate(join(dataDir, 'databases', 'notes.sqlite'), 5000)
  const broken = await run(t, dataDir, ['size'])
  t.match(broken, { code: 1, stdout: /a-longer-name/, stderr: /^settee: notes: [^\n]+\n$/ })
})
