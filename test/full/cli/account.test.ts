/** `settee passwd` and `settee account`, on a running and on a stopped server. */
import { type ChildProcessWithoutNullStreams, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { chown, mkdir, readFile, rename, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { build, builtSettee, ROOT, start } from '../../cli/child.ts'
import { startTestServer, type TestServer, temporaryFolder } from '../../helpers/server.ts'

t.before(() => build(t))

/** Runs a command on a data folder: exit code, standard output, standard error. */
async function run(t: Test, dataDir: string, args: string[], input?: string, env: NodeJS.ProcessEnv = {}) {
  const options = { env: { SETTEE_DATA: dataDir, ...env }, ...(input !== undefined && { input }) }
  const { code, stdout, stderr } = await builtSettee(t, args, options).ended
  return [code, stdout, stderr]
}

/** The answer to a name and a password at a route for server admins only. */
async function statusOf(server: TestServer, auth: string): Promise<number> {
  return (await server.request('GET', '/_all_dbs', { auth })).status
}

t.test('on a running server: at once, and without any password', async (t) => {
  const server = await startTestServer(t)
  const { dataDir } = server
  await server.request('PUT', '/_node/_local/_config/chttpd_auth/iterations', { body: '"10"' })
  const asked = (args: string[], input?: string) => run(t, dataDir, args, input)

  t.strictSame(await asked(['passwd', 'anna', '--stdin', '--create'], 'old\n'), [
    0,
    'anna is now a server admin.\n',
    '',
  ])
  t.equal(await statusOf(server, 'anna:old'), 200)
  const changed = 'Changed the password of the server admin anna.\n'
  t.strictSame(await asked(['passwd', 'anna', '--stdin'], 'new'), [0, changed, ''])
  t.strictSame([await statusOf(server, 'anna:old'), await statusOf(server, 'anna:new')], [401, 200])

  const add = ['account', 'add', 'bob', '--stdin', '--role', 'staff']
  t.strictSame(await asked(add, 'b\n'), [0, 'Created the account bob.\n', ''])
  const doc = await server.request('GET', '/_users/org.couchdb.user:bob', { auth: 'anna:new' })
  t.match(doc.json, { name: 'bob', type: 'user', roles: ['staff'] })
  t.strictSame(await asked(add, 'b\n'), [1, '', 'settee: There is an account bob already.\n'])
  const passwd = 'Changed the password of the account bob.\n'
  t.strictSame(await asked(['passwd', 'bob', '--stdin'], 'c\n'), [0, passwd, ''])
  t.strictSame(await asked(['account', 'list']), [0, 'anna\tadmin\t_admin\nbob\taccount\tstaff\n', ''])
  t.strictSame(await asked(['account', 'delete', 'bob']), [0, 'Deleted the account bob.\n', ''])
  const gone = await server.request('GET', '/_users/org.couchdb.user:bob', { auth: 'anna:new' })
  t.equal(gone.status, 404)
  const last = /^settee: anna is the last server admin; [^\n]+\n$/
  t.match(await asked(['account', 'delete', 'anna']), [1, '', last])
})

t.test('deleting an account deletes its tokens', async (t) => {
  const server = await startTestServer(t)
  const { dataDir } = server
  await server.request('PUT', '/_node/_local/_config/chttpd_auth/iterations', { body: '"10"' })
  const token = async (name: string) => {
    const { status, json } = await server.request('POST', '/_settee/tokens', {
      auth: `${name}:x`,
      body: { name: 'phone', admin: true },
    })
    t.equal(status, 201)
    return `${name}:${json.token}`
  }
  for (const name of ['anna', 'bob', 'cy'])
    await run(t, dataDir, ['passwd', name, '--stdin', '--create'], 'x')
  const [bobs, cys] = [await token('bob'), await token('cy')]
  t.strictSame([await statusOf(server, bobs), await statusOf(server, cys)], [200, 200])
  t.match(await run(t, dataDir, ['account', 'delete', 'bob']), [0, 'Deleted the server admin bob.\n', ''])
  t.strictSame([await statusOf(server, bobs), await statusOf(server, cys)], [401, 200])
  await server.close()
  t.match(await run(t, dataDir, ['account', 'delete', 'cy']), [0, 'Deleted the server admin cy.\n', ''])
  t.match(await run(t, dataDir, ['passwd', 'cy', '--stdin', '--create'], 'x'), [0])
  const again = await startTestServer(t, { dataDir })
  t.strictSame([await statusOf(again, cys), await statusOf(again, 'cy:x')], [401, 200])
})

t.test('on a stopped server', async (t) => {
  const dataDir = await temporaryFolder(t)
  const asked = (args: string[], input?: string, env?: NodeJS.ProcessEnv) => run(t, dataDir, args, input, env)
  const none = await asked(['passwd', 'anna', '--stdin'], 'x')
  const line =
    'settee: There is neither an account nor a server admin anna. To create a server admin, add --create.\n'
  t.strictSame(none, [1, '', line])
  t.match(await asked(['passwd', 'anna', '--stdin', '--create'], 'pa:ss'), [0])
  t.match(await readFile(join(dataDir, 'local.ini'), 'utf8'), /^anna = -pbkdf2:/m)
  t.match(await asked(['account', 'add', 'bob', '--stdin'], 'b'), [0])
  t.strictSame(await asked(['account', 'list']), [0, 'anna\tadmin\t_admin\nbob\taccount\t\n', ''])
  const fixed = await asked(['passwd', 'anna', '--stdin'], 'x', {
    COUCHDB_USER: 'anna',
    COUCHDB_PASSWORD: 'y',
  })
  t.match(fixed, [
    0,
    /^Changed the password of the server admin anna\.\n$/,
    /^settee: COUCHDB_PASSWORD sets the password of anna at each start/,
  ])
  t.match(await asked(['passwd', 'anna', '--stdin'], 'pa:ss'), [0])

  const server = await startTestServer(t, { dataDir })
  t.equal(await statusOf(server, 'anna:pa:ss'), 200)
  const { status } = await server.request('GET', '/_users/org.couchdb.user:bob', { auth: 'anna:pa:ss' })
  t.equal(status, 200)
  await rename(join(dataDir, 'control'), join(dataDir, 'elsewhere'))
  const held = await asked(['account', 'list'])
  t.match(held, [
    1,
    '',
    /^settee: .* is in use by another settee process\. Its control socket does not answer\. [^\n]+\n$/,
  ])
})

t.test('an error is one line', async (t) => {
  const dataDir = await temporaryFolder(t)
  const bad = join(dataDir, 'bad')
  await mkdir(bad)
  await writeFile(join(bad, 'local.ini'), '[log]\nlevel = loud\n')
  const table: [args: string[], input: string | undefined, line: RegExp][] = [
    [['passwd', 'anna'], undefined, /typed on a terminal only; .* add --stdin/],
    [['passwd', 'anna', '--stdin', '--create'], '', /no password on standard input/],
    [['passwd', 'a:b', '--stdin', '--create'], 'x', /must not contain a colon/],
    [['passwd', 'anna', '--stdin', '--create', '--data', bad], 'x', /local\.ini: log\/level must be one of/],
    [
      ['account', 'list', '--data', join(dataDir, 'none')],
      undefined,
      /The data folder .*none does not exist/,
    ],
    [['account', 'list', '--data', join(bad, 'local.ini')], undefined, /is a file/],
    [['account', 'delete', 'nobody\u001b[2J'], undefined, /neither .* nobody\\u\{1b\}\[2J\./],
  ]
  for (const [args, input, line] of table) {
    const [code, stdout, stderr] = await run(t, dataDir, args, input)
    t.strictSame([code, stdout], [1, ''], args.join(' '))
    t.match(stderr, line)
    t.match(stderr, /^settee: [^\n]+\n$/)
  }
  await t.rejects(stat(join(dataDir, 'none')), { code: 'ENOENT' }, 'no folder is made by mistake')
})

const hasScript = spawnSync('script', ['--version']).status === 0
t.test(
  'on a terminal',
  { skip: !hasScript && 'the program `script`, which makes one, is missing' },
  async (t) => {
    const dataDir = await temporaryFolder(t)
    /** Types each line after its question appears. */
    const typed = async (args: string[], dialogue: [question: string, line: string][]) => {
      const command = [process.execPath, join(ROOT, 'dist', 'cli', 'main.js'), ...args, '--data', dataDir]
      const child = start(t, 'script', ['-qefc', command.join(' '), '/dev/null'], { input: null })
      const { stdin, stdout } = child.process as ChildProcessWithoutNullStreams
      let screen = ''
      stdout.on('data', (chunk: Buffer) => {
        screen += chunk.toString()
      })
      for (const [question, line] of dialogue) {
        while (!screen.includes(question)) await once(stdout, 'data')
        stdin.write(`${line}\r`)
      }
      return child.ended
    }
    const made = await typed(
      ['passwd', 'anna'],
      [
        ['New password for anna', 'geheim'],
        ['Repeat the password', 'geheim'],
        ['Create a server admin?', 'y'],
      ],
    )
    t.match(made, { code: 0, stdout: /anna is now a server admin\./ })
    t.notMatch(made.stdout, 'geheim')
    const refused = await typed(
      ['passwd', 'bob'],
      [
        ['New password for bob', 'x'],
        ['Repeat the password', 'x'],
        ['Create a server admin?', ''],
      ],
    )
    t.match(refused, { code: 1, stdout: /settee: Nothing has changed\./ })
    const cancelled = await typed(['passwd', 'anna'], [['New password for anna', 'x\u0003']])
    t.match(cancelled, { code: 1, stdout: /settee: Cancelled; nothing has changed\./ })
  },
)

t.test(
  'root leaves no file that the server cannot read',
  { skip: process.getuid?.() !== 0 && 'not root' },
  async (t) => {
    const dataDir = await temporaryFolder(t)
    await chown(dataDir, 65534, 65534)
    t.match(await run(t, dataDir, ['passwd', 'anna', '--stdin', '--create'], 'x'), [0])
    for (const name of ['local.ini', 'server.sqlite', 'databases']) {
      t.equal((await stat(join(dataDir, name))).uid, 65534, name)
    }
  },
)
