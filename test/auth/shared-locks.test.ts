import t from 'tap'
import { Lockout } from '../../src/auth/credentials.ts'
import { SharedLocks } from '../../src/auth/shared-locks.ts'
import { settled } from '../changes/helpers.ts'
import { MemoryRecords, SharedRecords } from '../storage/memory/records.ts'

const LIFETIME = 300_000

/** A server of several nodes with one clock. */
function server() {
  const shared = new SharedRecords()
  let passed = 0
  const node = (mode: 'enforce' | 'warn' = 'enforce') => {
    const lockout = new Lockout({
      policy: () => ({ mode, threshold: 3, lifetimeMs: LIFETIME }),
      maxObjects: 100,
      now: () => 1 + passed,
      onLock: (name, ms) => locks.publish(name, ms),
    })
    const locks = new SharedLocks({
      records: new MemoryRecords(shared),
      lock: (name, ms) => lockout.lock(name, ms),
      onFault: (fault) => t.fail(String(fault)),
      now: () => 1_700_000_000_000 + passed,
    })
    return { lockout, locks }
  }
  return { node, records: new MemoryRecords(shared), pass: (ms: number) => (passed += ms) }
}

function fail(lockout: Lockout, address: string, name: string, times: number): void {
  for (let at = 0; at < times; at++) lockout.failed(address, name)
}

t.test('an account that one node locked for an address is locked on all, for as long', async (t) => {
  const { node, records, pass } = server()
  const [one, two] = [node(), node()]
  fail(one.lockout, '192.0.2.1', 'anna b', 2)
  await settled()
  t.equal(two.lockout.isWatching, false, 'failures below the threshold are counted by each node alone')
  fail(one.lockout, '192.0.2.1', 'anna b', 1)
  await settled()
  t.equal(two.lockout.isWatching, true)
  t.equal(two.lockout.isLocked('192.0.2.1', 'anna b'), true)
  t.equal(two.lockout.isLocked('192.0.2.2', 'anna b'), false)
  t.equal(two.lockout.isLocked('192.0.2.1', 'bert'), false)
  t.equal(two.lockout.isAddressLocked('192.0.2.1'), false)
  pass(100_000)
  const three = node()
  await settled()
  t.equal(three.lockout.isLocked('192.0.2.1', 'anna b'), true, 'a node that starts later reads the lock')
  t.equal(records.all('lockout').length, 1)
  pass(LIFETIME - 100_000 + 1)
  for (const { lockout } of [one, two, three]) t.equal(lockout.isLocked('192.0.2.1', 'anna b'), false)
  await Promise.all([one.locks.close(), two.locks.close(), three.locks.close()])
})

t.test('so is an address that tries many names', async (t) => {
  const { node } = server()
  const [one, two] = [node(), node()]
  for (let at = 0; at < 60; at++) one.lockout.failed('2001:db8::1', `name${at}`)
  await settled()
  t.equal(two.lockout.isAddressLocked('2001:db8::2'), true)
  t.equal(two.lockout.isAddressLocked('192.0.2.1'), false)
})

t.test('a lock that refuses nobody is not told, and what has expired is removed', async (t) => {
  const { node, records, pass } = server()
  fail(node('warn').lockout, '192.0.2.1', 'anna', 5)
  await settled()
  t.equal(records.all('lockout').length, 0)
  const { lockout } = node()
  for (let at = 0; at < 100; at++) {
    fail(lockout, `192.0.2.${at}`, 'anna', 3)
    pass(30_000)
    await settled()
  }
  t.ok(records.all('lockout').length < 30, String(records.all('lockout').length))
})

t.test('the locks that one node tells of are bounded', async (t) => {
  const { node, records } = server()
  const { locks } = node()
  for (let at = 0; at < 3000; at++) locks.publish(`account 192.0.2.1 a${at}`, LIFETIME)
  await locks.close()
  t.equal(records.all('lockout').length, 1000)
})
