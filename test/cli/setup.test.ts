/** `settee setup` asking: which questions, in which order, and what comes of the answers. */
import t from 'tap'
import type { Asker } from '../../src/cli/asker.ts'
import { setUp } from '../../src/cli/setup-command.ts'
import { type SetupCommand, setupCommand } from '../../src/cli/vault-arguments.ts'
import type { Controls } from '../../src/control/controls.ts'
import type { VaultOrder, VaultState } from '../../src/vaults/vault-control.ts'
import { NEW_VAULT } from './new-vault.ts'

const MADE = {
  account: 'made',
  database: 'made',
  security: 'made',
  filter: null,
  settings: [],
  faults: [],
  token: 'made',
} as const

/** What the last server was asked to do, also where the command failed. */
const told: unknown[][] = []

/** Whether the data folder is held, so that no server could start on it. */
let isHeld = false

/** Somebody who gives these answers, in this order, and tells what was asked. */
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
  const asker: Asker = {
    text: (question, { check, initial }) => {
      suggested.push(initial)
      return next(question, check)
    },
    password: next,
    choose: (question) => next(question),
    confirm: (question) => next(question),
  }
  return { asker, questions, suggested, left }
}

/** Runs the command against a server that is in this state, and tells what it was asked to do. */
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
  } as unknown as Controls
  const given = answers === null ? null : answering(answers)
  const command: SetupCommand = setupCommand([], values)
  told.length = 0
  told.push(done)
  const operate = async <T>(use: (controls: Controls) => Promise<T>) => {
    isHeld = true
    return use(controls).finally(() => {
      isHeld = false
    })
  }
  const report = await setUp(command, { operate, asker: given?.asker ?? null, password })
  return {
    done,
    report,
    questions: given?.questions ?? [],
    suggested: given?.suggested ?? [],
    left: given?.left ?? [],
  }
}

t.test('everything is asked, and made once all is answered', async (t) => {
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

t.test('what is suggested for the place is where this machine reaches the server', async (t) => {
  const answers = ['anna', 'x', 'x', 'work', 'pouchdb', 'https://h:443']
  const { suggested } = await run({}, answers, { url: 'http://0.0.0.0:5984/' })
  t.equal(suggested.at(-1), 'http://127.0.0.1:5984')
})

t.test('what an option says is not asked', async (t) => {
  const values = { admin: 'anna', vault: 'work', for: 'livesync', host: 'https://h:443' }
  const { questions, done, report } = await run(values, [''])
  t.equal(questions.length, 1, 'the password is')
  t.match(done, [
    { name: 'anna', password: /^(?:[a-z2-9]{5}-){4}[a-z2-9]{5}$/ },
    { liveSync: true, mobileFilter: false },
  ])
  t.ok(report.admin?.isMade)
  t.ok(report.vault?.setup?.newEncryption)
  t.strictSame((await run(values, null, {}, 'given')).done[0], {
    name: 'anna',
    password: 'given',
    create: true,
    isFirst: true,
  })
})

t.test('an admin who is there is left alone', async (t) => {
  for (const admin of [undefined, 'anna']) {
    const { done, report } = await run({ ...(admin && { admin }), 'no-vault': true }, [], {
      admins: ['anna'],
    })
    t.strictSame(done, [])
    t.match(report, { admin: null, before: ['anna'], vault: null })
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

t.test('who breaks off at the last question has changed nothing', async (t) => {
  const values = { admin: 'anna', vault: 'work', for: 'livesync', host: 'https://h:443' }
  const state = { documents: 3, hasMembers: true }
  await t.rejects(run(values, [''], state), { message: /unexpected: Passphrase/ })
  t.strictSame(told, [[]], 'the admin neither')
  await t.rejects(run(values, null, state, 'given'), { message: /Nothing has changed\.$/ })
  t.strictSame(told, [[]])
  await t.rejects(run({ ...values, account: 'a\tb' }, null, {}, 'given'), { message: /control character/ })
  t.strictSame(told, [[]])
})

t.test('where the vault fails, the password that was made for the admin is told all the same', async (t) => {
  const values = { admin: 'anna', vault: 'work', for: 'pouchdb', host: 'https://h:443' }
  const refusal = new Error('The disk is full.')
  const { report, done } = await run(values, [''], {}, null, refusal)
  t.match(report, { vault: null, fault: refusal, admin: { isMade: true, password: /^[a-z2-9-]{29}$/ } })
  t.equal(done.length, 1)
  const there = { admins: ['anna'] }
  await t.rejects(run(values, [], there, null, refusal), refusal, 'with nothing made it just fails')
})

t.test('a password for an admin who is there is not used, and that is said', async (t) => {
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
