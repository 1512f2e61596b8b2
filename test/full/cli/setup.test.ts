/** The questions of `settee setup` and `settee vault add`, and the plans and reports for the answers. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import type { Prompts } from '../../../src/cli/prompts.ts'
import { setUp } from '../../../src/cli/setup-command.ts'
import { type SetupCommand, setupCommand, vaultCommand } from '../../../src/cli/vault-arguments.ts'
import { passphrasesOf } from '../../../src/cli/vault-command.ts'
import { vaultJson, vaultText } from '../../../src/cli/vault-report.ts'
import type { ControlCommands } from '../../../src/control/control-commands.ts'
import { makeVault } from '../../../src/vaults/vault-answer.ts'
import type { VaultControl, VaultOrder, VaultOutcome, VaultState } from '../../../src/vaults/vault-control.ts'
import { planVault } from '../../../src/vaults/vault-plan.ts'
import { NEW_VAULT } from '../../cli/new-vault.ts'
import { temporaryFolder } from '../../helpers/server.ts'

const MADE = {
  account: 'made',
  database: 'made',
  security: 'made',
  filter: null,
  settings: [],
  faults: [],
  token: 'made',
} as const

/** The calls to the last server, even if the command failed. */
const told: unknown[][] = []

/** Whether the data folder is locked, so that no server could start on it. */
let isHeld = false

/** Prompts that give these answers in order, and record the questions. */
function answering(answers: readonly unknown[]) {
  const left = [...answers]
  const questions: string[] = []
  const suggested: (string | undefined)[] = []
  const next = async (question: string, check?: (text: string) => string | undefined) => {
    if (isHeld) throw new Error(`asked while the folder is held: ${question}`)
    questions.push(question)
    if (left.length === 0) throw new Error(`unexpected: ${question}`)
    const answer = left.shift()
    const fault = typeof answer === 'string' ? check?.(answer) : undefined
    if (fault !== undefined) throw new Error(fault)
    return answer as never
  }
  const prompts: Prompts = {
    text: (question, { check, initial }) => {
      suggested.push(initial)
      return next(question, check)
    },
    password: next,
    choose: (question) => next(question),
    confirm: (question) => next(question),
  }
  return { prompts, questions, suggested, left }
}

/** Runs the command against a server in this state, and records the calls. */
async function run(
  values: Parameters<typeof setupCommand>[1],
  answers: readonly unknown[] | null,
  state: Partial<VaultState> = {},
  password: string | null = null,
  refusal?: Error,
) {
  const done: unknown[] = []
  const admins = [...(state.admins ?? [])]
  const controls = {
    readVault: async () => ({ ...NEW_VAULT, ...state, admins }),
    setPassword: async ({ name, ...change }: { name: string }) => {
      admins.push(name)
      done.push({ name, ...change })
    },
    addVault: async (order: VaultOrder) => {
      if (refusal !== undefined) throw refusal
      done.push(order)
      return { ...MADE, secret: order.device === null ? null : 'stt_x' }
    },
  } as unknown as ControlCommands
  const given = answers === null ? null : answering(answers)
  const command: SetupCommand = setupCommand([], values)
  told.length = 0
  told.push(done)
  const operate = async <T>(use: (controls: ControlCommands) => Promise<T>) => {
    isHeld = true
    return use(controls).finally(() => {
      isHeld = false
    })
  }
  const report = await setUp(command, { operate, prompts: given?.prompts ?? null, password })
  return {
    done,
    report,
    questions: given?.questions ?? [],
    suggested: given?.suggested ?? [],
    left: given?.left ?? [],
  }
}

t.test('everything is asked first, and created after the last answer', async (t) => {
  const answers = ['anna', 'secret', 'secret', 'work', 'inkdrop', true, 'https://notes.example.com:443']
  const { done, report, questions, left } = await run({}, answers)
  t.equal(questions.length, answers.length)
  t.strictSame(left, [])
  t.strictSame(done, [
    { name: 'anna', password: 'secret', create: true, isFirst: true },
    {
      database: 'work',
      account: 'work',
      device: 'inkdrop',
      password: null,
      renew: false,
      mobileFilter: true,
      liveSync: false,
    },
  ])
  t.equal(report.vault?.address?.text, 'https://work:stt_x@notes.example.com:443/work')
})

