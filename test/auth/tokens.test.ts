import { createHash } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import type { Account, AccountListener } from '../../src/auth/accounts.ts'
import { type TokenMaker, tokensWithoutServer } from '../../src/auth/token-maker.ts'
import { looksLikeSecret, OWNER_KIND, userOfToken } from '../../src/auth/token-record.ts'
import type { Tokens, TokensOptions } from '../../src/auth/tokens.ts'
import { CouchError } from '../../src/core/errors.ts'
import { accountKey, type RecordWrite } from '../../src/storage/records.ts'
import { tokensOver } from '../helpers/tokens.ts'
import { until } from '../helpers/until.ts'
import { MemoryRecords, SharedRecords } from '../storage/memory/records.ts'

const MINUTE = 60_000

/** Records that can fail, and that list the writes. */
class TestRecords extends MemoryRecords {
  readonly batches: (readonly RecordWrite[])[] = []
  readonly state: { fault: Error | null }
  reads = 0

  constructor(shared: SharedRecords, state: { fault: Error | null }) {
    super(shared)
    this.state = state
  }

  override readRecords(kind: string, keys: readonly string[]): Promise<(string | null)[]> {
    this.reads += 1
    return super.readRecords(kind, keys)
  }

  override async writeRecords(writes: readonly RecordWrite[]): Promise<boolean> {
    if (this.state.fault) throw this.state.fault
    this.batches.push(writes)
    return super.writeRecords(writes)
  }
}

