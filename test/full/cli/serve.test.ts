import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { chmod, lstat, readdir, readFile } from 'node:fs/promises'
import { connect, createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { memorySettings } from '../../../src/cli/serve-command.ts'
import { build, builtSettee, endOf, freePort, ROOT, start, untilUp } from '../../cli/child.ts'
import { startTestServer, temporaryFolder } from '../../helpers/server.ts'

t.before(() => build(t))

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

t.test('other users cannot read its files, even those created with another umask', async (t) => {
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
  /** The files that other users may read or write, except in folders that they may not enter. */
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

t.test('the process restarts itself with memory settings', async (t) => {
  const chosen = [
    { execArgv: ['--max-semi-space-size=4'], env: {} },
    { execArgv: [], env: { NODE_OPTIONS: '--max-semi-space-size=4' } },
    { execArgv: [], env: { MALLOC_TRIM_THRESHOLD_: '0' } },
  ]
  for (const started of chosen)
    t.equal(memorySettings(started), null, 'memory settings that the operator has chosen are kept')
  const { execArgv, env } = memorySettings({ execArgv: ['--inspect'], env: { HOME: '/' } }) ?? {}
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

t.test('the environment sets the configuration', async (t) => {
  const port = await freePort()
  const env = { SETTEE_PORT: String(port), SETTEE_DATA: t.testdir() }
  const child = builtSettee(t, [], { env })
  await untilUp(child, `http://127.0.0.1:${port}`)
  child.process.kill('SIGTERM')
  t.equal((await child.ended).code, 0)
})

const PROXY = '[chttpd]\nauthentication_handlers = {chttpd_auth, proxy_authentication_handler}\n'

t.test('a failed start prints one line and has exit code 1', async (t) => {
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
  const busyPort = String((busy.address() as { port: number }).port)
  const table: [what: string, args: string[], line: RegExp][] = [
    [
      'port in use',
      ['--port', busyPort, '--data', join(dataDir, 'x')],
      /Port \d+ on 127\.0\.0\.1 is already in use/,
    ],
    [
      'not its address',
      ['--bind', '192.0.2.1', '--port', '0', '--data', join(dataDir, 'y')],
      /does not have the address 192\.0\.2\.1/,
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
    const { code, stderr } = await endOf(builtSettee(t, args))
    t.equal(code, 1, what)
    t.match(stderr, line, what)
    t.match(stderr, /^[^\n]+\n$/, `${what}: one line`)
    t.notMatch(stderr, /\bat .*:\d+:\d+/, `${what}: no stack`)
  }
})

/** The server as `settee serve` runs it, except for threads from the sources. */
const SCRIPT = `
  import { runUntilSignalled } from './src/cli/serve-command.ts'
  import { startServer } from './src/server.ts'
  const [dataDir, port, logLevel] = process.argv.slice(1)
  await runUntilSignalled(() => startServer({
    dataDir, env: {}, flags: { port: Number(port), ...(logLevel && { logLevel }) },
    threadEntry: new URL('test/helpers/database-thread.mjs', 'file://' + process.cwd() + '/'),
    sandboxEntry: new URL('test/helpers/sandbox-thread.mjs', 'file://' + process.cwd() + '/'),
  }))`

t.test('SIGHUP reloads local.ini; an error in it changes nothing', async (t) => {
  const dataDir = await temporaryFolder(t)
  const port = await freePort()
  const url = `http://127.0.0.1:${port}`
  const child = start(t, process.execPath, ['--input-type=module', '--eval', SCRIPT, dataDir, String(port)])
  await untilUp(child, url)
  let output = ''
  child.process.stdout?.on('data', (chunk: Buffer) => (output += chunk.toString()))
  const logged = async (text: RegExp): Promise<void> => {
    while (!text.test(output)) await new Promise((resolve) => child.process.stdout?.once('data', resolve))
  }
  const value = async () => (await fetch(`${url}/_config/a/b`)).text()

  writeFileSync(join(dataDir, 'local.ini'), '[a]\nb = one\n')
  child.process.kill('SIGHUP')
  await logged(/"changed":\["a\/b"\].*reloaded the configuration/)
  t.equal(await value(), '"one"\n')

  writeFileSync(join(dataDir, 'local.ini'), '[a]\nb = two\nc\n')
  child.process.kill('SIGHUP')
  await logged(/Line 3 of .*local\.ini is not a section.*has an error; nothing changed/)
  t.equal(await value(), '"one"\n')

  child.process.kill('SIGTERM')
  t.match(await child.ended, { code: 0, stderr: '' })
})

const FEEDS = 50
/** More bytes than the buffers of both ends of a connection hold. */
const BIG = Buffer.alloc(20_000_000, 'settee ')

interface Connection {
  readonly ended: Promise<unknown>
  /** The bytes received so far. */
  text(): string
}

/** Opens a connection, and sends a text. Resolves when the answer has begun, if the test waits for one. */
async function open(
  t: Test,
  port: number,
  sent: string,
  begin = true,
): Promise<Connection & { socket: Socket }> {
  const socket = connect(port, '127.0.0.1')
  t.teardown(() => socket.destroy())
  let text = ''
  socket.setEncoding('latin1').on('data', (chunk: string) => {
    text += chunk
  })
  socket.on('error', () => undefined)
  const ended = once(socket, 'close')
  await once(socket, 'connect')
  if (sent !== '') socket.write(sent)
  if (begin) await once(socket, 'data')
  return { socket, ended, text: () => text }
}

function get(path: string): string {
  return `GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`
}

t.test('it stops in time, whatever its clients do', async (t) => {
  const dataDir = await temporaryFolder(t)
  const port = await freePort()
  const url = `http://127.0.0.1:${port}`
  const node = ['--input-type=module', '--eval', SCRIPT, dataDir, String(port), 'warning']
  const child = start(t, process.execPath, node)
  await untilUp(child, url)
  const put = async (path: string, body: string | Buffer | null) => {
    const answer = await fetch(url + path, { method: 'PUT', body })
    t.equal(answer.status, 201, path)
    await answer.arrayBuffer()
  }
  await put('/db', null)
  await put('/db/doc', '{"text":"kept"}')
  await put('/db/big/file', BIG)
  await put('/slow', null)
  await put('/slow/_design/x', '{"validate_doc_update":"function (doc) { if (doc.loop) for (;;); }"}')
  const timeout = await fetch(`${url}/_node/_local/_config/couchdb/os_process_timeout`, {
    method: 'PUT',
    body: '"60000"',
  })
  t.equal(timeout.status, 200)

  const continuous = get('/db/_changes?feed=continuous&heartbeat=10000')
  const feeds = await Promise.all(Array.from({ length: FEEDS }, () => open(t, port, continuous)))
  const longpoll = await open(t, port, get('/db/_changes?feed=longpoll&since=now'))
  const upload = await open(
    t,
    port,
    'PUT /db/half/file HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n',
  )
  upload.socket.write('x'.repeat(100_000))
  const download = await open(t, port, get('/db/big/file'))
  download.socket.pause()
  const loop = 'PUT /slow/doc HTTP/1.1\r\nHost: localhost\r\nContent-Length: 13\r\n\r\n{"loop":true}'
  const judged = await open(t, port, loop, false)
  const idle = await open(t, port, get('/db'))
  const silent = await open(t, port, '', false)

  const told = performance.now()
  child.process.kill('SIGTERM')
  for (const { ended } of [...feeds, longpoll, idle, silent]) await ended
  const feedsEnded = performance.now() - told
  const { code, stdout, stderr } = await child.ended
  const all = performance.now() - told
  t.ok(feedsEnded < 4000, `whoever only waits is let go at once: ${feedsEnded} ms`)
  t.ok(all < 10_000, `${all} ms`)
  t.strictSame([code, stderr], [0, ''])
  t.match(
    stdout,
    /"count":3,.*connections were cut/,
    'the upload, the download, and who waits for a function',
  )
  t.equal(judged.text(), '')
  for (const feed of feeds) t.match(feed.text(), /\{"last_seq":"[^"]+","pending":0\}\n\r\n0\r\n\r\n$/)
  t.match(longpoll.text(), /"last_seq":"[^"]+".*\r\n0\r\n\r\n$/s)
  t.match(upload.text(), /^HTTP\/1.1 100 Continue\r\n\r\n$/)

  const again = await startTestServer(t, { dataDir })
  t.match((await again.request('GET', '/db/doc')).json, { text: 'kept' })
  t.match(await again.request('GET', '/db/big/file'), { status: 200, text: BIG.toString() })
  t.match(await again.request('GET', '/db/half'), { status: 404 })
  t.match(await again.request('GET', '/slow/doc'), { status: 404 })
})
