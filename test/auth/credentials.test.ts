import { createHmac } from 'node:crypto'
import t from 'tap'
import type { Account } from '../../src/auth/accounts.ts'
import {
  type CheckerOptions,
  CredentialChecker,
  type FailedLogin,
  Lockout,
  type LockoutPolicy,
  readProxyAuth,
} from '../../src/auth/credentials.ts'
import { openConfig } from '../../src/config/config.ts'

/** Counts computations; each waits until it is let go. A password is right when it equals the stored text. */
function setUp(options: CheckerOptions = {}) {
  const accounts = new Map<string, Account>([
    ['anna', { name: 'anna', stored: 'secret', roles: ['_admin'], salt: '' }],
  ])
  const waiting: (() => void)[] = []
  let computed = 0
  const verify = async (password: string, stored: string): Promise<boolean> => {
    computed += 1
    await new Promise<void>((resolve) => waiting.push(resolve))
    return password === stored
  }
  const source = { find: async (name: string) => accounts.get(name) ?? null, decoy: () => 'decoy' }
  const checker = new CredentialChecker(source, { verify, ...options })
  const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))
  /** Lets computations end, also those that begin by it, until a promise is settled. */
  const letGo = async <T>(result: Promise<T>): Promise<T> => {
    let done = false
    const end = result.finally(() => {
      done = true
    })
    end.catch(() => undefined)
    while (!done) {
      waiting.shift()?.()
      await settled()
    }
    return end
  }
  return { accounts, checker, waiting, letGo, settled, computed: () => computed }
}
const anna = { name: 'anna', roles: ['_admin'] }

t.test('the right pair is computed once', async (t) => {
  const { checker, letGo, computed } = setUp()
  t.strictSame(await letGo(checker.check('anna', 'secret')), anna)
  t.strictSame(await checker.check('anna', 'secret'), anna)
  t.equal(computed(), 1)
})

t.test('wrong pairs cost a computation, an unknown name too', async (t) => {
  const { checker, letGo, computed } = setUp()
  t.equal(await letGo(checker.check('anna', 'guess')), null)
  t.equal(await letGo(checker.check('nobody', 'secret')), null)
  t.equal(await letGo(checker.check('nobody', 'decoy')), null, 'an unknown name is refused')
  t.equal(computed(), 3)
  t.equal(await checker.check('anna', 'guess'), null)
  t.equal(computed(), 3, 'the same wrong pair is refused for a while without a computation')
  t.strictSame(await letGo(checker.check('anna', 'secret')), anna, 'the right password is still accepted')
})

t.test('a refused pair is tried again after a while', async (t) => {
  const { checker, letGo, computed } = setUp({ refusedMs: 1 })
  await letGo(checker.check('anna', 'guess'))
  const before = performance.now()
  while (performance.now() - before < 5) await new Promise((resolve) => setImmediate(resolve))
  await letGo(checker.check('anna', 'guess'))
  t.equal(computed(), 2)
})

t.test('a changed or withdrawn password ends what is remembered', async (t) => {
  const { accounts, checker, letGo } = setUp()
  t.equal(await letGo(checker.check('anna', 'new')), null)
  t.strictSame(await letGo(checker.check('anna', 'secret')), anna)
  accounts.set('anna', { name: 'anna', salt: '', stored: 'new', roles: ['_admin'] })
  t.equal(await letGo(checker.check('anna', 'secret')), null)
  t.strictSame(
    await letGo(checker.check('anna', 'new')),
    anna,
    'the new password is accepted at once, although it was refused before',
  )
  accounts.delete('anna')
  t.equal(await letGo(checker.check('anna', 'new')), null)
})

t.test('equal checks at the same time share one computation, others do not', async (t) => {
  const { checker, letGo, computed } = setUp()
  const same = Promise.all([1, 2, 3].map(() => checker.check('anna', 'secret')))
  const other = checker.check('annas', 'ecret')
  t.strictSame(await letGo(same), [anna, anna, anna])
  t.equal(await letGo(other), null)
  t.equal(computed(), 2)
})

