/** Reading the configuration anew: what takes effect, what stays, and what changes nothing. */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { prepareAdmins, reloadConfig, setAdmin } from '../../src/auth/admins.ts'
import { hashPassword, verifyPassword } from '../../src/auth/password.ts'
import { openConfig } from '../../src/config/config.ts'
import type { ConfigOptions } from '../../src/config/read-sources.ts'

const FAST = '[chttpd_auth]\niterations = 7\n'

async function start(t: Test, ini: string, options: Partial<ConfigOptions> = {}) {
  const dataDir = options.dataDir ?? t.testdir({ 'local.ini': FAST + ini })
  const env = options.env ?? {}
  const config = await openConfig({ dataDir, env, flags: options.flags ?? {} })
  await prepareAdmins(config, env)
  const log: { level: string; facts: object; message: string }[] = []
  const note = (level: string) => (facts: object, message: string) => void log.push({ level, facts, message })
  return {
    config,
    log,
    write: (text: string) => writeFileSync(config.path, text),
    text: () => readFileSync(config.path, 'utf8'),
    reload: () => reloadConfig(config, { info: note('info'), warn: note('warn') }),
  }
}

const refusal = (reason: RegExp) => ({ name: 'CouchError', status: 400, error: 'bad_request', reason })

t.test('changes by hand take effect, and keys that are gone go back', async (t) => {
  const { config, write, reload, log } = await start(
    t,
    '[couchdb]\nmax_document_size = 1000\n[a]\nb = 1\nc = 2\n',
  )
  const told: unknown[] = []
  config.onChange((section, key, value) => told.push([section, key, value, config.get('new', 'key')]))
  write(`${FAST}[a]\nb = 3\n[new]\nkey = x\n`)
  await reload()
  t.equal(config.get('a', 'b'), '3')
  t.equal(config.get('a', 'c'), undefined)
  t.equal(config.integer('couchdb', 'max_document_size'), 8_000_000)
  t.strictSame(told.toSorted(), [
    ['a', 'b', '3', 'x'],
    ['a', 'c', undefined, 'x'],
    ['couchdb', 'max_document_size', '8000000', 'x'],
    ['new', 'key', 'x', 'x'],
  ])
  const [line] = log
  t.match(line, { level: 'info', facts: { changed: Array }, message: /reloaded the configuration/ })
  t.notMatch(JSON.stringify(line), /8000000|"x"|"3"/, 'the log line has no values')
  told.length = 0
  await reload()
  t.strictSame(told, [], 'no change is reported')
})

t.test('an error changes nothing and names its line', async (t) => {
  const { config, write, reload, log } = await start(t, '[a]\nb = 1\n[jwt_keys]\nhmac:x = c2VjcmV0\n')
  const before = config.all()
  const table: [text: string | Buffer, reason: RegExp][] = [
    ['[a]\nb = 2\nc\n', /^Line 3 of .*local\.ini is not a section, a setting or a comment\./],
    ['[a] ; comment\nb = 2\n', /^Line 1 of .*local\.ini is not a section:/],
    ['[a\nb = 2\n', /^Line 1 of .* is not a section:/],
    ['b = 2\n[a]\n', /^Line 1 of .* is a setting, but there is no section above it/],
    ['[a]\n\n more\n', /^Line 3 of .* continues the line above, which is not a setting/],
    ['[a]\n = 2\n', /^Line 2 of .* is not a section, a setting or a comment/],
    ['[]\n', /^Line 1 of .* has no section name/],
    ['[log]\n\nlevel = loud\n', /^Line 3 of .*: log\/level must be one of .*, not "loud"\./],
    ['[chttpd]\nport = 1\nport = x\n', /^Line 3 of .*: chttpd\/port must be/],
    [Buffer.from('[a]\nb = \xe4\n', 'latin1'), /^Line 2 of .* is not UTF-8/],
    [Buffer.alloc(1_048_577, '\n'), /cannot be read \(EFBIG\)/],
    ['[admins]\nanna =\n', /^Line 2 of .*: the admin anna has no password/],
    ['[admins]\n\nanna = -pbkdf2:sha256-ab\n', /^Line 3 of .*: the hash of the admin anna is broken/],
    ['[admins]\nan:na = secret\n', /^Line 2 of .*: the admin an:na is refused: .*colon/],
  ]
  for (const [text, reason] of table) {
    writeFileSync(config.path, text)
    await t.rejects(reload(), refusal(reason), String(text).slice(0, 40))
    await t.rejects(reload(), refusal(/ The configuration has not changed\.$/))
    t.strictSame(config.all(), before)
    t.match(log.at(-1), { level: 'warn', facts: { reason }, message: /nothing changed/ })
  }
  t.notMatch(JSON.stringify(log), 'secret', 'the log has no password')
  write(`${FAST}[a]\nb = 2\n`)
  await reload()
  t.equal(config.get('a', 'b'), '2', 'the next reload succeeds')
})

