/** A database that other nodes write to, as the HTTP thread has it. */
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import type { SecurityObject } from '../../src/core/types.ts'
import { DatabaseProxy } from '../../src/threads/database-proxy.ts'
import type { Thread } from '../../src/threads/thread.ts'
import { until } from './served.ts'

/** A thread that counts who keeps the store open, and for whom nothing else is there than a security object. */
class FakeThread {
  held = 0
  holds = 0
  reads = 0
  failures = 0

  async hold(): Promise<() => void> {
    if (this.failures-- > 0) throw new Error('not now')
    this.held += 1
    this.holds += 1
    return () => {
      this.held -= 1
    }
  }

  async callMethod(): Promise<SecurityObject> {
    this.reads += 1
    return { version: this.reads }
  }
}

function proxyOf(thread: FakeThread): DatabaseProxy {
  return new DatabaseProxy({ name: 'notes', incarnation: 1 }, () => thread as unknown as Thread, null)
}

t.test('its store stays open as long as anybody listens', async (t) => {
  const thread = new FakeThread()
  const proxy = proxyOf(thread)
  const [first, second] = [proxy.watch(() => {}), proxy.watch(() => {})]
  await until(() => thread.held === 1)
  first()
  await new Promise(setImmediate)
  t.equal(thread.held, 1)
  second()
  await until(() => thread.held === 0)
})

t.test('its store is kept open again after its thread has died, and not after it was deleted', async (t) => {
  const thread = new FakeThread()
  const proxy = proxyOf(thread)
  const end = proxy.watch(() => {})
  await until(() => thread.held === 1)
  proxy.emit({ type: 'closed' })
  await until(() => thread.holds === 2 && thread.held === 1)
  proxy.retire()
  proxy.emit({ type: 'closed' })
  await until(() => thread.held === 0)
  end()
  t.same([thread.held, thread.holds], [0, 2])
})

t.test('what fails is tried again', async (t) => {
  const thread = new FakeThread()
  thread.failures = 1
  const end = proxyOf(thread).watch(() => {})
  t.equal(thread.held, 0)
  for (let waited = 0; thread.held === 0 && waited < 10_000; waited += 20) await sleep(20)
  t.equal(thread.held, 1)
  end()
})

t.test('its security object is read again after a second at the latest', async (t) => {
  const thread = new FakeThread()
  const proxy = proxyOf(thread)
  t.same(await proxy.securityCopy(), { version: 1 })
  t.same(await proxy.securityCopy(), { version: 1 })
  const { now } = performance
  t.teardown(() => Object.assign(performance, { now }))
  Object.assign(performance, { now: () => now.call(performance) + 1001 })
  t.same(await proxy.securityCopy(), { version: 2 })
})