t.test('two are computed at once, some wait in order, the rest is refused', async (t) => {
  const { checker, letGo, settled, waiting, computed } = setUp({ queue: 3 })
  const ended: number[] = []
  const checks = [0, 1, 2, 3, 4].map(async (number) => {
    await checker.check('anna', `guess ${number}`)
    ended.push(number)
  })
  await settled()
  t.equal(waiting.length, 2)
  t.equal(computed(), 2)
  await t.rejects(checker.check('anna', 'one more'), {
    code: 'unavailable',
    status: 503,
    error: 'service_unavailable',
  })
  await letGo(Promise.all(checks))
  t.strictSame(ended, [0, 1, 2, 3, 4])
  t.strictSame(
    await letGo(checker.check('anna', 'secret')),
    anna,
    'the right password is accepted afterwards',
  )
})

t.test('many wrong guesses do not evict verified users', async (t) => {
  const { checker, letGo, computed } = setUp({ remembered: 10 })
  await letGo(checker.check('anna', 'secret'))
  for (let guess = 0; guess < 50; guess++) await letGo(checker.check('anna', `${guess}`))
  const before = computed()
  t.strictSame(await checker.check('anna', 'secret'), anna)
  t.equal(computed(), before)
})

t.test('a failed computation affects no other caller', async (t) => {
  const faults = [new Error('no memory')]
  const account = { name: 'a', stored: 's', roles: [], salt: '' }
  const source = { find: async () => account, decoy: () => 'decoy' }
  const verify = async (): Promise<boolean> => {
    const fault = faults.pop()
    if (fault) throw fault
    return true
  }
  const checker = new CredentialChecker(source, { verify, concurrency: 1, queue: 0 })
  await t.rejects(checker.check('a', 'b'), { message: 'no memory' })
  t.strictSame(await checker.check('a', 'b'), { name: 'a', roles: [] })
})

function guarded(options: CheckerOptions = {}) {
  const told: FailedLogin[] = []
  const policy = () => ({ mode: 'enforce', threshold: 3, lifetimeMs: 60_000 }) as const
  const lockout = new Lockout({ policy, maxObjects: 100, onFailure: (failure) => told.push(failure) })
  const here = { address: '192.0.2.1' }
  const there = { address: '192.0.2.2' }
  return { ...setUp({ lockout, ...options }), told, here, there, lockout }
}

const LOCKED = { code: 'account_locked', status: 403, error: 'forbidden' }

t.test('too many failures lock a user out, even with the right password', async (t) => {
  const { checker, letGo, told, here, there, computed } = guarded()
  t.strictSame(await letGo(checker.check('anna', 'secret', here)), anna)
  for (const guess of ['a', 'b', 'b']) t.equal(await letGo(checker.check('anna', guess, here)), null)
  const before = computed()
  await t.rejects(checker.check('anna', 'secret', here), LOCKED)
  await t.rejects(checker.check('anna', 'c', here), LOCKED)
  t.equal(computed(), before)
  t.strictSame(await checker.check('anna', 'secret', there), anna)
  t.strictSame(
    await checker.check('anna', 'secret', null),
    anna,
    'a check without an address is not locked out',
  )
  t.equal(await letGo(checker.check('nobody', 'c', here)), null)
  t.equal(told.length, 4)
  t.strictSame(told[2], { address: '192.0.2.1', name: 'anna', locks: 'account' })
})

t.test('a right password after fewer failures resets the count', async (t) => {
  const { checker, letGo, here } = guarded()
  for (const password of ['a', 'b', 'secret', 'a', 'b', 'secret', 'a', 'b']) {
    await letGo(checker.check('anna', password, here))
  }
  t.strictSame(await checker.check('anna', 'secret', here), anna)
})

t.test('equal simultaneous guesses count as one failure', async (t) => {
  const { checker, letGo, told, here } = guarded()
  await letGo(Promise.all(Array.from({ length: 10 }, () => checker.check('anna', 'typo', here))))
  t.equal(told.length, 1)
})

