/** `settee move` on the command line: passwords, what is printed, exit codes, and folders of couchbackup files. */
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { build, builtSettee } from '../../cli/child.ts'
import { startTestServer, temporaryFolder } from '../../helpers/server.ts'
import { backUp, fill } from '../../protocol/couchbackup.ts'
import { serverHistories } from '../../protocol/histories.ts'

t.before(() => build(t))
t.setTimeout(120_000)

const PASSWORD = 'old & secret/9'

t.test('a stopped server takes everything over', async (t) => {
  const env = { COUCHDB_USER: 'anna', COUCHDB_PASSWORD: PASSWORD }
  const old = await startTestServer(t, { env })
  const auth = `anna:${PASSWORD}`
  await old.request('PUT', '/notes', { auth })
  await old.request('PUT', '/notes/a', { auth, body: { text: 'a note' } })
  await old.request('PUT', '/notes/_security', { auth, body: {} })
  const limit = '/_node/_local/_config/couchdb/max_document_size'
  await old.request('PUT', limit, { auth, body: JSON.stringify('20000000') })
  const big = { text: 'x'.repeat(9_000_000) }
  t.equal((await old.request('PUT', '/notes/big', { auth, body: big })).status, 201)
  const dataDir = await temporaryFolder(t)
  const from = old.url.replace('://', '://anna@')
  const run = (args: readonly string[], options: object = {}) =>
    builtSettee(t, ['move', from, ...args, '--data', dataDir], options).ended
  const given = { env: { SETTEE_MOVE_PASSWORD: PASSWORD } }

  const nobody = await run([])
  t.match([nobody.code, nobody.stderr], [1, /SETTEE_MOVE_PASSWORD, or with --stdin/])
  const wrong = await run(['--stdin'], { input: 'wrong\n' })
  t.match([wrong.code, wrong.stderr, wrong.stdout], [1, /^settee: .*Name or password is incorrect/, ''])
  const planned = await run(['--dry-run'], given)
  t.equal(planned.code, 0, planned.stderr)
  t.match(planned.stdout, /^notes +2 +0 .*\n(?:.*\n)*This server takes over the uuid \w+\.\n/m)
  t.match(
    planned.stdout,
    /Setting admins\/anna\nSetting couchdb\/max_document_size = 20000000\nnotes: the old server admits everybody, since _security has no members; here only admins have access, until PUT \/notes\/_security names members\nNothing was changed\.\n$/,
  )
  const moved = await run(['--stdin'], { input: `${PASSWORD}\n` })
  t.equal(moved.code, 0, moved.stderr)
  t.match(moved.stdout, /^notes +2 +0 +2 +(\w{12}) +\1 +1 +0 +complete\n/m)
  t.match(moved.stdout, /^notes: the old server admits everybody/m)
  t.match(moved.stdout, /Everything is here: 2 databases\.\n$/)
  const again = await run(['--json', '--db', 'notes'], given)
  t.match(JSON.parse(again.stdout), { databases: [{ name: 'notes', isComplete: true }], failed: [] })
  for (const { stdout, stderr } of [nobody, wrong, planned, moved, again]) {
    t.notOk(
      `${stdout}${stderr}`.includes(PASSWORD) || `${stdout}${stderr}`.includes(encodeURIComponent(PASSWORD)),
    )
  }
  const missing = await run(['--db', 'none'], given)
  t.match([missing.code, missing.stderr], [1, /^settee: .*does not exist/])

  const { uuid } = (await old.request('GET', '/')).json
  const here = await startTestServer(t, { dataDir })
  t.equal((await here.request('GET', '/')).json.uuid, uuid)
  t.match((await here.request('GET', '/notes/a', { auth })).json, { text: 'a note' })
})

t.test('a folder of couchbackup files', async (t) => {
  const old = await startTestServer(t)
  await fill(old, 'notes')
  await fill(old, 'with%2Fslash')
  await old.request('PUT', '/_users/org.couchdb.user:ben', {
    body: { name: 'ben', type: 'user', roles: [], password: 'p' },
  })
  const folder = join(await temporaryFolder(t), 'files')
  await mkdir(folder)
  for (const name of ['notes', 'with%2Fslash', '_users'])
    await backUp(old, name, join(folder, `${name}.backup`))
  await writeFile(join(folder, 'README'), 'no backup')
  const here = await startTestServer(t)
  const run = (...args: string[]) => builtSettee(t, ['move', folder, ...args, '--data', here.dataDir]).ended

  const planned = await run('--dry-run')
  t.match([planned.code, planned.stdout.split('\n').length], [0, 4])
  const first = await run()
  t.equal(first.code, 0, first.stderr)
  t.match(
    first.stdout,
    /^_users: 1 documents, .*\nnotes: \d+ documents, \d+ deleted documents\nwith\/slash: /,
  )
  for (const name of ['notes', 'with%2Fslash'])
    t.same(await serverHistories(here, name), await serverHistories(old, name))
  t.equal((await here.request('GET', '/_users/org.couchdb.user:ben')).status, 200)
  const again = await run('--db', 'notes')
  t.match([again.code, again.stdout], [1, /^Not moved: notes: .*--merge/])
  t.equal((await run('--db', 'notes', '--merge')).code, 0)
  t.match((await run('--db', 'none')).stderr, /has no file of the database none/)
  const elsewhere = await builtSettee(t, ['move', `${folder}-none`, '--data', here.dataDir]).ended
  t.match([elsewhere.code, elsewhere.stderr], [1, /cannot be read \(ENOENT\)/])
})
