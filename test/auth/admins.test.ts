import { createHash, pbkdf2Sync } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { ANONYMOUS, isServerAdmin, requireServerAdmin } from '../../src/auth/accounts.ts'
import {
  adminAccounts,
  deleteAdmin,
  isOpen,
  prepareAdmins,
  refuseLostAdmins,
  requireAdmin,
  setAdmin,
} from '../../src/auth/admins.ts'
import { CredentialChecker } from '../../src/auth/credentials.ts'
import { hashPassword, isHashed, looksHashed, verifyPassword } from '../../src/auth/password.ts'
import { openConfig } from '../../src/config/config.ts'
import { SYSTEM_USER } from '../../src/core/types.ts'
import { MemoryRecords } from '../storage/memory/records.ts'

const FAST = '[chttpd_auth]\niterations = 7\n'
const open = (t: Test, ini = '') =>
  openConfig({ dataDir: t.testdir({ 'local.ini': FAST + ini }), env: {}, flags: {} })
const HASH = /^-pbkdf2:sha256-[0-9a-f]{64},[0-9a-f]{32},7$/

t.test('the first admin closes the server, the last one leaves it open', async (t) => {
  const config = await open(t)
  t.ok(isOpen(config))
  t.equal(await setAdmin(config, 'anna', 'secret'), '')
  t.notOk(isOpen(config))
  const stored = config.get('admins', 'anna')!
  t.match(stored, HASH)
  t.match(readFileSync(config.path, 'utf8'), `anna = ${stored}\n`)
  t.notMatch(readFileSync(config.path, 'utf8'), 'secret')
  t.equal(await setAdmin(config, 'anna', 'other'), stored, 'setAdmin returns the stored value from before')
  t.match(await deleteAdmin(config, 'anna'), HASH)
  t.ok(isOpen(config))
  await t.rejects(deleteAdmin(config, 'anna'), {
    name: 'CouchError',
    status: 404,
    reason: 'unknown_config_value',
  })
})

t.test(
  'a server that had an admin does not start without one, unless it was removed over HTTP',
  async (t) => {
    const records = new MemoryRecords()
    const start = async (ini: string) => {
      const config = await open(t, ini)
      const stop = await refuseLostAdmins(config, records, (fault) => t.fail(String(fault)))
      return { config, stop }
    }
    ;(await start('')).stop()
    ;(await start('[admins]\nanna = secret\n')).stop()
    await t.rejects(start('[admims]\nanna = secret\n'), {
      name: 'StartError',
      message: /has no admins any more/,
    })
    const { config, stop } = await start('[admins]\nben = secret\n')
    await deleteAdmin(config, 'ben')
    stop()
    ;(await start('')).stop()
  },
)

t.test('hosted mode is never open, and keeps its last admin', async (t) => {
  const config = await open(t, '[settee]\nmode = hosted\n')
  t.notOk(isOpen(config))
  t.throws(() => requireAdmin(config), { name: 'StartError', message: config.path })
  for (const name of ['anna', 'ben']) await setAdmin(config, name, 'secret')
  t.doesNotThrow(() => requireAdmin(config))
  await deleteAdmin(config, 'anna')
  await t.rejects(deleteAdmin(config, 'ben'), { code: 'forbidden', reason: /make another/ })
  await t.rejects(deleteAdmin(config, 'carl'), { code: 'unknown_config_value' })
  t.ok(config.get('admins', 'ben'))
  await setAdmin(config, 'anna', 'secret')
  const both = await Promise.allSettled([deleteAdmin(config, 'anna'), deleteAdmin(config, 'ben')])
  t.strictSame(
    both.map(({ status }) => status).sort(),
    ['fulfilled', 'rejected'],
    'of two calls at once, one succeeds and one is refused',
  )
})

t.test('a hash is kept as it is, in each of the three forms', async (t) => {
  const config = await open(t)
  for (const stored of [
    await hashPassword('x', { iterations: 3, prf: 'sha512' }),
    '-pbkdf2-0c60c80f961f0e71f3a9b524af6012062fe037a6,salt,1',
    '-hashed-0c60c80f961f0e71f3a9b524af6012062fe037a6,salt',
  ]) {
    await setAdmin(config, 'anna', stored)
    t.equal(config.get('admins', 'anna'), stored)
  }
})