t.test('the suggested address is the one at which this machine reaches the server', async (t) => {
  const answers = ['anna', 'x', 'x', 'work', 'pouchdb', 'https://h:443']
  const { suggested } = await run({}, answers, { url: 'http://0.0.0.0:5984/' })
  t.equal(suggested.at(-1), 'http://127.0.0.1:5984')
})

t.test('questions with an option are not asked', async (t) => {
  const values = { admin: 'anna', vault: 'work', for: 'livesync', host: 'https://h:443' }
  const { questions, done, report } = await run(values, [''])
  t.equal(questions.length, 1, 'the password is')
  t.match(done, [
    { name: 'anna', password: /^(?:[a-z2-9]{5}-){4}[a-z2-9]{5}$/ },
    { liveSync: true, mobileFilter: false },
  ])
  t.ok(report.admin?.isGenerated)
  t.ok(report.vault?.setup?.newEncryption)
  t.strictSame((await run(values, null, {}, 'given')).done[0], {
    name: 'anna',
    password: 'given',
    create: true,
    isFirst: true,
  })
})

t.test('an existing admin is not changed', async (t) => {
  for (const admin of [undefined, 'anna']) {
    const { done, report } = await run({ ...(admin && { admin }), 'no-vault': true }, [], {
      admins: ['anna'],
    })
    t.strictSame(done, [])
    t.match(report, { admin: null, existing: ['anna'], vault: null })
  }
  const other = await run({ admin: 'bob', 'no-vault': true }, ['x', 'x'], { admins: ['anna'] })
  t.match(other.done, [{ name: 'bob' }])
})

t.test('refusals', async (t) => {
  await t.rejects(run({ 'no-vault': true }, ['a:b']), { message: /colon/ })
  await t.rejects(run({ admin: 'anna' }, ['x', 'y']), { message: 'The passwords do not match.' })
  await t.rejects(run({}, ['anna', 'x', 'x', 'Work']), { message: /lowercase letter/ })
  await t.rejects(run({}, ['anna', 'x', 'x', 'work', 'pouchdb', 'https://h']), { message: /no port/ })
  await t.rejects(run({ admin: 'bob' }, [], { hasAccount: true }), { message: /not a server admin/ })
  for (const [values, password, option] of [
    [{}, null, '--admin'],
    [{ admin: 'anna' }, null, '--stdin'],
    [{ admin: 'anna' }, 'x', '--vault or --no-vault'],
    [{ admin: 'anna', vault: 'work' }, 'x', '--for'],
  ] as const) {
    await t.rejects(run(values, null, {}, password), {
      message: new RegExp(`add ${option}\\. Nothing has changed`),
    })
  }
  t.strictSame((await run({ 'no-vault': true }, ['anna', 'x', 'x'])).done.length, 1)
  t.strictSame((await run({}, ['anna', 'x', 'x', '-'])).report.vault, null)
})

t.test('cancelling at the last question changes nothing', async (t) => {
  const values = { admin: 'anna', vault: 'work', for: 'livesync', host: 'https://h:443' }
  const state = { documents: 3, hasMembers: true }
  await t.rejects(run(values, [''], state), { message: /unexpected: Passphrase/ })
  t.strictSame(told, [[]], 'the admin neither')
  await t.rejects(run(values, null, state, 'given'), { message: /Nothing has changed\.$/ })
  t.strictSame(told, [[]])
  await t.rejects(run({ ...values, account: 'a\tb' }, null, {}, 'given'), { message: /control character/ })
  t.strictSame(told, [[]])
})

t.test('if the vault fails, the generated password of the admin is still printed', async (t) => {
  const values = { admin: 'anna', vault: 'work', for: 'pouchdb', host: 'https://h:443' }
  const refusal = new Error('The disk is full.')
  const { report, done } = await run(values, [''], {}, null, refusal)
  t.match(report, { vault: null, fault: refusal, admin: { isGenerated: true, password: /^[a-z2-9-]{29}$/ } })
  t.equal(done.length, 1)
  const there = { admins: ['anna'] }
  await t.rejects(run(values, [], there, null, refusal), refusal, 'with nothing made it just fails')
})

