import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { openConfig } from '../../src/config/config.ts'
import type { ConfigOptions } from '../../src/config/read-sources.ts'
import { HOSTED_POLICY, settingsOf } from '../../src/config/settings.ts'
import { StartError } from '../../src/config/start-error.ts'

const open = (dataDir: string, options: Partial<ConfigOptions> = {}) =>
  openConfig({ dataDir, env: {}, flags: {}, ...options })
interface Refusal {
  name: string
  status: number
  error: string
  reason?: string | RegExp
}
const folder = (t: Test, ini?: string): string => t.testdir(ini === undefined ? {} : { 'local.ini': ini })

t.test('without a file the defaults are listed, as strings', async (t) => {
  const config = await open(folder(t))
  const all = config.all()
  t.match(all, {
    chttpd: { port: '5984', max_http_request_size: '4294967296' },
    couchdb: { max_document_size: '8000000' },
  })
  t.strictSame(all.log, { level: 'info' }, 'unset keys are not listed')
  t.notOk('admins' in all)
  t.strictSame(config.section('nothing'), {})
  t.equal(config.get('chttpd_auth', 'secret'), undefined)
  t.notOk(existsSync(config.path), 'reading creates no file')
})

t.test('defaults < local.ini < environment < command line', async (t) => {
  const dataDir = folder(
    t,
    '[chttpd]\nport = 1\nbind_address = ::1\n[log]\nlevel = error\nfile = a.log\n[x.y]\nz = 1\n',
  )
  const env = { SETTEE_PORT: '2', SETTEE_LOG_LEVEL: ' warning ', SETTEE_BIND: '', COUCHDB_SECRET: 'shh' }
  const config = await open(dataDir, { env, flags: { port: 3, logFile: 'b.log' } })
  t.equal(config.integer('chttpd', 'port'), 3)
  t.equal(config.get('chttpd', 'bind_address'), '::1', 'an empty environment variable counts as unset')
  t.equal(config.get('log', 'level'), 'warning')
  t.equal(config.get('log', 'file'), 'b.log')
  t.equal(config.get('chttpd_auth', 'secret'), 'shh')
  t.strictSame(config.section('x.y'), { z: '1' })
})

t.test('a secret may be in a file', async (t) => {
  const dataDir = t.testdir({ secret: 's3\n', empty: '\n' })
  const config = await open(dataDir, { env: { COUCHDB_SECRET_FILE: join(dataDir, 'secret') } })
  t.equal(config.get('chttpd_auth', 'secret'), 's3')
  const refused = (env: NodeJS.ProcessEnv, message: RegExp) => t.rejects(open(dataDir, { env }), { message })
  await refused(
    { COUCHDB_SECRET_FILE: '/nowhere' },
    /^COUCHDB_SECRET_FILE: \/nowhere cannot be read \(ENOENT\)\.$/,
  )
  await refused({ COUCHDB_SECRET_FILE: join(dataDir, 'empty') }, /is empty/)
  await refused({ COUCHDB_SECRET_FILE: '/x', COUCHDB_SECRET: 'y' }, /both set/)
})

t.test('hosted mode keeps its accounts in _users while it runs, too', async (t) => {
  const config = await open(folder(t, '[settee]\nmode = hosted\n'), {})
  for (const section of ['chttpd_auth', 'couch_httpd_auth']) {
    await t.rejects(config.set(section, 'authentication_db', 'people'), {
      code: 'bad_request',
      reason: /_users/,
    })
  }
  t.equal(config.usersDatabase, '_users')
  await config.set('chttpd_auth', 'authentication_db', '_users')
})

t.test('nonsense at the start is one line that says where it stands', async (t) => {
  const table: [ini: string, options: Partial<ConfigOptions>, message: RegExp][] = [
    [
      '[chttpd]\nport = abc',
      {},
      /^Line 2 of .*local\.ini: chttpd\/port must be a whole number from 0 to 65535, not "abc"\.$/,
    ],
    ['[chttpd_auth]\nauthentication_db = _x', {}, /authentication_db must be the name of a database/],
    [
      '[couch_httpd_auth]\nauthentication_db = a\n[settee]\nmode = hosted',
      {},
      /^In hosted mode accounts are in _users/,
    ],
    ['[log]\nlevel = loud', {}, /log\/level must be one of debug, .*, not "loud"/],
    ['[a]\nb = 1\n\nword\n', {}, /^Line 4 of .*local\.ini is not a section, a setting or a comment\.$/],
    ['[a\nb = 1\n', {}, /^Line 1 of .*local\.ini is not a section: it must be a name between/],
    [
      '',
      { env: { SETTEE_PORT: '70000' } },
      /^SETTEE_PORT must be a whole number from 0 to 65535, not "70000"\.$/,
    ],
    ['', { flags: { logLevel: 'x' } }, /^--log-level must be one of/],
    ['', { flags: { port: -1 } }, /^--port must be/],
  ]
  for (const [ini, options, message] of table) {
    const error = await open(folder(t, ini), options).catch((error: unknown) => error)
    t.ok(error instanceof StartError)
    t.match(error, { message })
  }
  await t.rejects(open(t.testdir({ 'local.ini': {} })), { message: /cannot be read \(EISDIR\)/ })
  const latin1 = t.testdir()
  writeFileSync(join(latin1, 'local.ini'), Buffer.from('[a]\nb = \xe4\n', 'latin1'))
  await t.rejects(open(latin1), { message: /^Line 2 of .*local\.ini is not UTF-8\.$/ })
})