t.test('names and passwords that are refused', async (t) => {
  const config = await open(t)
  const table: [name: string, password: string, reason: RegExp][] = [
    ['anna', '', /must not be empty/],
    ['anna', '   ', /must not be empty/],
    ['anna', '-pbkdf2-abc', /looks like a hash/],
    ['anna', '\ud800', /UTF-8/],
    ['', 'secret', /name of an admin must not be empty/],
    [' ', 'secret', /name of an admin must not be empty/],
    ['an:na', 'secret', /must not contain a colon/],
    ['an\nna', 'secret', /Invalid configuration key/],
    ['[anna]', 'secret', /Invalid configuration key/],
    ['\ud800', 'secret', /Invalid configuration key/],
  ]
  for (const [name, password, reason] of table) {
    await t.rejects(
      setAdmin(config, name, password),
      { name: 'CouchError', status: 400, error: 'bad_request', reason },
      name + password,
    )
  }
  t.ok(isOpen(config))
})

t.test('unusual names and passwords work', async (t) => {
  const config = await open(t)
  const checker = new CredentialChecker(adminAccounts(config))
  for (const [name, password] of [
    ['änna b', ' with spaces '],
    ['__proto__', 'x'],
    ['a@b.c', '"quoted" ;#\\\n'],
  ] as const) {
    await setAdmin(config, name, password)
    t.strictSame(await checker.check(name, password), { name, roles: ['_admin'] })
    t.equal(await checker.check(name, `${password}x`), null)
  }
  const again = await openConfig({ dataDir: join(config.path, '..'), env: {}, flags: {} })
  t.strictSame(again.section('admins'), config.section('admins'))
  t.equal(await checker.check('constructor', 'x'), null)
  t.equal(await checker.check('toString', ''), null)
})

t.test('plain text in local.ini is hashed at the start', async (t) => {
  const config = await open(t, '; people\n[admins]\nanna = pass#word ; she\nbert = "b ;c"\n')
  t.strictSame(await prepareAdmins(config, {}), [])
  t.equal(await verifyPassword('pass#word', config.get('admins', 'anna')!), true)
  t.equal(await verifyPassword('b ;c', config.get('admins', 'bert')!), true)
  const text = readFileSync(config.path, 'utf8')
  t.match(text, /; people\n\[admins\]\nanna = -pbkdf2:sha256-\S+ ; she\nbert = -pbkdf2:sha256-\S+\n$/)
  await prepareAdmins(config, {})
  t.equal(readFileSync(config.path, 'utf8'), text, 'a second start changes nothing')
})

t.test('a file that cannot be written is a warning', async (t) => {
  const config = await open(t, '[admins]\nanna = secret\n')
  mkdirSync(`${config.path}.tmp/full`, { recursive: true })
  const warnings = await prepareAdmins(config, { COUCHDB_USER: 'bert', COUCHDB_PASSWORD: 'x' })
  t.match(warnings, [/^The admin anna is kept in memory only: /, /^The admin bert is kept in memory only: /])
  t.equal(await verifyPassword('secret', config.get('admins', 'anna')!), true)
  t.equal(await verifyPassword('x', config.get('admins', 'bert')!), true)
})

t.test('broken admins in local.ini end the start, rather than leaving it open', async (t) => {
  const refused = async (ini: string, message: RegExp) =>
    t.rejects(prepareAdmins(await open(t, `[admins]\n${ini}`), {}), { name: 'StartError', message })
  await refused('anna =', /the admin anna has no password/)
  await refused('anna = -pbkdf2-abc', /the hash of the admin anna is broken/)
  await refused('an:na = x', /the admin an:na is refused: .*colon/)
})