t.test(
  'of many guesses that come together no more are tried than of those that come one by one',
  async (t) => {
    const { checker, letGo, here, computed } = guarded()
    const guesses = Array.from({ length: 30 }, (_, guess) => checker.check('anna', `${guess}`, here))
    const ends = await letGo(Promise.allSettled(guesses))
    t.ok(computed() <= 4, `${computed()} were tried: three, and one that ran beside the third`)
    t.equal(ends.filter(({ status }) => status === 'rejected').length, 30 - computed())
  },
)

t.test('an address that tries many names is refused all that is not known to be right', async (t) => {
  const { checker, letGo, here, there, computed } = guarded()
  await letGo(checker.check('anna', 'secret', here))
  for (let name = 0; name < 60; name++) await letGo(checker.check(`name ${name}`, 'summer', here))
  const before = computed()
  await t.rejects(checker.check('bob', 'summer', here), LOCKED)
  t.strictSame(
    await checker.check('anna', 'secret', here),
    anna,
    'a right password from the same address is accepted',
  )
  for (const guess of ['a', 'b', 'c']) await t.rejects(checker.check('anna', guess, here), LOCKED)
  await t.rejects(
    checker.check('anna', 'secret', here),
    LOCKED,
    'after further guesses, the right password is locked out as well',
  )
  t.equal(computed(), before)
  t.equal(await letGo(checker.check('bob', 'summer', there)), null)
})

t.test('one address that guesses much does not hold up the others', async (t) => {
  const { checker, letGo, settled, here, there } = guarded({ concurrency: 1, queue: 20 })
  const ended: string[] = []
  const guesses = Array.from({ length: 20 }, async (_, name) => {
    await checker.check(`name ${name}`, 'x', here).catch(() => undefined)
    ended.push('here')
  })
  await settled()
  const login = checker.check('anna', 'secret', there).finally(() => ended.push('there'))
  t.strictSame(await letGo(login), anna)
  t.ok(ended.indexOf('there') <= 2)
  await letGo(Promise.all(guesses))
})

function openLockout(policy: Partial<LockoutPolicy> = {}, maxObjects = 100) {
  const told: FailedLogin[] = []
  let at = 1000
  const lockout = new Lockout({
    policy: () => ({ mode: 'enforce', threshold: 3, lifetimeMs: 1000, ...policy }),
    onFailure: (failure) => told.push(failure),
    maxObjects,
    now: () => at,
  })
  const fail = (times: number, address = 'a', name = 'anna') => {
    for (let time = 0; time < times; time++) lockout.failed(address, name)
  }
  const later = (ms: number) => {
    at += ms
  }
  return { lockout, told, fail, later }
}

t.test('so many failures lock an account for an address, for a while', async (t) => {
  const { lockout, fail, later, told } = openLockout()
  t.notOk(lockout.isWatching)
  fail(2)
  t.ok(lockout.isWatching)
  t.notOk(lockout.isLocked('a', 'anna'))
  later(900)
  fail(1)
  t.ok(lockout.isLocked('a', 'anna'))
  t.notOk(lockout.isLocked('b', 'anna'), 'another address is not locked for the account')
  t.notOk(lockout.isLocked('a', 'bob'), 'the address is not locked for another account')
  later(900)
  t.ok(lockout.isLocked('a', 'anna'), 'the time of the lock begins with it')
  later(200)
  t.notOk(lockout.isLocked('a', 'anna'))
  t.strictSame(
    told.map(({ locks }) => locks),
    [null, null, 'account'],
  )
})

t.test('failures are forgotten when the account is opened, or long ago', async (t) => {
  const { lockout, fail, later } = openLockout()
  fail(2)
  lockout.succeeded('a', 'anna')
  fail(2)
  t.notOk(lockout.isLocked('a', 'anna'))
  later(1001)
  fail(2)
  t.notOk(lockout.isLocked('a', 'anna'))
})

