import { createHash } from 'node:crypto'
import t, { type Test } from 'tap'
import type { Account, AccountListener } from '../../src/auth/accounts.ts'
import { looksLikeSecret, userOfToken } from '../../src/auth/token-record.ts'
import {
  removeTokensOf,
  runningTokenMaker,
  storedTokenMaker,
  type TokenMaker,
  type TokenRecords,
  type TokensOptions,
} from '../../src/auth/tokens.ts'
import type { RecordWrite } from '../../src/storage/records.ts'
import { tokensOver } from '../helpers/tokens.ts'

import { MemoryRecords } from '../storage/memory/records.ts'

const MINUTE = 60_000

/** Records in a map, accounts in another, a clock that stands until it is set. */
async function setUp(t: Test, options: Partial<TokensOptions> = {}) {
  const kept = new Map<string, string>()
  const batches: (readonly RecordWrite[])[] = []
  const names = new Map<string, Account>()
  const listeners = new Set<AccountListener>()
  const state = { now: Date.UTC(2026, 0, 1), fault: null as Error | null }
  const records = {
    listRecords: async (kind: string) => [...kept].map(([key, value]) => ({ kind, key, value })),
    writeRecords: async (writes: readonly RecordWrite[]) => {
      if (state.fault) throw state.fault
      batches.push(writes)
      for (const { key, value } of writes) {
        if (value === null) kept.delete(key)
        else kept.set(key, value)
      }
      return true
    },
  }
  const accounts = {
    find: async (name: string) => names.get(name) ?? null,
    onChange: (listener: AccountListener) => {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
  }
  for (const name of ['anna', 'bob']) names.set(name, { name, roles: [], stored: null, salt: '' })
  const open = async (more: Partial<TokensOptions> = {}) => {
    const tokens = await tokensOver(records, accounts, { now: () => state.now, ...options, ...more })
    t.teardown(() => tokens.close())
    return tokens
  }
  const changed: (string[] | 'all')[] = []
  const tokens = await open()
  tokens.onChange((names) => changed.push(names === 'all' ? names : [...names]))
  const tell: AccountListener = (names) => {
    for (const listener of listeners) listener(names)
  }
  return { tokens, open, kept, batches, names, state, records, listeners, changed, tell }
}

const phone = { account: 'anna', name: 'phone', isAdmin: false }
const until = async (holds: () => boolean): Promise<void> => {
  while (!holds()) await new Promise((resolve) => setImmediate(resolve))
}

t.test('a token logs in only its own account', async (t) => {
  const { tokens } = await setUp(t)
  const { token, secret } = await tokens.make(phone)
  t.match(secret, /^stt_[A-Za-z0-9_-]{43}$/)
  t.match(token, { account: 'anna', name: 'phone', isAdmin: false, lastUse: null })
  t.ok(looksLikeSecret(secret))
  for (const text of ['', 'secret', 'stt_', `${secret}x`, `x${secret}`, secret.slice(0, -1), `${secret}\n`]) {
    t.notOk(looksLikeSecret(text), text)
    t.equal(tokens.check('anna', text), null)
  }
  t.match(tokens.check('anna', secret), { id: token.id, isAdmin: false })
  t.equal(tokens.check('bob', secret), null)
  t.equal(tokens.check('', secret), null)
  t.equal(tokens.check('anna', `stt_${'A'.repeat(43)}`), null)
  t.not((await tokens.make({ ...phone, name: 'desk' })).secret, secret)
  t.strictSame(
    tokens.list('anna').map(({ name }) => name),
    ['phone', 'desk'],
  )
  t.strictSame(tokens.list('bob'), [])
})

t.test('of the secret nothing is kept but its hash', async (t) => {
  const { tokens, kept } = await setUp(t)
  const { token, secret } = await tokens.make(phone)
  const text = [...kept.values()].join()
  t.notMatch(text, secret.slice(4))
  t.match(text, createHash('sha256').update(secret).digest('base64url'))
  t.strictSame([...kept.keys()], [token.id])
})

t.test('tokens outlive the server', async (t) => {
  const { tokens, open, state } = await setUp(t)
  const { token, secret } = await tokens.make({ ...phone, isAdmin: true })
  const gone = await tokens.make({ ...phone, name: 'desk' })
  tokens.noteUse(token.id, 'Obsidian', '192.0.2.1')
  await tokens.revoke(gone.token.id)
  await tokens.close()
  const again = await open()
  t.match(again.check('anna', secret), { id: token.id, isAdmin: true })
  t.equal(again.check('anna', gone.secret), null)
  const lastUse = { time: state.now, client: 'Obsidian', address: '192.0.2.1' }
  t.strictSame(again.list('anna'), [{ ...token, lastUse }])
})

t.test('a revoked token is refused at once, and the call resolves when that is durable', async (t) => {
  const { tokens, changed, kept } = await setUp(t)
  const { token, secret } = await tokens.make(phone)
  t.strictSame(changed, [], 'a token that is made withdraws nothing')
  const revoked = tokens.revoke(token.id)
  t.equal(tokens.check('anna', secret), null)
  t.strictSame(changed, [])
  t.equal(await revoked, true)
  t.strictSame([changed, kept.size], [[['anna']], 0])
  t.equal(await tokens.revoke(token.id), false)
  t.equal(await tokens.revoke('none'), false)
  t.equal(changed.length, 1)
})

t.test('a failed write changes nothing', async (t) => {
  const { tokens, state, changed } = await setUp(t)
  const { token, secret } = await tokens.make(phone)
  state.fault = new Error('the disk is full')
  await t.rejects(tokens.make({ ...phone, name: 'desk' }), state.fault)
  t.equal(tokens.list('anna').length, 1)
  await t.rejects(tokens.revoke(token.id), state.fault)
  t.match(tokens.check('anna', secret), { id: token.id })
  t.strictSame(changed, [])
  state.fault = null
  await tokens.make({ ...phone, name: 'desk' })
  t.ok(await tokens.revoke(token.id))
})

t.test('names', async (t) => {
  const { tokens } = await setUp(t)
  const make = (name: string, account = 'anna') => tokens.make({ account, name, isAdmin: false })
  await make('phone')
  await make('phone', 'bob')
  await t.rejects(make('phone'), { code: 'conflict' })
  for (const name of ['', ' ', ' a', 'a\n', 'a\u0000b', '\ud800', 'x'.repeat(51)]) {
    await t.rejects(make(name), { code: 'bad_request' }, JSON.stringify(name))
  }
  await make('Annas Händy 📱')
})

t.test('limits include tokens that are being created', async (t) => {
  const limits = { total: 3, perAccount: 2, nameLength: 5 }
  const { tokens } = await setUp(t, { limits: () => limits })
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

t.test('the last use is noted once a minute, and written once for all', async (t) => {
  const { tokens, state, batches } = await setUp(t)
  const [one, two] = [await tokens.make(phone), await tokens.make({ ...phone, account: 'bob' })]
  const made = batches.length
  const use = () => tokens.get(one.token.id)?.lastUse
  tokens.noteUse(one.token.id, 'A'.repeat(300), '192.0.2.1')
  t.strictSame(use(), { time: state.now, client: 'A'.repeat(200), address: '192.0.2.1' })
  const first = state.now
  state.now += MINUTE - 1
  tokens.noteUse(one.token.id, 'other', '192.0.2.2')
  t.equal(use()?.time, first)
  state.now += 1
  tokens.noteUse(one.token.id, undefined, '192.0.2.2')
  t.strictSame(use(), { time: state.now, client: '', address: '192.0.2.2' })
  tokens.noteUse(two.token.id, 'PouchDB', '::1')
  tokens.noteUse('none', 'PouchDB', '::1')
  t.equal(batches.length, made, 'a request writes nothing')
  await tokens.close()
  t.equal(batches.length, made + 1)
  t.strictSame(
    batches.at(-1)?.map(({ key }) => key),
    [one.token.id, two.token.id],
  )
})

t.test('uses are written in the end, and again when that fails', async (t) => {
  const faults: unknown[] = []
  const { tokens, state, kept } = await setUp(t, { writeMs: 1, onFault: (fault) => faults.push(fault) })
  const { token } = await tokens.make(phone)
  state.fault = new Error('the disk is full')
  tokens.noteUse(token.id, 'first', '::1')
  await until(() => faults.length > 0)
  t.strictSame(faults, [state.fault])
  state.fault = null
  state.now += MINUTE
  tokens.noteUse(token.id, 'second', '::1')
  await until(() => kept.get(token.id)?.includes('second') ?? false)
})

t.test('a use that waits brings no revoked token back', async (t) => {
  const { tokens, kept } = await setUp(t)
  const { token } = await tokens.make(phone)
  tokens.noteUse(token.id, 'PouchDB', '::1')
  await tokens.revoke(token.id)
  await tokens.close()
  t.equal(kept.size, 0)
})

t.test('deleting an account deletes its tokens', async (t) => {
  const { tokens, open, names, tell, changed, kept } = await setUp(t)
  const { secret } = await tokens.make(phone)
  await tokens.make({ ...phone, name: 'desk' })
  const other = await tokens.make({ ...phone, account: 'bob' })
  tell(new Set(['anna', 'nobody']))
  tell('all')
  names.delete('anna')
  tell(new Set(['bob', 'anna']))
  await until(() => changed.length > 0)
  t.strictSame(changed, [['anna']])
  names.set('anna', { name: 'anna', roles: [], stored: null, salt: '' })
  t.equal(tokens.check('anna', secret), null, 'a later account of the name does not inherit them')
  t.ok(tokens.check('bob', other.secret))
  names.delete('bob')
  tell('all')
  await until(() => kept.size === 0)

  t.test('also while the server was stopped', async (t) => {
    await tokens.make(phone)
    await tokens.close()
    names.delete('anna')
    const again = await open()
    await until(() => kept.size === 0)
    t.strictSame(again.list('anna'), [])
  })
})

t.test('an account that cannot be asked for keeps its tokens', async (t) => {
  const faults: unknown[] = []
  const { tokens, names, records } = await setUp(t)
  await tokens.make(phone)
  await tokens.close()
  const fault = new Error('no answer')
  const state = { isDown: true }
  const accounts = {
    find: async (name: string) => {
      if (state.isDown) throw fault
      return names.get(name) ?? null
    },
    onChange: () => () => true,
  }
  const again = await tokensOver(records, accounts, { onFault: (seen) => faults.push(seen) })
  await until(() => faults.length > 0)
  t.strictSame([faults, again.list('anna').length], [[fault], 1])
  await again.close()
})

t.test('a closed server follows accounts no longer', async (t) => {
  const { tokens, listeners } = await setUp(t)
  t.equal(listeners.size, 1)
  await tokens.close()
  t.equal(listeners.size, 0)
})

t.test('invalid records are logged and left unchanged', async (t) => {
  const faults: unknown[] = []
  const { tokens, open, kept } = await setUp(t)
  await tokens.make(phone)
  const [[id, text] = ['', '']] = kept
  const broken = ['{', '[]', 'null', '{}', text.replace('"account":"anna"', '"account":1'), text.slice(1)]
  for (const [at, value] of broken.entries()) kept.set(`broken${at}`, value)
  kept.set('short', text.replace(/"hash":"./, '"hash":"'))
  const again = await open({ onFault: (fault) => faults.push(fault) })
  t.equal(faults.length, broken.length + 1)
  t.strictSame(
    again.list('anna').map((token) => token.id),
    [id],
  )
  t.equal(kept.size, broken.length + 2)
})

t.test('the records of an account can be removed without a server', async (t) => {
  const { tokens, kept, records } = await setUp(t)
  await tokens.make(phone)
  await tokens.make({ ...phone, name: 'desk' })
  const { token } = await tokens.make({ ...phone, account: 'bob' })
  await removeTokensOf(records, 'anna')
  t.strictSame([...kept.keys()], [token.id])
})

t.test("an admin's token is no admin's unless it was made as one", (t) => {
  const account = { name: 'anna', roles: ['_admin', 'staff'], stored: null, salt: '' }
  t.strictSame(userOfToken(account, { id: '', isAdmin: false }), { name: 'anna', roles: ['staff'] })
  t.strictSame(userOfToken(account, { id: '', isAdmin: true }), { name: 'anna', roles: ['_admin', 'staff'] })
  t.strictSame(userOfToken({ ...account, roles: [] }, { id: '', isAdmin: true }), { name: 'anna', roles: [] })
  t.end()
})

// Device tokens by the operator's hand: in memory and on the disk they come to the same.

const LIMITS = { total: 4, perAccount: 3, nameLength: 10 }
const ACCOUNTS = {
  find: async (name: string) => ({ name, roles: [], stored: null, salt: '' }),
  onChange: () => () => undefined,
}

const MAKERS: Readonly<Record<string, (records: TokenRecords) => Promise<TokenMaker>>> = {
  running: async (records) =>
    runningTokenMaker(await tokensOver(records, ACCOUNTS, { limits: () => LIMITS })),
  stored: async (records) => storedTokenMaker(records, () => LIMITS),
}

for (const [name, make] of Object.entries(MAKERS)) {
  t.test(`${name}: made, named, refused at limits, revoked`, async (t) => {
    const records = new MemoryRecords()
    const maker = await make(records)
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

    const tokens = await tokensOver(records, ACCOUNTS)
    t.equal(tokens.check('anna', secret), null, 'what was revoked lets nobody in')
    await maker.revoke('anna', 'desk')
    const again = await maker.make('anna', 'phone')
    const later = await tokensOver(records, ACCOUNTS)
    t.match(later.check('anna', again), { isAdmin: false })
    t.equal(later.check('bob', again), null)
    await Promise.all([tokens.close(), later.close()])
  })
}

t.test('positions are written with the uses, and belong to eight databases at most', async (t) => {
  const { tokens, open, state, kept } = await setUp(t)
  const { token } = await tokens.make(phone)
  for (let n = 0; n < 10; n++) {
    state.now += 1
    tokens.notePosition(token.id, `db-${n % 9}`, `${n}-a`)
  }
  tokens.notePosition('none', 'db', '1-a')
  const names = tokens.positionsOf(token.id).map(({ database, token }) => [database, token])
  t.strictSame(names[0], ['db-0', '9-a'], 'the latest first')
  t.equal(names.length, 8)
  await tokens.close()
  const again = await open()
  t.strictSame(again.positionsOf(token.id), tokens.positionsOf(token.id))
  t.equal(again.positionsOf('none').length, 0)
  await again.revoke(token.id)
  t.strictSame([again.positionsOf(token.id), kept.size], [[], 0])
})