t.test('a change takes effect, is announced, and is stored', async (t) => {
  const dataDir = folder(t, '; mine\n[couchdb]\nmax_document_size = 1000 ; small\n')
  const config = await open(dataDir, { flags: { logLevel: 'error' } })
  const told: unknown[] = []
  const forget = config.onChange((...change) => told.push(change))
  t.equal(await config.set('couchdb', 'max_document_size', ' 2000 '), '1000')
  t.equal(await config.set('httpd', 'WWW-Authenticate', 'Basic realm="couchdb"'), '')
  t.equal(await config.set('log', 'level', 'debug'), 'error')
  t.equal(await config.set('x', 'y', 'memory', { persist: false }), '')
  t.equal(config.get('log', 'level'), 'debug', 'a value that was set at runtime overrides the command line')
  t.equal(settingsOf(config).limits.maxDocumentSize, 2000)
  t.equal(await config.delete('couchdb', 'max_document_size'), '2000')
  t.equal(settingsOf(config).limits.maxDocumentSize, 8_000_000, 'the default is back')
  t.equal(await config.delete('x', 'y'), 'memory')
  t.notOk('x' in config.all())
  forget()
  await config.set('x', 'y', 'z')
  t.strictSame(told, [
    ['couchdb', 'max_document_size', '2000'],
    ['httpd', 'WWW-Authenticate', 'Basic realm="couchdb"'],
    ['log', 'level', 'debug'],
    ['x', 'y', 'memory'],
    ['couchdb', 'max_document_size', '8000000'],
    ['x', 'y', undefined],
  ])
  const ini =
    '; mine\n[couchdb]\n\n[httpd]\nWWW-Authenticate = Basic realm="couchdb"\n\n[log]\nlevel = debug\n\n[x]\ny = z\n'
  t.equal(readFileSync(config.path, 'utf8'), ini)
  t.equal(statSync(config.path).mode & 0o777, 0o600)
  t.strictSame(readdirSync(dataDir), ['local.ini'])
  const again = await open(dataDir)
  t.strictSame([again.get('log', 'level'), again.get('x', 'y')], ['debug', 'z'])
})

t.test('edits by hand in the meantime are kept', async (t) => {
  const dataDir = folder(t, '[a]\nb = 1\n')
  const config = await open(dataDir)
  writeFileSync(config.path, '# new\n[a]\nb = 1\nc = 2\n')
  await config.set('a', 'b', '3')
  t.equal(readFileSync(config.path, 'utf8'), '# new\n[a]\nb = 3\nc = 2\n')
  t.equal(await config.stored('a', 'c'), '2')
  t.equal(config.get('a', 'c'), undefined)
})

t.test('writes at the same time are done one after the other', async (t) => {
  const config = await open(folder(t))
  const numbers = Array.from({ length: 20 }, (_, number) => String(number))
  const old = await Promise.all(numbers.map((number) => config.set('a', 'b', number)))
  t.strictSame(old, ['', ...numbers.slice(0, -1)])
  await Promise.all(numbers.map((number) => config.set('c', `k${number}`, number)))
  t.equal(Object.keys((await open(join(config.path, '..'))).section('c')).length, 20)
})

t.test('a write that fails changes nothing', async (t) => {
  const dataDir = folder(t, '[a]\nb = 1\n')
  const config = await open(dataDir)
  mkdirSync(`${config.path}.tmp/full`, { recursive: true }) // cannot be removed as a file: every write fails
  let told = 0
  config.onChange(() => {
    told += 1
  })
  const failure = {
    name: 'CouchError',
    status: 500,
    error: 'internal_server_error',
    reason: /local\.ini .*nothing has changed/,
  }
  await t.rejects(config.set('a', 'b', '2'), failure)
  await t.rejects(config.delete('a', 'b'), failure)
  t.equal(config.get('a', 'b'), '1')
  t.equal(told, 0)
  t.equal(
    await config.set('a', 'b', '3', { persist: false }),
    '1',
    'a failed write does not block later ones',
  )
  t.equal(readFileSync(config.path, 'utf8'), '[a]\nb = 1\n')
})

