/** What `settee vault add` asks and refuses before it makes anything, and what it then says. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import type { Asker } from '../../src/cli/asker.ts'
import { vaultCommand } from '../../src/cli/vault-arguments.ts'
import { makeVault, planVault } from '../../src/cli/vault-command.ts'
import { vaultJson, vaultText } from '../../src/cli/vault-report.ts'
import type { VaultControls, VaultOutcome, VaultState } from '../../src/vaults/vault-control.ts'
import { temporaryFolder } from '../helpers/server.ts'
import { NEW_VAULT } from './new-vault.ts'

const STATE: VaultState = { ...NEW_VAULT, admins: ['anna'] }

const MADE: VaultOutcome = {
  account: 'made',
  database: 'made',
  security: 'made',
  filter: null,
  settings: [],
  faults: [],
  token: 'made',
  secret: 'stt_x',
}

/** Types one passphrase, and nothing else. */
function typing(passphrase: string): Asker {
  return { password: async () => passphrase } as unknown as Asker
}

/** @param means.state of the server, as far as it is not a new one without the vault */
async function add(
  words: readonly string[],
  values: Parameters<typeof vaultCommand>[1],
  means: {
    readonly state?: Partial<VaultState>
    readonly outcome?: Partial<VaultOutcome>
    readonly password?: string
    readonly asker?: Asker
  } = {},
) {
  const { password = null, asker = null } = means
  const orders: unknown[] = []
  const state = { ...STATE, ...means.state }
  const controls: VaultControls = {
    readVault: async () => state,
    addVault: async (order) => {
      orders.push(order)
      const { device } = order
      return { ...MADE, ...(device === null && { token: null, secret: null }), ...means.outcome }
    },
  }
  const command = vaultCommand([...words], { ...values, ...(password !== null && { stdin: true }) })
  const plan = await planVault(command, password, state, asker)
  t.equal(orders.length, 0, 'a plan makes nothing')
  const report = await makeVault(plan, controls)
  return { report, text: vaultText(report, { columns: 0 }), json: JSON.parse(vaultJson(report)) }
}

t.test('what no address can hold is refused before there is anything of it', async (t) => {
  const refused = async (values: Parameters<typeof vaultCommand>[1], message: RegExp, password?: string) =>
    t.rejects(add(['work'], { for: 'pouchdb', ...values }, password === undefined ? {} : { password }), {
      message,
    })
  await refused({ account: 'a\tb' }, /control character/)
  await refused({}, /control character/, 'p\tq')
  await refused({}, /longer than 4096/, 'ä'.repeat(1000))
  await t.rejects(
    add(['work'], { for: 'pouchdb' }, { state: { url: 'http://127.0.0.1:0/' } }),
    { message: /port is no number/ },
    'a server that takes any free port has no address while it does not run',
  )
})

t.test('names and passwords of all kinds come out as they went in', async (t) => {
  for (const account of ['jörg müller', 'a@b', 'a/b', "o'neil", '🔑', '%41', 'a b ']) {
    for (const password of ['p@ss: 1', '/?#[]', '\'"$`\\', '%', ' ']) {
      const { report } = await add(['a/b'], { for: 'pouchdb', account }, { password })
      t.match(report.address, { username: account, password, database: 'a/b' })
    }
  }
})

t.test(
  'where it listens on all networks this machine is one, by an address that PouchDB understands',
  async (t) => {
    for (const host of ['0.0.0.0', '[::]']) {
      const { report } = await add(['work'], { for: 'pouchdb' }, { state: { url: `http://${host}:6000/` } })
      t.equal(report.url, 'http://127.0.0.1:6000/work')
    }
    const { json } = await add(['work'], { for: 'pouchdb', host: 'http://[2001:db8::1]:5984' })
    t.match(json.notes.join('\n'), 'cannot use IPv6 addresses')
  },
)

t.test('the passphrase of the notes', async (t) => {
  const kinds: [what: string, state: Partial<VaultState>, isNew: boolean][] = [
    ['nothing is there', {}, true],
    ['the account is, of another vault', { hasAccount: true }, true],
    ['an empty database into which nobody was let', { documents: 0 }, true],
    ['an empty database for somebody else', { documents: 0, hasMembers: true }, false],
    ['notes', { documents: 5, hasMembers: true, hasAccount: true }, false],
    ['the database was deleted, and a device is left', { hasAccount: true, devices: ['desk'] }, false],
  ]
  const file = join(await temporaryFolder(t), 'vault.txt')
  await writeFile(file, 'of the notes\n')
  for (const [what, state, isNew] of kinds) {
    const livesync = (more: Parameters<typeof vaultCommand>[1], means: object = {}) =>
      add(['work'], { for: 'livesync', account: 'bob', ...more }, { state, ...means })
    if (isNew) t.match((await livesync({})).json, { encryption_passphrase: /^[a-z2-9-]{29}$/ }, what)
    else await t.rejects(livesync({}), { message: /--passphrase-file.*Nothing has changed\.$/ }, what)
    const given = await livesync({ 'passphrase-file': file })
    t.match(given.json, { setup_uri: /^obsidian:/, encryption_passphrase: null }, what)
    const byPassword = await livesync({}, { password: 'x' })
    t.equal(byPassword.json.setup_uri === null, !isNew, what)
    if (!isNew) t.match(byPassword.text, 'There is no Setup URI')
    t.equal(byPassword.text.includes('Use a Setup URI'), isNew, 'nobody is told to paste what is not there')
    if (!isNew)
      t.match((await livesync({}, { asker: typing('typed') })).json, { setup_uri: /^obsidian:/ }, what)
  }
})

t.test('a device that has its token is told nothing, and asked nothing', async (t) => {
  const there = { token: 'there', secret: null } as const
  const state = { documents: 5, hasAccount: true, hasMembers: true, devices: ['livesync'] }
  const { json, text } = await add(['work'], { for: 'livesync' }, { state, outcome: there })
  t.match(json, { address: null, setup_uri: null, encryption_passphrase: null })
  t.match(text, 'Use --renew')
})

t.test('what stands in the way is said', async (t) => {
  const said = async (means: Parameters<typeof add>[2], host?: string) =>
    (await add(['work'], { for: 'livesync', ...(host !== undefined && { host }) }, means)).json.notes.join(
      '\n',
    )
  const faults = ['couchdb/max_document_size']
  t.match(await said({ outcome: { faults }, state: { isHosted: true } }), /max_document_size: in hosted mode/)
  t.match(await said({ outcome: { faults }, state: { admins: [] } }), /once there is a server admin/)
  const inUse = { documents: 3, hasMembers: true }
  t.match(await said({ state: inUse, password: 'x' }), /Another app seems to use/)
  t.notMatch(await said({ state: { ...inUse, hasLiveSync: true }, password: 'x' }), /Another app/)
  const inkdrop = await add(['work'], { for: 'inkdrop' }, { state: { ...inUse, hasLiveSync: true } })
  t.match(inkdrop.text, /Another app seems to use/)
  t.match(await said({}), /works only on this machine/)
  t.match(await said({}, 'http://nas:5984'), /Phones and tablets/)
  t.equal(await said({}, 'https://nas:443'), '')
  t.equal(
    await said({ state: { listening: null } }, 'https://nas:443'),
    'No server is running on /data. To start it: settee serve',
  )
  const { text, json } = await add(['work'], { for: 'pouchdb' }, { outcome: { security: 'closed' } })
  t.match(text, /access +work +changed: it was open to everyone/)
  t.equal(json.done.security, 'closed')
})
