import { once } from 'node:events'
import { chmod, lstat, readdir, readFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { join } from 'node:path'
import t from 'tap'
import { frugally } from '../../src/cli/serve-command.ts'
import { temporaryFolder } from '../helpers/server.ts'
import { builtSettee, freePort, ROOT, start, untilUp } from './child.ts'

t.before(async () => {
  const { code, stdout, stderr } = await start(t, process.execPath, ['scripts/build.mjs'], { cwd: ROOT })
    .ended
  if (code !== 0) throw new Error(`${stdout}${stderr}`)
})

t.test('the server starts, answers, and ends at SIGTERM and SIGINT', async (t) => {
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    const port = await freePort()
    const child = builtSettee(t, [
      'serve',
      '--port',
      String(port),
      '--data',
      join(t.testdir(), 'new', 'data'),
    ])
    t.match(await untilUp(child, `http://127.0.0.1:${port}`), { status: 'ok' })
    child.process.kill(signal)
    const { code, stdout, stderr } = await child.ended
    t.equal(code, 0, signal)
    t.equal(stderr, '')
    t.match(stdout, `http://127.0.0.1:${port}`, 'the URL is told')
  }
})

t.test('nobody else reads what it writes, nor what it wrote with another umask', async (t) => {
  const folder = await temporaryFolder(t)
  const dataDir = join(folder, 'data')
  const port = await freePort()
  const url = `http://127.0.0.1:${port}`
  const begin = async () => {
    const shell = `umask 022; exec "${process.execPath}" dist/cli/main.js --port ${port} --data "${dataDir}"`
    const child = start(t, 'sh', ['-c', shell], { cwd: ROOT })
    await untilUp(child, url)
    return async () => {
      child.process.kill('SIGTERM')
      t.equal((await child.ended).code, 0)
    }
  }
  const body = JSON.stringify({ text: 'x'.repeat(100_000) })
  const write = async (name: string) => {
    for (const path of [name, `${name}/doc`])
      await fetch(`${url}/${path}`, { method: 'PUT', body: path === name ? null : body })
    await fetch(`${url}/_config/couchdb/max_dbs_open`, { method: 'PUT', body: '"99"' })
  }
  const settee = async (...args: string[]) => {
    const { code, stderr } = await builtSettee(t, args, { env: { SETTEE_DATA: dataDir } }).ended
    t.equal(code, 0, stderr)
  }
  /** What others may read or write, but for what stands in a folder that they may not enter. */
  const open = async () => {
    const found = await readdir(folder, { recursive: true })
    t.ok(found.length > 12, found.join(' '))
    const modes = await Promise.all(
      found.map(async (name) => [name, (await lstat(join(folder, name))).mode & 0o77] as const),
    )
    return modes.filter(([name, mode]) => mode !== 0 && !name.endsWith('settee.sock')).map(([name]) => name)
  }
  const stop = await begin()
  await write('notes')
  await settee('backup')
  await settee('export', 'notes', '--to', join(folder, 'notes.export'))
  t.strictSame(await open(), [])
  await stop()
  for (const name of ['server.sqlite', 'local.ini', 'databases/notes.sqlite'])
    await chmod(join(dataDir, name), 0o644)
  const end = await begin()
  await write('more')
  t.strictSame(await open(), [])
  await end()
})

t.test('the process that was started begins anew with settings for memory', async (t) => {
  const chosen = [
    { execArgv: ['--max-semi-space-size=4'], env: {} },
    { execArgv: [], env: { NODE_OPTIONS: '--max-semi-space-size=4' } },
    { execArgv: [], env: { MALLOC_TRIM_THRESHOLD_: '0' } },
  ]
  for (const started of chosen) t.equal(frugally(started), null, 'what was chosen stays')
  const { execArgv, env } = frugally({ execArgv: ['--inspect'], env: { HOME: '/' } }) ?? {}
  t.same(execArgv, ['--inspect', '--max-semi-space-size=8'])
  t.match(env, { HOME: '/', MALLOC_TRIM_THRESHOLD_: /^\d+$/ })
  if (process.platform !== 'linux' || process.execve === undefined) return
  const port = await freePort()
  const child = builtSettee(t, ['--port', String(port), '--data', join(t.testdir(), 'data')])
  await untilUp(child, `http://127.0.0.1:${port}`)
  const words = await readFile(`/proc/${child.process.pid}/cmdline`, 'utf8')
  t.match(words.split('\0'), [
    process.execPath,
    '--max-semi-space-size=8',
    /main\.js$/,
    '--port',
    String(port),
  ])
  t.match(await readFile(`/proc/${child.process.pid}/environ`, 'utf8'), 'MALLOC_TRIM_THRESHOLD_=')
  child.process.kill('SIGTERM')
  t.equal((await child.ended).code, 0)
})

t.test('the environment is heard', async (t) => {
  const port = await freePort()
  const env = { SETTEE_PORT: String(port), SETTEE_DATA: t.testdir() }
  const child = builtSettee(t, [], { env })
  await untilUp(child, `http://127.0.0.1:${port}`)
  child.process.kill('SIGTERM')
  t.equal((await child.ended).code, 0)
})

const PROXY = '[chttpd]\nauthentication_handlers = {chttpd_auth, proxy_authentication_handler}\n'

t.test('what keeps it from starting is one line and exit code 1', async (t) => {
  const dataDir = t.testdir({
    file: '',
    bad: { 'local.ini': '[log]\nlevel = loud\n' },
    proxy: { 'local.ini': PROXY },
  })
  const port = await freePort()
  const first = builtSettee(t, ['--port', String(port), '--data', join(dataDir, 'held')])
  await untilUp(first, `http://127.0.0.1:${port}`)
  const busy = createServer().listen(0, '127.0.0.1')
  await once(busy, 'listening')
  t.teardown(() => busy.close())
  const taken = String((busy.address() as { port: number }).port)
  const table: [what: string, args: string[], line: RegExp][] = [
    [
      'port in use',
      ['--port', taken, '--data', join(dataDir, 'x')],
      /Port \d+ on 127\.0\.0\.1 is already in use/,
    ],
    [
      'not its address',
      ['--bind', '192.0.2.1', '--port', '0', '--data', join(dataDir, 'y')],
      /no address 192\.0\.2\.1/,
    ],
    ['no folder', ['--port', '0', '--data', join(dataDir, 'file', 'data')], /file/],
    ['unwritable', ['--port', '0', '--data', '/proc/settee'], /\/proc/],
    ['held', ['--port', '0', '--data', join(dataDir, 'held')], /held/],
    [
      'bad level',
      ['--port', '0', '--data', join(dataDir, 'z'), '--log-level', 'loud'],
      /--log-level must be one of/,
    ],
    [
      'bad local.ini',
      ['--port', '0', '--data', join(dataDir, 'bad')],
      /^Line 2 of .*local\.ini: log\/level must be one of/,
    ],
  ]
  table.push([
    'anybody is believed',
    ['--port', '0', '--data', join(dataDir, 'proxy')],
    /^Proxy authentication .* needs either settee\/trusted_proxies or/,
  ])
  for (const [what, args, line] of table) {
    const { code, stderr } = await builtSettee(t, args).ended
    t.equal(code, 1, what)
    t.match(stderr, line, what)
    t.match(stderr, /^[^\n]+\n$/, `${what}: one line`)
    t.notMatch(stderr, /\bat .*:\d+:\d+/, `${what}: no stack`)
  }
})