t.test('a link is followed, so that a mounted file stays where it is', async (t) => {
  const dataDir = t.testdir({ real: { 'my.ini': '[a]\nb = 1\n' } })
  chmodSync(join(dataDir, 'real', 'my.ini'), 0o644)
  symlinkSync(join(dataDir, 'real', 'my.ini'), join(dataDir, 'local.ini'))
  const config = await open(dataDir)
  await config.set('a', 'b', '2')
  t.equal(readFileSync(join(dataDir, 'real', 'my.ini'), 'utf8'), '[a]\nb = 2\n')
})

t.test('refusals', async (t) => {
  const config = await open(folder(t))
  const bad = (reason: string | RegExp) => ({ name: 'CouchError', status: 400, error: 'bad_request', reason })
  const table: [section: string, key: string, value: string, refusal: Refusal][] = [
    ['a[', 'b', 'c', bad('Invalid configuration section')],
    ['', 'b', 'c', bad('Invalid configuration section')],
    ['a\n', 'b', 'c', bad('Invalid configuration section')],
    ['a', ']', 'c', bad('Invalid configuration key')],
    ['a', '', 'c', bad('Invalid configuration key')],
    ['a', 'b=c', 'd', bad('Invalid configuration key')],
    ['a', ';b', 'd', bad('Invalid configuration key')],
    ['a', '#b', 'd', bad('Invalid configuration key')],
    ['a', ' b', 'd', bad('Invalid configuration key')],
    ['a', 'b'.repeat(1025), 'd', bad('Invalid configuration key')],
    ['a', 'b', 'c\nd = e', bad('Invalid configuration value')],
    ['a', 'b', 'c\u0000', bad('Invalid configuration value')],
    ['a', 'b', '\ud800', bad('Invalid configuration value')],
    ['a', 'b', 'x'.repeat(65_537), bad('Invalid configuration value')],
    ['log', 'level', 'loud', bad(/log\/level must be one of/)],
    ['log', 'level', '', bad(/log\/level must be one of/)],
    ['log', 'file', '/etc/crontab', bad(/log\/file must be/)],
    ['chttpd', 'port', '1.5', bad(/must be a whole number from 0 to 65535/)],
    ['chttpd', 'port', '-1', bad(/must be a whole number/)],
    ['couchdb', 'max_document_size', '8 MB', bad(/whole number of bytes, at least 1, or infinity/)],
    ['chttpd_auth', 'iterations', '0', bad(/from 1 to 10000000/)],
    ['chttpd_auth', 'pbkdf2_prf', 'md5', bad(/must be one of sha,/)],
    ['query_servers', 'javascript', '/bin/sh', { name: 'CouchError', status: 403, error: 'forbidden' }],
    ['daemons', 'x', 'y', { name: 'CouchError', status: 403, error: 'forbidden' }],
  ]
  for (const [section, key, value, refusal] of table) {
    await t.rejects(
      config.set(section, key, value),
      refusal,
      JSON.stringify([section, key, value]).slice(0, 60),
    )
  }
  await t.rejects(config.delete('a', 'b'), {
    name: 'CouchError',
    status: 404,
    reason: 'unknown_config_value',
  })
  await t.rejects(config.delete('daemons', 'b'), { code: 'config_read_only', status: 403 })
  await t.rejects(
    config.set('admins', 'anna', 'plain'),
    { message: /setAdmin/ },
    'setting a plain password with set is a programming error',
  )
  t.notOk(existsSync(config.path))
})

t.test('lists of CouchDB, with brackets in them, are values', async (t) => {
  const dataDir = folder(t)
  const config = await open(dataDir)
  for (const value of ['[{nodelay, true}]', '[c]', '[']) {
    await config.set('chttpd', 'socket_options', value)
    t.equal((await open(dataDir)).get('chttpd', 'socket_options'), value)
  }
})

t.test('typed readers', async (t) => {
  const config = await open(
    folder(t, '[couchdb]\nmax_attachment_size = infinity\nmax_dbs_open =\n[a]\nyes = true\n'),
  )
  t.equal(config.bytes('couchdb', 'max_attachment_size'), Number.POSITIVE_INFINITY)
  t.equal(config.bytes('chttpd', 'max_http_request_size'), 4_294_967_296)
  t.equal(config.integer('couchdb', 'max_dbs_open'), 500, 'a key set to nothing means its default')
  t.equal(config.boolean('a', 'yes'), true)
  t.equal(config.boolean('a', 'no'), false)
  t.throws(() => config.integer('a', 'no'), { message: /no default/ })
})