t.test('many names from one address lock it', async (t) => {
  const { lockout, fail, told, later } = openLockout()
  for (let name = 0; name < 60; name++) {
    t.notOk(lockout.isAddressLocked('a'))
    fail(1, 'a', `name ${name}`)
  }
  t.ok(lockout.isAddressLocked('a'))
  t.notOk(lockout.isAddressLocked('b'))
  t.equal(told.length, 60)
  t.equal(told.at(-1)?.locks, 'address')
  fail(30, 'a', 'one more')
  t.equal(told.length, 60, 'failures of a locked address are not logged')
  later(1001)
  t.notOk(lockout.isAddressLocked('a'))
})

t.test('modes', async (t) => {
  const warn = openLockout({ mode: 'warn' })
  warn.fail(10)
  t.notOk(warn.lockout.isLocked('a', 'anna'))
  t.equal(warn.told.length, 10)
  t.equal(warn.told[2]?.locks, 'account')
  const off = openLockout({ mode: 'off' })
  off.fail(10)
  t.notOk(off.lockout.isLocked('a', 'anna'))
  t.strictSame(off.told[9], { address: 'a', name: 'anna', locks: null })
})

t.test('memory is bounded', async (t) => {
  const { lockout, fail } = openLockout({}, 10)
  for (let at = 0; at < 1000; at++) fail(3, `address ${at}`, 'x'.repeat(10_000))
  t.ok(lockout.isLocked('address 999', 'x'.repeat(10_000)))
  t.notOk(lockout.isLocked('address 0', 'x'.repeat(10_000)))
})

t.test('a refused token is logged up to the threshold and locks nothing', async (t) => {
  const { lockout, told } = openLockout()
  for (let at = 0; at < 100; at++) lockout.tokenRefused('a', 'anna')
  t.notOk(lockout.isLocked('a', 'anna'))
  t.notOk(lockout.isAddressLocked('a'))
  t.equal(told.length, 3)
})

const yes = () => true
const no = () => false

t.test('whom a proxy names', async (t) => {
  const config = await openConfig({ dataDir: t.testdir(), env: {}, flags: {} })
  const headers = { 'x-auth-couchdb-username': 'anna', 'x-auth-couchdb-roles': 'a, b,,' }
  t.strictSame(readProxyAuth(config, headers, yes), { name: 'anna', roles: ['a', 'b'] })
  t.equal(readProxyAuth(config, headers, no), null)
  t.equal(readProxyAuth(config, {}, yes), null)
  t.equal(readProxyAuth(config, { 'x-auth-couchdb-username': ' ' }, yes), null)
  const utf8 = { 'x-auth-couchdb-username': Buffer.from('Änne').toString('latin1') }
  t.strictSame(readProxyAuth(config, utf8, yes), { name: 'Änne', roles: [] })
  await config.set('chttpd_auth', 'x_auth_username', 'Remote-User')
  t.equal(readProxyAuth(config, headers, yes), null)
  t.match(readProxyAuth(config, { 'remote-user': 'bob' }, yes), { name: 'bob' })
})

t.test('a proxy that signs', async (t) => {
  const config = await openConfig({ dataDir: t.testdir(), env: {}, flags: {} })
  await config.set('chttpd_auth', 'proxy_use_secret', 'true')
  const signed = (digest: string, secret: string) => ({
    'x-auth-couchdb-username': 'anna',
    'x-auth-couchdb-token': createHmac(digest, secret).update('anna').digest('hex'),
  })
  t.equal(
    readProxyAuth(config, signed('sha256', ''), yes),
    null,
    'a token that is signed with an empty secret is refused',
  )
  await config.set('chttpd_auth', 'secret', 's')
  for (const digest of ['sha256', 'sha1']) {
    t.match(readProxyAuth(config, signed(digest, 's'), no), { name: 'anna' }, digest)
  }
  t.equal(readProxyAuth(config, signed('sha256', 'guess'), yes), null)
  t.equal(readProxyAuth(config, { ...signed('sha256', 's'), 'x-auth-couchdb-username': 'bob' }, yes), null)
  for (const token of ['', 'x', 'é', 'f'.repeat(64)]) {
    const headers = { 'x-auth-couchdb-username': 'anna', 'x-auth-couchdb-token': token }
    t.equal(readProxyAuth(config, headers, yes), null)
  }
})