t.test('the admin of the environment', async (t) => {
  const dataDir = t.testdir({ 'local.ini': FAST, user: 'anna\n', password: 's3cret\n' })
  const start = async (env: NodeJS.ProcessEnv) => {
    const config = await openConfig({ dataDir, env, flags: {} })
    await prepareAdmins(config, env)
    return config
  }
  const first = await start({
    COUCHDB_USER_FILE: join(dataDir, 'user'),
    COUCHDB_PASSWORD_FILE: join(dataDir, 'password'),
  })
  const stored = first.get('admins', 'anna')!
  t.equal(await verifyPassword('s3cret', stored), true)
  t.equal(
    await first.stored('admins', 'anna'),
    stored,
    'the stored hash is kept, since local.ini has no such admin',
  )
  t.equal((await start({})).get('admins', 'anna'), stored)
  const same = await start({ COUCHDB_USER: 'anna', COUCHDB_PASSWORD: 's3cret' })
  t.equal(same.get('admins', 'anna'), stored, 'a hash that matches the password is kept')
  const changed = await start({ COUCHDB_USER: 'anna', COUCHDB_PASSWORD: 'new' })
  t.equal(await verifyPassword('new', changed.get('admins', 'anna')!), true)
  t.equal(await changed.stored('admins', 'anna'), stored, 'the value that was set at runtime stays stored')
  const refused = (env: NodeJS.ProcessEnv, message: RegExp) =>
    t.rejects(start(env), { name: 'StartError', message })
  await refused({ COUCHDB_USER: 'anna' }, /^COUCHDB_USER is set, but not COUCHDB_PASSWORD\.$/)
  await refused({ COUCHDB_PASSWORD: 'x' }, /^COUCHDB_PASSWORD is set, but not COUCHDB_USER\.$/)
  await refused({ COUCHDB_USER: 'b', COUCHDB_PASSWORD: ' ' }, /^COUCHDB_USER: the admin b is refused/)
  await refused({ COUCHDB_USER: 'anna', COUCHDB_PASSWORD: ' ' }, /^COUCHDB_USER: the admin anna is refused/)
})

t.test('accounts', async (t) => {
  const config = await open(t)
  const accounts = adminAccounts(config)
  t.equal(await accounts.find('anna'), null)
  t.ok(isHashed(accounts.decoy()), 'the decoy is a hash')
  t.match(accounts.decoy(), /,7$/)
  await setAdmin(config, 'anna', 'x', { persist: false })
  t.match(await accounts.find('anna'), { stored: HASH, roles: ['_admin'] })
  t.notMatch(existsSync(config.path) ? readFileSync(config.path, 'utf8') : '', 'anna')
})

t.test(
  'each change of an admin is told by the name, and that of the first or last one as a change of all',
  async (t) => {
    const config = await open(t)
    const accounts = adminAccounts(config)
    const told: (string | string[])[] = []
    const stop = accounts.onChange((names) => told.push(names === 'all' ? names : [...names]))
    t.teardown(stop)
    for (const [change, expected] of [
      [() => setAdmin(config, 'anna', 'x'), ['all', ['anna']]],
      [() => setAdmin(config, 'bob', 'x'), [['bob']]],
      // Anna is left alone: the tokens of bob are revoked by this, before there can be another bob.
      [() => deleteAdmin(config, 'bob'), ['all', ['bob']]],
      [() => deleteAdmin(config, 'anna'), ['all', ['anna']]],
    ] as const) {
      await change()
      t.strictSame(told.splice(0), expected)
    }
  },
)

t.test('only the role _admin makes a server admin', (t) => {
  const refused = {
    name: 'CouchError',
    status: 401,
    error: 'unauthorized',
    reason: 'You are not a server admin.',
  }
  for (const user of [
    ANONYMOUS,
    { name: '_admin', roles: [] },
    { name: 'x', roles: ['admin', '_metrics'] },
  ]) {
    t.notOk(isServerAdmin(user))
    t.throws(() => requireServerAdmin(user), refused)
  }
  for (const user of [SYSTEM_USER, { name: 'anna', roles: ['notes', '_admin'] }]) {
    t.ok(isServerAdmin(user))
    t.doesNotThrow(() => requireServerAdmin(user))
  }
  t.end()
})

function sha1(text: string): string {
  return createHash('sha1').update(text).digest('hex')
}

