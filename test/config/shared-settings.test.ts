import { existsSync, writeFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { adminAccounts, deleteAdmin, prepareAdmins, requireNoAdmin, setAdmin } from '../../src/auth/admins.ts'
import { CredentialChecker } from '../../src/auth/credentials.ts'
import { Sessions } from '../../src/auth/sessions.ts'
import { type Config, openConfig } from '../../src/config/config.ts'
import { SharedSettings } from '../../src/config/shared-settings.ts'
import type { ConfigFlags } from '../../src/config/sources.ts'
import { settled } from '../changes/helpers.ts'
import { type MemoryRecords, sharedRecords } from '../storage/memory/records.ts'

interface Node {
  readonly config: Config
  readonly faults: unknown[]
}

/** A node with a data folder of its own over these records. */
async function node(
  t: Test,
  records: MemoryRecords,
  {
    env = {},
    flags = {},
    isServer = true,
  }: { env?: NodeJS.ProcessEnv; flags?: ConfigFlags; isServer?: boolean } = {},
): Promise<Node> {
  const dataDir = await mkdtemp(join(tmpdir(), 'settee-'))
  t.teardown(() => rm(dataDir, { recursive: true }))
  const config = await openConfig({ dataDir, env, flags })
  const faults: unknown[] = []
  t.teardown(await config.share(new SharedSettings(records), isServer, (fault) => void faults.push(fault)))
  return { config, faults }
}

async function nodes(t: Test): Promise<[Node, Node]> {
  const [first, second] = sharedRecords(2)
  return [await node(t, first!), await node(t, second!)]
}

const signsIn = (config: Config, name: string, password: string) =>
  new CredentialChecker(adminAccounts(config)).check(name, password).then((user) => user !== null)

t.test('what one node sets counts on the others, and its own settings stay its own', async (t) => {
  const [one, two] = await nodes(t)
  const heard: string[] = []
  two.config.onChange((section, key, value) => void heard.push(`${section}/${key}=${value}`))
  t.equal(await one.config.set('quota', 'bytes', '7'), '1073741824')
  await one.config.set('cors:host', 'origins', 'http://a')
  await one.config.set('chttpd', 'port', '1234')
  await one.config.set('log', 'level', 'warn')
  await one.config.set('chttpd', 'require_valid_user', 'true', { persist: false })
  await settled()
  t.strictSame(heard, ['quota/bytes=7', 'cors:host/origins=http://a'])
  t.equal(two.config.get('quota', 'bytes'), '7')
  t.equal(two.config.get('chttpd', 'port'), '5984')
  t.equal(two.config.get('chttpd', 'require_valid_user'), undefined)
  t.strictSame(two.config.origin('quota', 'bytes'), { from: 'shared', name: null })
  t.strictSame(one.config.origin('chttpd', 'port'), { from: 'local.ini', name: null })
  t.equal(await one.config.stored('quota', 'bytes'), '7')
  t.equal(await one.config.stored('chttpd', 'port'), '1234')
  t.notOk(existsSync(two.config.path), 'nothing is written to the file of the other')
  t.equal(await two.config.delete('quota', 'bytes'), '7')
  await settled()
  t.equal(one.config.get('quota', 'bytes'), '1073741824')
  await one.config.reload(async () => undefined)
  t.equal(one.config.get('cors:host', 'origins'), 'http://a', 'a reload keeps them')
  t.strictSame([...one.faults, ...two.faults], [])
})

t.test('an admin that one node makes can sign in on the other, one that it removes cannot', async (t) => {
  const [one, two] = await nodes(t)
  await one.config.set('chttpd_auth', 'iterations', '10')
  await setAdmin(one.config, 'anna', 'secret')
  await settled()
  t.ok(await signsIn(two.config, 'anna', 'secret'))
  await setAdmin(two.config, 'anna', 'other')
  await settled()
  t.notOk(await signsIn(one.config, 'anna', 'secret'))
  t.ok(await signsIn(one.config, 'anna', 'other'))
  await deleteAdmin(one.config, 'anna')
  await settled()
  t.notOk(await signsIn(two.config, 'anna', 'other'))
})

t.test('of two nodes that set the first admin at once, one is refused', async (t) => {
  const [one, two] = await nodes(t)
  const hash = `-pbkdf2:sha256-${'a'.repeat(64)},${'b'.repeat(32)},10`
  const results = await Promise.allSettled([
    setAdmin(one.config, 'anna', hash, { precondition: () => requireNoAdmin(one.config) }),
    setAdmin(two.config, 'mallory', hash, { precondition: () => requireNoAdmin(two.config) }),
  ])
  t.strictSame(results.map(({ status }) => status).sort(), ['fulfilled', 'rejected'])
  await settled()
  t.equal(Object.keys(one.config.section('admins')).length, 1)
  t.strictSame(one.config.section('admins'), two.config.section('admins'))
})

t.test('writes at the same time are all kept', async (t) => {
  const [one, two] = await nodes(t)
  const each = ({ config }: Node, name: string) =>
    Promise.all([1, 2, 3, 4].map((at) => config.set('a', `${name}${at}`, 'x')))
  await Promise.all([each(one, 'one'), each(two, 'two')])
  await settled()
  t.equal(Object.keys(one.config.section('a')).length, 8)
  t.strictSame(one.config.section('a'), two.config.section('a'))
})

t.test('nodes that make the secret of sessions at once make one', async (t) => {
  const [one, two] = await nodes(t)
  const anna = { name: 'anna', salt: 's', roles: [], stored: 'x' }
  const accounts = { find: async () => anna }
  const [records] = sharedRecords(1) as [MemoryRecords]
  const open = ({ config }: Node) =>
    new Sessions({ config, accounts, records, warn: t.fail }).open(anna, Date.now())
  await Promise.all([open(one), open(two), open(one)])
  t.match(one.config.get('chttpd_auth', 'secret'), /^[0-9a-f]{32}$/)
  t.equal(one.config.get('chttpd_auth', 'secret'), two.config.get('chttpd_auth', 'secret'))
})

t.test(
  'a node that starts later has the settings; its environment overrides them until they change',
  async (t) => {
    const [first, second] = sharedRecords(2)
    const one = await node(t, first!, { env: { COUCHDB_USER: 'anna', COUCHDB_PASSWORD: 'secret' } })
    await one.config.set('chttpd_auth', 'iterations', '10')
    t.strictSame(await prepareAdmins(one.config, { COUCHDB_USER: 'anna', COUCHDB_PASSWORD: 'secret' }), [])
    await one.config.set('chttpd_auth', 'secret', 'shared')
    const two = await node(t, second!, { env: { COUCHDB_SECRET: 'own' } })
    t.ok(await signsIn(two.config, 'anna', 'secret'))
    t.equal(two.config.get('chttpd_auth', 'secret'), 'own')
    await one.config.set('chttpd_auth', 'secret', 'newer')
    await settled()
    t.equal(two.config.get('chttpd_auth', 'secret'), 'newer')
  },
)

t.test('a line of local.ini must not contradict the shared settings', async (t) => {
  const [records] = sharedRecords(1)
  const dataDir = t.testdir({ 'local.ini': '[chttpd]\nport = 0\n[admins]\nanna = secret\n' })
  const config = await openConfig({ dataDir, env: {}, flags: {} })
  const share = () => config.share(new SharedSettings(records!), true, () => undefined)
  await t.rejects(share(), {
    name: 'StartError',
    message: /^Line 4 of .*local\.ini: all nodes share admins\/anna\./,
  })
  writeFileSync(config.path, '[chttpd]\nport = 0\n')
  t.teardown(await share())
  writeFileSync(config.path, '[chttpd]\nrequire_valid_user = false\n')
  await t.rejects(
    config.reload(async () => undefined),
    { name: 'StartError' },
  )
})

t.test('nodes have one mode: the first decides, later ones follow, and none is hosted alone', async (t) => {
  const [first, second, third] = sharedRecords(3)
  t.notOk(
    (await node(t, third!, { isServer: false })).config.isHosted,
    'a command line without --hosted does not decide the mode',
  )
  const one = await node(t, first!, { flags: { hosted: true } })
  t.ok(
    (await node(t, third!, { isServer: false })).config.isHosted,
    'a command follows the mode of the store',
  )
  const two = await node(t, second!)
  t.ok(two.config.isHosted, 'a server without --hosted is in hosted mode')
  t.strictSame(two.config.origin('settee', 'mode'), { from: 'shared', name: null })
  await two.config.set('settee', 'mode', 'single')
  await settled()
  t.equal(one.config.get('settee', 'mode'), 'single')
  t.ok(one.config.isHosted && two.config.isHosted, 'both nodes are still in hosted mode')
  await t.rejects(node(t, third!, { flags: { hosted: true } }), {
    name: 'StartError',
    message: /are in single mode/,
  })
  t.notOk((await node(t, third!)).config.isHosted)
})

t.test('nodes of different modes that start at once agree', async (t) => {
  const [first, second] = sharedRecords(2)
  const started = await Promise.allSettled([node(t, first!, { flags: { hosted: true } }), node(t, second!)])
  const modes = started.map((each) => each.status === 'fulfilled' && each.value.config.isHosted)
  t.ok(started.every(({ status }) => status === 'fulfilled') ? modes[0] && modes[1] : !modes[0] && !modes[1])
})

t.test('what would open a node does not take effect on it', async (t) => {
  const [one, two] = await nodes(t)
  const handlers = '{chttpd_auth, proxy_authentication_handler}'
  await one.config.set('settee', 'trusted_proxies', '192.0.2.1')
  await one.config.set('chttpd', 'authentication_handlers', handlers)
  await settled()
  t.equal(two.config.get('chttpd', 'authentication_handlers'), undefined)
  t.match(two.faults, [{ message: /trusted_proxies/ }])
})

t.test('the shared settings have a bound', async (t) => {
  const [one] = await nodes(t)
  const value = 'x'.repeat(65_000)
  for (let at = 0; at < 16; at++) await one.config.set('a', String(at), value)
  await t.rejects(one.config.set('a', 'b', value), { code: 'bad_request' })
})

t.test(
  'a value that this version does not know keeps a node from starting, and is skipped later',
  async (t) => {
    const [records, others] = sharedRecords(2)
    const write = (key: string, value: string) =>
      others!.writeRecords([
        { kind: 'config', key: JSON.stringify(['couchdb', key]), value },
        { kind: 'config-version', key: 'version', value: `with ${key}` },
      ])
    const { config, faults } = await node(t, records!)
    await write('default_security', 'somebody')
    await settled()
    t.match(faults, [{ message: /default_security must be one of/ }])
    t.equal(config.get('couchdb', 'default_security'), 'admin_only')
    await t.rejects(node(t, records!), {
      name: 'StartError',
      message: /^The shared setting couchdb\/default_security must be one of/,
    })
  },
)