/** Tokens of one node over records that others share, accounts in a map, a clock that stands until it is set. */
function setUp(t: Test, options: Partial<TokensOptions> = {}) {
  const shared = new SharedRecords()
  const names = new Map<string, Account>()
  const listeners = new Set<AccountListener>()
  const state = { now: Date.UTC(2026, 0, 1), fault: null as Error | null }
  const accounts = {
    find: async (name: string) => names.get(name) ?? null,
    onChange: (listener: AccountListener) => {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
  }
  for (const name of ['anna', 'bob']) names.set(name, { name, roles: [], stored: null, salt: '' })
  const openNode = (more: Partial<TokensOptions> = {}) => {
    const records = new TestRecords(shared, state)
    const tokens = tokensOver(records, accounts, { now: () => state.now, ...options, ...more })
    t.teardown(() => tokens.close())
    const changed: (string[] | 'all')[] = []
    tokens.onChange((names) => changed.push(names === 'all' ? names : [...names]))
    return { tokens, records, changed }
  }
  const { tokens, records, changed } = openNode()
  const tell: AccountListener = (names) => {
    for (const listener of listeners) listener(names)
  }
  const kept = () => shared.values.size
  return { tokens, openNode, kept, shared, names, state, records, listeners, changed, tell, accounts }
}

/** Every account exists. */
const ACCOUNTS = {
  find: async (name: string) => ({ name, roles: [], stored: null, salt: '' }),
  onChange: () => () => undefined,
}

const phone = { account: 'anna', name: 'phone', isAdmin: false }
const check = async (tokens: Tokens, name: string, secret: string) => tokens.check(name, secret, '')
const namesOf = async (tokens: Tokens, account: string) =>
  (await tokens.list(account, '', 1000)).tokens.map(({ name }) => name)
const useOf = async (tokens: Tokens, account: string) => (await tokens.list(account, '', 1)).tokens[0]

t.test('a token logs in only its own account', async (t) => {
  const { tokens } = setUp(t)
  const { token, secret } = await tokens.make(phone)
  t.match(secret, /^stt_[A-Za-z0-9_-]{43}$/)
  t.match(token, { account: 'anna', name: 'phone', isAdmin: false })
  t.ok(looksLikeSecret(secret))
  for (const text of ['', 'secret', 'stt_', `${secret}x`, `x${secret}`, secret.slice(0, -1), `${secret}\n`]) {
    t.notOk(looksLikeSecret(text), text)
    t.equal(await check(tokens, 'anna', text), null)
  }
  t.match(await check(tokens, 'anna', secret), { id: token.id, isAdmin: false })
  t.equal(await check(tokens, 'bob', secret), null)
  t.equal(await check(tokens, '', secret), null)
  t.equal(await check(tokens, 'anna', `stt_${'A'.repeat(43)}`), null)
  t.not((await tokens.make({ ...phone, name: 'desk' })).secret, secret)
  t.strictSame(await namesOf(tokens, 'anna'), ['phone', 'desk'])
  t.strictSame(await namesOf(tokens, 'bob'), [])
})

t.test('a token in use is known without a read, and an unknown secret is looked up each time', async (t) => {
  const { tokens, records } = setUp(t)
  const { secret } = await tokens.make(phone)
  await check(tokens, 'anna', secret)
  const before = records.reads
  t.notOk(tokens.check('anna', secret, '') instanceof Promise)
  t.notOk(tokens.check('bob', secret, '') instanceof Promise)
  t.equal(records.reads, before)
  for (let n = 0; n < 3; n++) await check(tokens, 'anna', `stt_${'A'.repeat(43)}`)
  t.equal(records.reads, before + 3)
})

t.test('of a flood of wrong secrets the client that sends it loses some', async (t) => {
  const { tokens } = setUp(t)
  const { secret } = await tokens.make(phone)
  const wrong = Array.from({ length: 1200 }, (_, n) => `stt_${String(n).padStart(43, '0')}`)
  const flood = Promise.allSettled(wrong.map((text) => tokens.check('anna', text, 'flood')))
  t.match(await tokens.check('anna', secret, 'device'), { name: 'phone' })
  const refused = (await flood).filter(({ status }) => status === 'rejected')
  t.ok(refused.length > 0 && refused.length < wrong.length, `${refused.length} were refused`)
})

t.test('who revokes one token a thousand times keeps nobody else from revoking', async (t) => {
  const { tokens } = setUp(t)
  const [own, other] = [await tokens.make(phone), await tokens.make({ ...phone, account: 'bob' })]
  const flood = Array.from({ length: 1200 }, () => tokens.revoke(own.token.id, 'anna'))
  const ended = Promise.allSettled(flood)
  t.equal(await tokens.revoke(other.token.id, 'bob'), true)
  t.ok((await ended).some(({ status }) => status === 'rejected'))
})

t.test('of the secret nothing is kept but its hash', async (t) => {
  const { tokens, shared } = setUp(t)
  const { secret } = await tokens.make(phone)
  const text = JSON.stringify([...shared.values])
  t.notMatch(text, secret.slice(4))
  t.match(text, createHash('sha256').update(secret).digest('base64url'))
})

t.test('tokens outlive the server', async (t) => {
  const { tokens, openNode, state } = setUp(t)
  const { token, secret } = await tokens.make({ ...phone, isAdmin: true })
  const gone = await tokens.make({ ...phone, name: 'desk' })
  tokens.noteUse(token.id, 'Obsidian', '192.0.2.1')
  await tokens.revoke(gone.token.id)
  await tokens.close()
  const again = openNode().tokens
  t.match(await check(again, 'anna', secret), { id: token.id, isAdmin: true })
  t.equal(await check(again, 'anna', gone.secret), null)
  const lastUse = { time: state.now, client: 'Obsidian', address: '192.0.2.1' }
  t.strictSame((await again.list('anna', '', 10)).tokens, [{ ...token, lastUse, positions: [] }])
})

t.test('a revoked token is refused when the call resolves, and no record of it is left', async (t) => {
  const { tokens, changed, kept, shared } = setUp(t)
  const { token, secret } = await tokens.make(phone)
  await check(tokens, 'anna', secret)
  await sleep(5)
  t.strictSame(changed, [], 'a new token reports no change of rights')
  t.equal(await tokens.revoke(token.id), true)
  t.equal(await check(tokens, 'anna', secret), null)
  t.strictSame(changed[0], ['anna'])
  t.strictSame(
    [...shared.values.values()].map(({ kind }) => kind),
    ['token_owner'],
    "only the record of the account's owner is left",
  )
  t.equal(await tokens.revoke(token.id), false)
  t.equal(await tokens.revoke('none'), false)
  t.equal(await tokens.revokeAll('anna'), 0)
  t.equal(kept(), 0)
})

t.test('a failed write changes nothing', async (t) => {
  const { tokens, state, changed } = setUp(t)
  const { token, secret } = await tokens.make(phone)
  state.fault = new Error('the disk is full')
  await t.rejects(tokens.make({ ...phone, name: 'desk' }), state.fault)
  t.strictSame(await namesOf(tokens, 'anna'), ['phone'])
  await t.rejects(tokens.revoke(token.id), state.fault)
  t.match(await check(tokens, 'anna', secret), { id: token.id })
  t.strictSame(changed, [])
  state.fault = null
  await tokens.make({ ...phone, name: 'desk' })
  t.ok(await tokens.revoke(token.id))
})

t.test('names', async (t) => {
  const { tokens } = setUp(t)
  const make = (name: string, account = 'anna') => tokens.make({ account, name, isAdmin: false })
  await make('phone')
  await make('phone', 'bob')
  await t.rejects(make('phone'), { code: 'conflict' })
  for (const name of ['', ' ', ' a', 'a\n', 'a\u0000b', '\ud800', 'x'.repeat(51)]) {
    await t.rejects(make(name), { code: 'bad_request' }, JSON.stringify(name))
  }
  await make('Annas Händy 📱')
})

t.test('of accounts whose names begin alike, each has its own tokens', async (t) => {
  const { tokens } = setUp(t, { accounts: ACCOUNTS })
  const accounts = ['a', 'a/', 'a/b', 'ab', 'ä', '', 'a\u0000']
  for (const account of accounts) await tokens.make({ account, name: `of ${account.length}`, isAdmin: false })
  for (const account of accounts) t.strictSame(await namesOf(tokens, account), [`of ${account.length}`])
  await tokens.revokeAll('a')
  t.strictSame(await namesOf(tokens, 'a/'), ['of 2'])
})

t.test('pages of an account and of all accounts', async (t) => {
  const { tokens } = setUp(t)
  const ids: string[] = []
  for (const [account, name] of [
    ['anna', 'a'],
    ['bob', 'b'],
    ['anna', 'c'],
    ['anna', 'd'],
  ] as const)
    ids.push((await tokens.make({ account, name, isAdmin: false })).token.id)
  const first = await tokens.list('anna', '', 2)
  t.equal(first.tokens.length, 2)
  const rest = await tokens.list('anna', first.last ?? '', 2)
  t.equal(rest.last, null)
  t.strictSame([...first.tokens, ...rest.tokens].map(({ name }) => name).sort(), ['a', 'c', 'd'])
  const all = await tokens.page('', 3)
  const others = await tokens.page(all.last ?? '', 1)
  t.strictSame(
    [...all.tokens, ...others.tokens].map(({ id }) => id),
    [...ids].sort(),
  )
  t.equal(others.last, null)
})

t.test('limits include tokens that are being created', async (t) => {
  const limits = { total: 3, perAccount: 2, nameLength: 5 }
  const { tokens } = setUp(t, { limits: () => limits })
  const make = (name: string, account = 'anna') => tokens.make({ account, name, isAdmin: false })
  const made = await Promise.allSettled([make('a'), make('a'), make('b'), make('c')])
  t.strictSame(
    made.map(({ status }) => status),
    ['fulfilled', 'rejected', 'fulfilled', 'rejected'],
  )
  await t.rejects(make('c'), { code: 'forbidden', message: /2 tokens.*settee\/tokens_per_account/ })
  await make('a', 'bob')
  await t.rejects(make('b', 'bob'), { code: 'forbidden', message: /settee\/max_tokens/ })
  limits.total = 4
  await make('b', 'bob')
})

// Uses and positions.

t.test('the last use is noted once a minute, and written once for all', async (t) => {
  const { tokens, state, records } = setUp(t)
  const [one, two] = [await tokens.make(phone), await tokens.make({ ...phone, account: 'bob' })]
  const made = records.batches.length
  const use = async () => (await useOf(tokens, 'anna'))?.lastUse
  tokens.noteUse(one.token.id, 'A'.repeat(300), '192.0.2.1')
  t.strictSame(await use(), { time: state.now, client: 'A'.repeat(200), address: '192.0.2.1' })
  const first = state.now
  state.now += MINUTE - 1
  tokens.noteUse(one.token.id, 'other', '192.0.2.2')
  t.equal((await use())?.time, first)
  state.now += 1
  tokens.noteUse(one.token.id, undefined, '192.0.2.2')
  t.strictSame(await use(), { time: state.now, client: '', address: '192.0.2.2' })
  tokens.noteUse(two.token.id, 'PouchDB', '::1')
  tokens.noteUse('none', 'PouchDB', '::1')
  t.equal(records.batches.length, made, 'a use of a token is not written at once')
  await tokens.close()
  t.equal(records.batches.length, made + 1)
  t.strictSame(
    records.batches.at(-1)?.map(({ key }) => key),
    [one.token.id, two.token.id],
  )
})

t.test('uses are written in the end, and again when that fails', async (t) => {
  const faults: unknown[] = []
  const { tokens, state, openNode } = setUp(t, { writeMs: 1, onFault: (fault) => faults.push(fault) })
  const { token } = await tokens.make(phone)
  state.fault = new Error('the disk is full')
  tokens.noteUse(token.id, 'first', '::1')
  await until(() => faults.length > 0)
  t.equal(faults[0], state.fault)
  state.fault = null
  const other = openNode().tokens
  await until(async () => (await useOf(other, 'anna'))?.lastUse?.client === 'first')
})

t.test('many uses are written before the minute is over', async (t) => {
  const { tokens, records } = setUp(t)
  const { token } = await tokens.make(phone)
  const made = records.batches.length
  for (let n = 0; n < 20_000; n++) tokens.noteUse(`${n}`, 'PouchDB', '::1')
  tokens.noteUse(token.id, 'PouchDB', '::1')
  t.equal((await useOf(tokens, 'anna'))?.lastUse, null, 'uses beyond the limit are not recorded')
  await tokens.close()
  t.equal(records.batches.length, made, 'uses of deleted tokens are not written')
})

t.test('a use that waits brings no revoked token back', async (t) => {
  const { tokens, kept } = setUp(t)
  const { token } = await tokens.make(phone)
  tokens.noteUse(token.id, 'PouchDB', '::1')
  await tokens.revoke(token.id)
  tokens.noteUse(token.id, 'PouchDB', '::1')
  await tokens.close()
  t.equal(kept(), 1)
})

t.test('positions are written with the uses, and belong to eight databases at most', async (t) => {
  const { tokens, openNode, state } = setUp(t)
  const { token } = await tokens.make(phone)
  for (let n = 0; n < 10; n++) {
    state.now += 1
    tokens.notePosition(token.id, `db-${n % 9}`, `${n}-a`)
  }
  tokens.notePosition('none', 'db', '1-a')
  const positions = (await useOf(tokens, 'anna'))?.positions ?? []
  t.strictSame(
    [positions[0]?.database, positions[0]?.token],
    ['db-0', '9-a'],
    'positions are listed with the latest first',
  )
  t.equal(positions.length, 8)
  await tokens.close()
  t.strictSame((await useOf(openNode().tokens, 'anna'))?.positions, positions)
})

// Accounts.

t.test('deleting an account deletes its tokens', async (t) => {
  const { tokens, openNode, names, tell, changed, kept } = setUp(t)
  const { secret } = await tokens.make(phone)
  await tokens.make({ ...phone, name: 'desk' })
  const other = await tokens.make({ ...phone, account: 'bob' })
  tell(new Set(['anna', 'nobody']))
  tell('all')
  names.delete('anna')
  tell(new Set(['bob', 'anna']))
  await until(() => changed.length > 0)
  t.strictSame(changed[0], ['anna'])
  names.set('anna', { name: 'anna', roles: [], stored: null, salt: '' })
  t.equal(await check(tokens, 'anna', secret), null, 'a later account of the name does not inherit them')
  t.ok(await check(tokens, 'bob', other.secret))
  names.delete('bob')
  tell('all')
  await until(() => kept() === 0)

  t.test('also while the server was stopped', async (t) => {
    await tokens.make(phone)
    await tokens.close()
    names.delete('anna')
    const again = openNode().tokens
    await until(() => kept() === 0)
    t.strictSame(await namesOf(again, 'anna'), [])
  })
})

t.test('an account that is made again at once has none of the tokens of the one before', async (t) => {
  const { tokens, names, tell, state, changed } = setUp(t)
  const bob = names.get('bob')!
  for (const name of ['anna', 'bob']) names.set(name, { ...bob, name })
  const { secret } = await tokens.make({ ...phone, account: 'bob' })
  const makeAgain = () => {
    names.delete('bob')
    tell(new Set(['bob', 'anna']))
    names.set('bob', bob)
    tell(new Set(['bob']))
  }
  makeAgain()
  const early = tokens.check('bob', secret, '')
  const made = await tokens.make({ ...phone, account: 'bob' })
  t.equal(await early, null)
  t.equal(await check(tokens, 'bob', secret), null)
  t.match(
    await check(tokens, 'bob', made.secret),
    { account: 'bob' },
    'the new account accepts its own token',
  )
  t.same(new Set(changed.flat()), new Set(['bob']))

  state.fault = new CouchError('store_unavailable')
  makeAgain()
  t.equal(
    await check(tokens, 'bob', made.secret),
    null,
    'a token of the former account is refused although its revocation fails',
  )
  t.equal(await check(tokens, 'bob', made.secret), null)
  state.fault = null
})

t.test('an account that cannot be asked for keeps its tokens', async (t) => {
  const faults: unknown[] = []
  const { tokens, openNode } = setUp(t)
  await tokens.make(phone)
  await tokens.close()
  const fault = new Error('no answer')
  const accounts = {
    find: async () => {
      throw fault
    },
    onChange: () => () => true,
  }
  const again = openNode({ accounts, onFault: (seen) => faults.push(seen) }).tokens
  await until(() => faults.length > 0)
  t.strictSame([faults, await namesOf(again, 'anna')], [[fault], ['phone']])
  await again.close()
})

t.test('accounts that change do not hurry the check of all accounts', async (t) => {
  const { tokens, shared } = setUp(t)
  const records = new MemoryRecords(shared)
  const owners = Array.from({ length: 300 }, (_, n) => ({
    kind: OWNER_KIND,
    key: accountKey(`user${n}`),
    value: 'x',
  }))
  await records.writeRecords(owners)
  await tokens.close()
  let found = 0
  const listeners = new Set<AccountListener>()
  const accounts = {
    find: async (name: string) => {
      if (name !== 'anna') found += 1
      await sleep(1)
      return { name, roles: [], stored: null, salt: '' }
    },
    onChange: (listener: AccountListener) => {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
  }
  const again = tokensOver(records, accounts)
  await until(() => found === 100)
  for (let n = 0; n < 20; n++) {
    await sleep(5)
    for (const tell of listeners) tell(new Set(['anna']))
  }
  // A page takes 100 ms at least, and so the rest 900 ms.
  t.equal(found, 100)
  await again.close()
})

t.test('a closed server follows accounts no longer', async (t) => {
  const { tokens, listeners } = setUp(t)
  t.equal(listeners.size, 1)
  await tokens.close()
  t.equal(listeners.size, 0)
})

t.test('damaged records are logged, give no access and are left unchanged', async (t) => {
  const faults: unknown[] = []
  const { tokens, openNode, shared } = setUp(t)
  const { token, secret } = await tokens.make(phone)
  const [place, record] = [...shared.values].find(([, { kind }]) => kind === 'token')!
  const text = record.value
  const again = openNode({ onFault: (fault) => faults.push(fault) }).tokens
  const broken = ['{', '[]', 'null', '{}', text.replace('"account":"anna"', '"account":1'), text.slice(1)]
  for (const value of [...broken, text.replace(/"hash":"./, '"hash":"')]) {
    shared.values.set(place, { ...record, value })
    t.equal(await again.get(token.id), null)
    t.strictSame(await namesOf(again, 'anna'), [])
    t.equal((await again.page('', 10)).tokens.length, 0)
    t.equal(await again.revoke(token.id), false)
    t.equal(shared.values.get(place)?.value, value)
  }
  t.equal(await check(again, 'anna', secret), null)
  t.ok(faults.length >= broken.length + 1)
  t.equal(await again.revokeAll('anna'), 1, "the account's tokens are revoked")
})

t.test("an admin's token is no admin's unless it was made as one", (t) => {
  const account = { name: 'anna', roles: ['_admin', 'staff'], stored: null, salt: '' }
  t.strictSame(userOfToken(account, { isAdmin: false }), { name: 'anna', roles: ['staff'] })
  t.strictSame(userOfToken(account, { isAdmin: true }), { name: 'anna', roles: ['_admin', 'staff'] })
  t.strictSame(userOfToken({ ...account, roles: [] }, { isAdmin: true }), { name: 'anna', roles: [] })
  t.end()
})

// Device tokens by the operator's hand, with a running server or without.

const LIMITS = { total: 4, perAccount: 3, nameLength: 10 }

const MAKERS: Readonly<Record<string, (t: Test, records: MemoryRecords) => TokenMaker>> = {
  running: (t, records) => {
    const tokens = tokensOver(records, ACCOUNTS, { limits: () => LIMITS })
    t.teardown(() => tokens.close())
    return tokens.maker
  },
  stored: (_t, records) => tokensWithoutServer(records, () => LIMITS).maker,
}

for (const [name, make] of Object.entries(MAKERS)) {
  t.test(`${name}: made, named, refused at limits, revoked`, async (t) => {
    const records = new MemoryRecords()
    const maker = make(t, records)
    const secret = await maker.make('anna', 'phone')
    t.ok(looksLikeSecret(secret))
    t.notMatch(JSON.stringify(records.all('token')), secret)
    await t.rejects(maker.make('anna', 'phone'), { code: 'conflict' })
    await t.rejects(maker.make('anna', 'a long, long name'), { code: 'bad_request' })
    await t.rejects(maker.check('anna', 'phone'), { code: 'conflict' })
    await t.rejects(maker.check('anna', 'a long, long name'), { code: 'bad_request' })
    await maker.check('anna', 'desk')
    await maker.make('bob', 'phone')
    await maker.make('anna', 'desk')
    t.strictSame(await maker.names('anna'), ['phone', 'desk'])
    await maker.make('anna', 'tablet')
    await t.rejects(maker.make('anna', 'more'), { code: 'forbidden' })
    await t.rejects(maker.make('cy', 'phone'), { code: 'forbidden' })
    await maker.revoke('anna', 'phone')
    await maker.revoke('anna', 'nothing')
    t.strictSame([await maker.names('anna'), await maker.names('bob')], [['desk', 'tablet'], ['phone']])
    await maker.revoke('anna', 'desk')
    const again = await maker.make('anna', 'phone')

    const tokens = tokensOver(records, ACCOUNTS)
    t.teardown(() => tokens.close())
    t.equal(await check(tokens, 'anna', secret), null, 'a revoked token is refused')
    t.match(await check(tokens, 'anna', again), { isAdmin: false })
    t.equal(await check(tokens, 'bob', again), null)
  })
}

t.test('the tokens of an account can be removed without a server', async (t) => {
  const { tokens, records, kept } = setUp(t)
  for (let n = 0; n < 3; n++) await tokens.make({ ...phone, name: `${n}` })
  await tokens.make({ ...phone, account: 'bob' })
  await tokensWithoutServer(records, () => LIMITS).revokeAll('anna')
  t.strictSame([await namesOf(tokens, 'anna'), await namesOf(tokens, 'bob')], [[], ['phone']])
  t.equal(kept(), 6)
})