t.test('environment and command line beat local.ini, but for what was written since', async (t) => {
  const { config, write, reload } = await start(t, '[log]\nlevel = error\n', {
    env: { SETTEE_BIND: '::1', COUCHDB_SECRET: 'shh' },
    flags: { logLevel: 'warning', port: 1 },
  })
  write(
    `${FAST}[log]\nlevel = debug\n[chttpd]\nport = 2\nbind_address = 0.0.0.0\n[chttpd_auth]\nsecret = x\n`,
  )
  await reload()
  t.equal(config.get('log', 'level'), 'warning')
  t.equal(config.get('chttpd', 'port'), '1')
  t.equal(config.get('chttpd', 'bind_address'), '::1')
  t.equal(config.get('chttpd_auth', 'secret'), 'shh')
  await config.set('log', 'level', 'info')
  await config.set('chttpd', 'port', '3', { persist: false })
  await config.delete('chttpd_auth', 'secret')
  await reload()
  t.equal(config.get('log', 'level'), 'info', 'a value that was set at runtime stays in effect')
  t.equal(config.get('chttpd', 'port'), '1', 'values that were set in memory only are dropped, as in CouchDB')
  t.equal(config.get('chttpd_auth', 'secret'), undefined, 'a deletion at runtime stays in effect')
  write(`${FAST}[log]\nlevel = error\n`)
  await reload()
  t.equal(config.get('log', 'level'), 'error', 'a later change of the file takes effect')
})

t.test('admins that were added by hand are hashed, in the file too', async (t) => {
  const { config, write, text, reload } = await start(t, '[admins]\nanna = one\n')
  const stored = config.get('admins', 'anna')!
  write(`${text()}bert = two ; he\n`)
  await reload()
  t.equal(config.get('admins', 'anna'), stored)
  t.equal(await verifyPassword('two', config.get('admins', 'bert')!), true)
  t.match(text(), /^bert = -pbkdf2:sha256-\S+ ; he$/m)
  write(text().replace(/^anna = .*$/m, 'anna = one'))
  await reload()
  t.equal(config.get('admins', 'anna'), stored, 'the hash in effect is kept if it matches the password')
  t.notMatch(text(), 'anna = one')
  write(text().replace(/^bert = .*\n/m, ''))
  await reload()
  t.strictSame(
    Object.keys(config.section('admins')),
    ['anna'],
    'an admin that was removed from the file is removed',
  )
})

t.test('a half-written file takes no admin away', async (t) => {
  const { config, write, text, reload } = await start(t, '[a]\nb = 1\n[admins]\nanna = one\nbert = two\n')
  const admins = config.section('admins')
  const whole = text()
  for (const [half, reason] of [
    ['', /has no admins any more/],
    [FAST, /has no admins any more/],
    [`${FAST}[admins]\n`, /has no admins any more/],
    [whole.slice(0, whole.indexOf('anna = ') + 40), /the hash of the admin anna is broken/],
    [
      whole.slice(0, whole.indexOf('\nbert')),
      /^Line \d+ of .*has no line break at its end, and admins have changed/,
    ],
    [whole.slice(0, whole.indexOf('bert') + 4), /is not a section, a setting or a comment/],
    [whole.slice(0, whole.indexOf('bert = ') + 7), /the admin bert has no password/],
  ] as const) {
    write(half)
    await t.rejects(reload(), refusal(reason))
    t.strictSame(config.section('admins'), admins, JSON.stringify(half))
  }
  for (let length = 0; length < whole.length; length += 1) {
    write(whole)
    await reload()
    write(whole.slice(0, length))
    await reload().catch(() => undefined)
    const left = config.section('admins')
    const isRemoved = left.bert === undefined && whole[length - 1] === '\n'
    t.ok(left.anna === admins.anna && (left.bert === admins.bert || isRemoved), `cut at ${length}`)
  }
})