t.test('known answers', async (t) => {
  const table: [source: string, password: string, stored: string][] = [
    ['RFC 6070, 1 round', 'password', '-pbkdf2-0c60c80f961f0e71f3a9b524af6012062fe037a6,salt,1'],
    ['RFC 6070, 2 rounds', 'password', '-pbkdf2-ea6c014dc72d6f8ccd1ed92ace1d41f0d8de8957,salt,2'],
    ['RFC 6070, 4096 rounds', 'password', '-pbkdf2-4b007901b765489abead49d926f721d065a429c1,salt,4096'],
    [
      'RFC 7914 11, cut to 32 bytes',
      'passwd',
      '-pbkdf2:sha256-55ac046e56e3089fec1691c22544b605f94185216dde0465e68b9d57c20dacbc,salt,1',
    ],
    [
      'CouchDB 3.5, a hash of a hash',
      'secret',
      `-simple+pbkdf2:sha256-${pbkdf2Sync(sha1('secret1,234'), '1,234', 10, 32, 'sha256').toString('hex')},1,234,10`,
    ],
    ['CouchDB 1.0 form', 'secret', `-hashed-${createHash('sha1').update('secret1234').digest('hex')},1234`],
  ]
  for (const [source, password, stored] of table) {
    t.ok(isHashed(stored), source)
    t.equal(await verifyPassword(password, stored), true, source)
    t.equal(await verifyPassword(`${password}x`, stored), false, source)
    const upper = stored.replace(/[0-9a-f]{40,}/, (hex) => hex.toUpperCase())
    t.equal(await verifyPassword(password, upper), true, `${source}, in capitals`)
  }
})

t.test('a new hash has the form that CouchDB writes, and its own salt', async (t) => {
  const one = await hashPassword('sécret:,-', { iterations: 10, prf: 'sha256' })
  const two = await hashPassword('sécret:,-', { iterations: 10, prf: 'sha256' })
  t.match(one, /^-pbkdf2:sha256-[0-9a-f]{64},[0-9a-f]{32},10$/)
  t.not(one, two)
  t.equal(await verifyPassword('sécret:,-', one), true)
  t.equal(await verifyPassword('secret:,-', one), false)
  for (const [prf, length] of [
    ['sha', 40],
    ['sha224', 56],
    ['sha384', 96],
    ['sha512', 128],
  ] as const) {
    const stored = await hashPassword('x', { iterations: 1, prf })
    t.match(stored, new RegExp(`^-pbkdf2:${prf}-[0-9a-f]{${length}},`))
    t.equal(await verifyPassword('x', stored), true, prf)
  }
  await t.rejects(hashPassword('x', { iterations: 1, prf: 'md5' }), { message: /md5/ })
})

t.test('an invalid or incomplete hash allows no login', async (t) => {
  const key = 'a'.repeat(64)
  const table = [
    '',
    'secret',
    '-pbkdf2-',
    `-pbkdf2:sha256-${key},salt`,
    `-pbkdf2:sha256-${key},salt,0`,
    `-pbkdf2:sha256-${key},salt,10000001`,
    `-pbkdf2:sha256-${key}aa,salt,1`,
    `-pbkdf2:md5-${key},salt,1`,
    `-pbkdf2:constructor-${key},salt,1`,
    `-pbkdf2-${key},salt,1`,
    '-hashed-abc,salt',
    `-pbkdf2:sha256-${key},salt,1\n`,
  ]
  for (const stored of table) {
    t.notOk(isHashed(stored), stored)
    t.equal(await verifyPassword('secret', stored), false, stored)
    t.equal(await verifyPassword('', stored), false, stored)
  }
  t.ok(looksHashed('-pbkdf2:x'))
  t.ok(looksHashed('-hashed-x'))
  t.notOk(looksHashed('pbkdf2-x'))
})

t.test('the event loop goes on while a password is hashed', async (t) => {
  const stored = await hashPassword('x', { iterations: 1, prf: 'sha256' })
  const slow = stored.replace(/,1$/, ',200000')
  let turns = 0
  const timer = setInterval(() => {
    turns += 1
  }, 1)
  await verifyPassword('x', slow)
  clearInterval(timer)
  t.ok(turns > 3, `${turns} turns`)
})
