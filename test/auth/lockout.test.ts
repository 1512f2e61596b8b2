import t from 'tap'
import { type FailedLogin, Lockout, type LockoutPolicy } from '../../src/auth/lockout.ts'

function setUp(policy: Partial<LockoutPolicy> = {}, maxObjects = 100) {
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
  const { lockout, fail, later, told } = setUp()
  t.notOk(lockout.isWatching)
  fail(2)
  t.ok(lockout.isWatching)
  t.notOk(lockout.isLocked('a', 'anna'))
  later(900)
  fail(1)
  t.ok(lockout.isLocked('a', 'anna'))
  t.notOk(lockout.isLocked('b', 'anna'), 'not for another address')
  t.notOk(lockout.isLocked('a', 'bob'), 'nor another account')
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
  const { lockout, fail, later } = setUp()
  fail(2)
  lockout.succeeded('a', 'anna')
  fail(2)
  t.notOk(lockout.isLocked('a', 'anna'))
  later(1001)
  fail(2)
  t.notOk(lockout.isLocked('a', 'anna'))
})

t.test('many names from one address lock it', async (t) => {
  const { lockout, fail, told, later } = setUp()
  for (let name = 0; name < 60; name++) {
    t.notOk(lockout.isAddressLocked('a'))
    fail(1, 'a', `name ${name}`)
  }
  t.ok(lockout.isAddressLocked('a'))
  t.notOk(lockout.isAddressLocked('b'))
  t.equal(told.length, 60)
  t.equal(told.at(-1)?.locks, 'address')
  fail(30, 'a', 'one more')
  t.equal(told.length, 60, 'a locked address fills no log')
  later(1001)
  t.notOk(lockout.isAddressLocked('a'))
})

t.test('modes', async (t) => {
  const warn = setUp({ mode: 'warn' })
  warn.fail(10)
  t.notOk(warn.lockout.isLocked('a', 'anna'))
  t.equal(warn.told.length, 10)
  t.equal(warn.told[2]?.locks, 'account')
  const off = setUp({ mode: 'off' })
  off.fail(10)
  t.notOk(off.lockout.isLocked('a', 'anna'))
  t.strictSame(off.told[9], { address: 'a', name: 'anna', locks: null })
})

t.test('memory is bounded', async (t) => {
  const { lockout, fail } = setUp({}, 10)
  for (let at = 0; at < 1000; at++) fail(3, `address ${at}`, 'x'.repeat(10_000))
  t.ok(lockout.isLocked('address 999', 'x'.repeat(10_000)))
  t.notOk(lockout.isLocked('address 0', 'x'.repeat(10_000)))
})

t.test('a refused token is told of, so often, and locks nothing', async (t) => {
  const { lockout, told } = setUp()
  for (let at = 0; at < 100; at++) lockout.tokenRefused('a', 'anna')
  t.notOk(lockout.isLocked('a', 'anna'))
  t.notOk(lockout.isAddressLocked('a'))
  t.equal(told.length, 3)
})