t.test('the admin of the environment stays', async (t) => {
  const env = { COUCHDB_USER: 'anna', COUCHDB_PASSWORD: 'one' }
  const { config, write, text, reload } = await start(t, '', { env })
  const stored = config.get('admins', 'anna')!
  write(FAST)
  await reload()
  t.equal(config.get('admins', 'anna'), stored, 'a hash is kept although local.ini has lost it')
  write(`${FAST}[admins]\nanna = ${await hashPassword('other', { iterations: 7, prf: 'sha256' })}\n`)
  await reload()
  t.equal(
    await verifyPassword('one', config.get('admins', 'anna')!),
    true,
    'a password of the environment overrides local.ini',
  )
  write(`${FAST}[admins]\nanna = plain\n`)
  await reload()
  t.equal(await verifyPassword('one', config.get('admins', 'anna')!), true)
  t.notMatch(text(), 'plain')
  await setAdmin(config, 'anna', 'changed')
  await reload()
  t.equal(
    await verifyPassword('changed', config.get('admins', 'anna')!),
    true,
    'a password of the environment does not override a later change',
  )
})

t.test('a source that has gone changes nothing', async (t) => {
  const dataDir = t.testdir({ 'local.ini': `${FAST}[a]\nb = 1\n`, secret: 'shh' })
  const { config, write, reload } = await start(t, '', {
    dataDir,
    env: { COUCHDB_SECRET_FILE: join(dataDir, 'secret') },
  })
  write(`${FAST}[a]\nb = 2\n`)
  writeFileSync(join(dataDir, 'secret'), '')
  await t.rejects(reload(), refusal(/^COUCHDB_SECRET_FILE: .* is empty\. The configuration has not/))
  t.equal(config.get('a', 'b'), '1')
  writeFileSync(join(dataDir, 'secret'), 'new')
  await reload()
  t.strictSame([config.get('a', 'b'), config.get('chttpd_auth', 'secret')], ['2', 'new'])
})

t.test('a reload takes its turn among writes', async (t) => {
  const { config, reload } = await start(t, '[a]\nb = 0\n')
  const numbers = Array.from({ length: 10 }, (_, number) => String(number))
  await Promise.all(numbers.flatMap((number) => [config.set('a', `k${number}`, number), reload()]))
  t.strictSame(Object.values(config.section('a')).toSorted(), ['0', ...numbers])
})

t.test('proxy authentication that would believe anybody is refused, however it is asked for', async (t) => {
  const PROXY = '{chttpd_auth, proxy_authentication_handler}, {chttpd_auth, default_authentication_handler}'
  const handlers = `[chttpd]\nauthentication_handlers = ${PROXY}\n`
  const trusted = '[settee]\ntrusted_proxies = 192.0.2.1\n'
  const signed = `${FAST}proxy_use_secret = true\nsecret = s\n`
  const { config, write, reload, log } = await start(t, handlers + trusted)
  const reason = /needs either settee\/trusted_proxies or chttpd_auth\/proxy_use_secret/
  write(FAST + handlers)
  await t.rejects(reload(), refusal(reason))
  t.match(log, [{ level: 'warn', facts: { reason }, message: /nothing changed/ }])
  t.equal(config.get('settee', 'trusted_proxies'), '192.0.2.1')
  await t.rejects(config.set('settee', 'trusted_proxies', ''), refusal(reason))
  await t.rejects(config.delete('settee', 'trusted_proxies', { persist: false }), refusal(reason))
  t.equal(config.get('settee', 'trusted_proxies'), '192.0.2.1')
  write(signed + handlers)
  await reload()
  await t.rejects(config.delete('chttpd_auth', 'proxy_use_secret'), refusal(reason))
  await config.delete('chttpd', 'authentication_handlers')
  await config.delete('chttpd_auth', 'proxy_use_secret')
  await t.rejects(config.set('chttpd', 'authentication_handlers', PROXY), refusal(reason))
})