t.test('a password for an existing admin is not used, and setup says so', async (t) => {
  const none = { 'no-vault': true }
  const there = { admins: ['anna'] }
  t.match((await run({ admin: 'anna', ...none }, null, there, 'new')).report, { isPasswordUnused: true })
  t.match((await run({ admin: 'bob', ...none }, null, there, 'new')).report, { isPasswordUnused: false })
  t.match((await run(none, [], there)).report, { isPasswordUnused: false })
})

t.test('a name that the app cannot use is refused', async (t) => {
  await t.rejects(run({ for: 'livesync' }, ['anna', 'x', 'x', 'a/b']), { message: /With LiveSync, .*slash/ })
  await t.rejects(run({}, ['anna', 'x', 'x', 'a/b', 'livesync']), { message: /With LiveSync, .*slash/ })
  for (const name of ['a[b', ' a', 'a=b', ';a', '#a', 'a\nb'])
    await t.rejects(run({ 'no-vault': true }, [name]), { message: /key in local\.ini/ })
})

const STATE: VaultState = { ...NEW_VAULT, admins: ['anna'] }

const MADE_WITH_TOKEN: VaultOutcome = { ...MADE, secret: 'stt_x' }

/** Prompts that only answer with one passphrase. */
function typing(passphrase: string): Prompts {
  return { password: async () => passphrase } as unknown as Prompts
}

/** @param means.state overrides the state of a new server without the vault */
async function add(
  words: readonly string[],
  values: Parameters<typeof vaultCommand>[1],
  means: {
    readonly state?: Partial<VaultState>
    readonly outcome?: Partial<VaultOutcome>
    readonly password?: string
    readonly prompts?: Prompts
  } = {},
) {
  const { password = null, prompts = null } = means
  const orders: unknown[] = []
  const state = { ...STATE, ...means.state }
  const controls: VaultControl = {
    readVault: async () => state,
    addVault: async (order) => {
      orders.push(order)
      const { device } = order
      return { ...MADE_WITH_TOKEN, ...(device === null && { token: null, secret: null }), ...means.outcome }
    },
  }
  const command = vaultCommand([...words], { ...values, ...(password !== null && { stdin: true }) })
  const plan = await planVault(command, password, state, passphrasesOf(command, prompts, password))
  t.equal(orders.length, 0, 'a plan makes nothing')
  const report = await makeVault(plan, controls)
  return { report, text: vaultText(report, { columns: 0 }), json: JSON.parse(vaultJson(report)) }
}

t.test('names that an address cannot contain are refused before anything is created', async (t) => {
  const refused = async (values: Parameters<typeof vaultCommand>[1], message: RegExp, password?: string) =>
    t.rejects(add(['work'], { for: 'pouchdb', ...values }, password === undefined ? {} : { password }), {
      message,
    })
  await refused({ account: 'a\tb' }, /control character/)
  await refused({}, /control character/, 'p\tq')
  await refused({}, /longer than 4096/, 'ä'.repeat(1000))
  await t.rejects(
    add(['work'], { for: 'pouchdb' }, { state: { url: 'http://127.0.0.1:0/' } }),
    { message: /port is not a number/ },
    'a server that takes any free port has no address while it does not run',
  )
})

t.test('names and passwords of all kinds work unchanged', async (t) => {
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
      t.match((await livesync({}, { prompts: typing('typed') })).json, { setup_uri: /^obsidian:/ }, what)
  }
})

t.test('an existing token is not shown again, and causes no question', async (t) => {
  const there = { token: 'there', secret: null } as const
  const state = { documents: 5, hasAccount: true, hasMembers: true, devices: ['livesync'] }
  const { json, text } = await add(['work'], { for: 'livesync' }, { state, outcome: there })
  t.match(json, { address: null, setup_uri: null, encryption_passphrase: null })
  t.match(text, 'Use --renew')
})

t.test('problems are reported', async (t) => {
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