t.test('names that live on Object.prototype are names like any other', async (t) => {
  const config = await open(folder(t))
  await config.set('__proto__', '__proto__', '1')
  await config.set('constructor', 'toString', '2')
  const all = JSON.parse(JSON.stringify(config.all())) as Record<string, unknown>
  t.strictSame(Object.getOwnPropertyDescriptor(all, '__proto__')?.value, JSON.parse('{"__proto__":"1"}'))
  t.strictSame(all.constructor, { toString: '2' })
  t.equal(config.get('toString', 'x'), undefined)
})

t.test('hosted mode is what the server was started in', async (t) => {
  const ini = '[settee]\nmode = hosted\n'
  const config = await open(folder(t, ini))
  t.ok(config.isHosted)
  await config.set('settee', 'mode', 'single')
  t.equal(config.get('settee', 'mode'), 'single')
  t.ok(config.isHosted)
  t.equal(settingsOf(config).rules.policy, HOSTED_POLICY)
  const dataDir = folder(t)
  t.notOk((await open(dataDir)).isHosted)
  const flagged = await open(dataDir, { flags: { hosted: true } })
  t.ok(flagged.isHosted)
  t.equal(flagged.get('settee', 'mode'), 'hosted')
})

t.test(
  'whoever asks for a write is admitted in its turn, after earlier ones have taken effect',
  async (t) => {
    const config = await open(folder(t, '[log]\nlevel = debug\n'))
    const seen: unknown[] = []
    const admit = async () => {
      seen.push(config.get('couchdb', 'max_dbs_open'))
      throw new StartError('refused')
    }
    const first = config.set('couchdb', 'max_dbs_open', '7')
    const refused = [
      config.set('log', 'level', 'error', { precondition: admit }),
      config.set('log', 'level', 'error', { precondition: admit, persist: false }),
      config.delete('log', 'level', { precondition: admit }),
    ]
    await first
    for (const each of refused) await t.rejects(each, { message: 'refused' })
    t.strictSame(seen, ['7', '7', '7'])
    t.equal(config.get('log', 'level'), 'debug')
    t.match(readFileSync(config.path, 'utf8'), 'level = debug')
  },
)

t.test('a key of [couch_httpd_auth] or [httpd] counts where the newer section lacks it', async (t) => {
  const ini =
    '[couch_httpd_auth]\ntimeout = 1200\npassword_regexp = ["[0-9]"]\niterations = 11\nsecret = old\n' +
    '[chttpd_auth]\niterations = 600000\n[httpd]\nport = 1\nbind_address = ::\nmax_http_request_size = 5000\n'
  const config = await open(folder(t, ini))
  const timeout = () => config.integer('chttpd_auth', 'timeout')
  t.equal(timeout(), 1200)
  t.equal(config.get('chttpd_auth', 'secret'), 'old')
  t.equal(config.integer('chttpd_auth', 'iterations'), 600_000, 'a value equal to the default counts as set')
  t.same(settingsOf(config).rules.users.passwordRules, [{ pattern: '[0-9]', reason: '' }])
  t.match(config.section('chttpd_auth'), { timeout: '1200' }, 'the section shows the value in effect')
  t.equal(
    config.integer('chttpd', 'port'),
    5984,
    '[httpd] counts only for keys that CouchDB reads from both sections',
  )
  t.equal(config.get('chttpd', 'bind_address'), '127.0.0.1')
  t.equal(config.bytes('chttpd', 'max_http_request_size'), 5000)
  const told: unknown[] = []
  config.onChange((...change) => told.push(change))
  await config.set('couch_httpd_auth', 'timeout', '1300')
  await config.set('chttpd_auth', 'timeout', '1400')
  t.equal(timeout(), 1400)
  await config.set('couch_httpd_auth', 'timeout', '1500')
  await config.delete('chttpd_auth', 'timeout')
  t.equal(timeout(), 1500)
  await config.delete('couch_httpd_auth', 'timeout')
  t.equal(timeout(), 600)
  t.same(
    told.filter((each) => (each as string[])[0] === 'chttpd_auth').map((each) => (each as string[])[2]),
    ['1300', '1400', '1400', '1500', '600'],
  )
  await t.rejects(config.set('couch_httpd_auth', 'timeout', 'soon'), {
    message: /couch_httpd_auth\/timeout must be/,
  })
  await t.rejects(open(folder(t, '[couch_httpd_auth]\npassword_regexp = x\n')), {
    message: /password_regexp must be/,
  })
})
