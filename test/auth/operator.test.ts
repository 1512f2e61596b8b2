/** What the operator does with accounts, on a data folder opened as the command line opens it. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { localOperator } from '../../src/auth/operator.ts'
import { verifyPassword } from '../../src/auth/password.ts'
import { openConfig } from '../../src/config/config.ts'
import { settingsOf } from '../../src/config/settings.ts'
import { SYSTEM_USER } from '../../src/core/types.ts'
import { openServerDatabases } from '../../src/threads/open-databases.ts'
import { temporaryFolder } from '../helpers/server.ts'

async function setUp(t: Test, env: NodeJS.ProcessEnv = {}) {
  const dataDir = await temporaryFolder(t)
  const config = await openConfig({ dataDir, env: {}, flags: {} })
  await config.set('chttpd_auth', 'iterations', '10')
  const databases = await openServerDatabases({
    location: { kind: 'files', dataDir },
    settings: settingsOf(config),
    maxOpen: 10,
    threadEntry: new URL('../helpers/database-thread.mjs', import.meta.url),
    sandboxEntry: new URL('../helpers/sandbox-thread.mjs', import.meta.url),
    threads: 1,
    onFault: (fault) => t.fail('a thread has died', { fault }),
    onCompactionFault: () => t.fail(),
  })
  t.teardown(() => databases.close())
  const revoked: string[] = []
  const revokeTokens = async (account: string) => void revoked.push(account)
  const operator = localOperator({ config, databases, env, revokeTokens })
  const isAdminsPassword = (name: string, password: string) =>
    verifyPassword(password, config.get('admins', name) ?? '')
  const user = async (name: string) => {
    const { json } = await (await databases.get('_users')).open(SYSTEM_USER, `org.couchdb.user:${name}`, {})
    return Buffer.from(json as string, 'latin1').toString()
  }
  return { dataDir, config, databases, operator, revoked, isAdminsPassword, user }
}

t.test('the password of a server admin', async (t) => {
  const { dataDir, operator, isAdminsPassword } = await setUp(t)
  const set = (password: string, create = false) => operator.setPassword({ name: 'anna', password, create })
  await t.rejects(set('old'), {
    code: 'not_found',
    message: 'There is neither an account nor a server admin anna.',
  })
  t.strictSame(await set('old', true), { kind: 'admin', isNew: true, warning: null })
  t.strictSame(await set('new'), { kind: 'admin', isNew: false, warning: null })
  t.notOk(await isAdminsPassword('anna', 'old'))
  t.ok(await isAdminsPassword('anna', 'new'))
  t.match(await readFile(join(dataDir, 'local.ini'), 'utf8'), /^anna = -pbkdf2:sha256-/m)
  for (const password of ['', ' ']) await t.rejects(set(password), { code: 'bad_request' })
  await t.rejects(operator.setPassword({ name: 'a:b', password: 'x', create: true }), { code: 'bad_request' })
})

t.test('the first server admin is made while there is no other', async (t) => {
  const { operator, config } = await setUp(t)
  const first = (name: string) =>
    operator.setPassword({ name, password: 'pw', create: true, isFirst: true }).then(
      () => null,
      (error: Error) => error,
    )
  const outcomes = await Promise.all([first('anna'), first('ben')])
  const [name = ''] = Object.keys(config.section('admins'))
  t.equal(outcomes.filter((error) => error === null).length, 1)
  t.match(
    outcomes.find((error) => error !== null),
    { code: 'conflict', message: `${name} has become a server admin in the meantime.` },
  )
})

t.test('the password of an account: the rest of the document stays as it was', async (t) => {
  const { operator, databases, isAdminsPassword, user } = await setUp(t)
  await operator.addAccount({ name: 'böb', password: 'old', roles: ['staff'] })
  const text = '{"name":"böb","type":"user","roles":["staff"],"big":9007199254740993,"2":1,"1":2}'
  const { _rev } = JSON.parse(await user('böb'))
  const body = { bytes: Buffer.from(text.replace('{', `{"_rev":"${_rev}",`)) }
  await (await databases.get('_users')).put(SYSTEM_USER, 'org.couchdb.user:böb', body, {})
  const outcome = await operator.setPassword({ name: 'böb', password: 'ne"w', create: true })
  t.strictSame(outcome, { kind: 'account', isNew: false, warning: null })
  t.match(await user('böb'), '"big":9007199254740993,"2":1,"1":2')
  t.match(JSON.parse(await user('böb')), { name: 'böb', type: 'user', roles: ['staff'] })
  t.notOk(await isAdminsPassword('böb', 'ne"w'), 'a user account does not become an admin')
  await operator.setPassword({ name: 'anna', password: 'x', create: true })
  await operator.addAccount({ name: 'eve', password: 'x', roles: [] })
  await operator.deleteAccount({ name: 'eve' })
  await t.rejects(operator.setPassword({ name: 'eve', password: 'x', create: false }), { code: 'not_found' })
})

t.test('of an admin and an account of one name the admin gets the password', async (t) => {
  const { config, operator, isAdminsPassword } = await setUp(t)
  await operator.addAccount({ name: 'anna', password: 'old', roles: [] })
  await config.set('admins', 'anna', '-hashed-0000000000000000000000000000000000000000,0')
  t.match(await operator.setPassword({ name: 'anna', password: 'new', create: false }), { kind: 'admin' })
  t.ok(await isAdminsPassword('anna', 'new'))
})

t.test('accounts are added and listed', async (t) => {
  const { operator, user } = await setUp(t)
  t.strictSame(await operator.listAccounts({ after: null }), { rows: [], next: null })
  await operator.setPassword({ name: 'root', password: 'x', create: true })
  await operator.addAccount({ name: 'bob', password: 'b', roles: ['staff', 'dev'] })
  const doc = { _id: 'org.couchdb.user:bob', name: 'bob', type: 'user', roles: ['staff', 'dev'] }
  t.match(JSON.parse(await user('bob')), doc)
  const add = (name: string) => operator.addAccount({ name, password: 'x', roles: [] })
  await t.rejects(add('bob'), { code: 'conflict', message: 'There is an account bob already.' })
  await t.rejects(add('root'), { code: 'conflict', message: 'There is a server admin root already.' })
  await t.rejects(operator.addAccount({ name: 'c', password: '', roles: [] }), { code: 'bad_request' })
  await add('Ünal')
  const rows = [
    { name: 'root', kind: 'admin', roles: ['_admin'] },
    { name: 'bob', kind: 'account', roles: ['staff', 'dev'] },
    { name: 'Ünal', kind: 'account', roles: [] },
  ]
  t.strictSame(await operator.listAccounts({ after: null }), { rows, next: null })
})

t.test('a long list is paged and has only accounts', async (t) => {
  const { operator, databases } = await setUp(t)
  await operator.addAccount({ name: 'a', password: 'x', roles: [] })
  const names = Array.from({ length: 250 }, (_, at) => `user${String(at).padStart(3, '0')}`)
  const docs = names.map((name) => ({ _id: `org.couchdb.user:${name}`, name, type: 'user', roles: [] }))
  const body = { bytes: Buffer.from(JSON.stringify({ docs })) }
  for await (const _ of (await databases.get('_users')).bulkDocs(SYSTEM_USER, body));
  const design = { bytes: Buffer.from('{}') }
  await (await databases.get('_users')).put(SYSTEM_USER, '_design/x', design, {})
  const seen: string[] = []
  let after: string | null = null
  do {
    const { rows, next } = await operator.listAccounts({ after })
    t.ok(rows.length <= 100)
    seen.push(...rows.map(({ name }) => name))
    after = next
  } while (after !== null)
  t.strictSame(seen, ['a', ...names])
})

t.test('deleting an account removes its admin entry too and revokes its rights', async (t) => {
  const { config, operator, revoked } = await setUp(t)
  const remove = (name: string) => operator.deleteAccount({ name })
  await t.rejects(remove('bob'), { code: 'not_found' })
  await t.rejects(remove(''), { code: 'not_found' })
  await operator.addAccount({ name: 'bob', password: 'x', roles: [] })
  t.strictSame(await remove('bob'), { deleted: ['account'], warning: null })
  await t.rejects(remove('bob'), { code: 'not_found' })
  t.strictSame(revoked, ['bob'])

  await operator.addAccount({ name: 'anna', password: 'x', roles: [] })
  await config.set('admins', 'anna', '-hashed-0000000000000000000000000000000000000000,0')
  await t.rejects(remove('anna'), { code: 'forbidden', message: /^anna is the last server admin/ })
  t.match(await operator.listAccounts({ after: null }), { rows: [{ kind: 'admin' }, { kind: 'account' }] })
  await operator.setPassword({ name: 'root', password: 'x', create: true })
  t.strictSame(await remove('anna'), { deleted: ['account', 'admin'], warning: null })
  t.strictSame(revoked, ['bob', 'anna'])
})

t.test('a change that the environment overrides is reported', async (t) => {
  const { operator } = await setUp(t, { COUCHDB_USER: 'anna', COUCHDB_PASSWORD: 'x' })
  const set = (name: string) => operator.setPassword({ name, password: 'y', create: true })
  t.match(await set('anna'), { warning: /^COUCHDB_PASSWORD sets the password of anna at each start/ })
  t.match(await set('root'), { warning: null })
  t.match(await operator.deleteAccount({ name: 'anna' }), {
    warning: /^COUCHDB_USER makes the server admin anna/,
  })
})
