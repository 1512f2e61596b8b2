/**
 * Database threads that hang or run out of memory are ended, and the databases that caused it move to the quarantine.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import t, { type Test } from 'tap'
import {
  type Heartbeat,
  heartbeatMemory,
  isLater,
  joinHeartbeat,
  longCall,
  readHeartbeat,
} from '../../../src/core/event-loop.ts'
import { DEFAULT_LIMITS, DEFAULT_RULES } from '../../../src/core/types.ts'
import type { DatabaseHandle } from '../../../src/threads/databases.ts'
import { heapLimit } from '../../../src/threads/thread-stats.ts'
import {
  HangError,
  processorMs,
  Quarantine,
  Watchdog,
  type WatchedThread,
} from '../../../src/threads/watchdog.ts'
import { ADMIN } from '../../documents/helpers.ts'
import { DEADLY_ENTRY, idsOf, put, serve, until } from '../../threads/served.ts'

const MB = 1024 * 1024

/** A fake thread whose turns and processor time the test sets, and its watchdog. */
function watched() {
  const pulse: { -readonly [Key in keyof Heartbeat]: Heartbeat[Key] } = {
    turns: 1,
    lastCall: 0,
    isInLongCall: false,
    systemId: 7,
  }
  const state = { cpuMs: 0 as number | null, pings: 0, faults: [] as Error[], callsUnderWay: 1 }
  const thread: WatchedThread = {
    isRunning: true,
    get callsUnderWay() {
      return state.callsUnderWay
    },
    pulse: () => ({ ...pulse }),
    ping: () => {
      state.pings += 1
    },
    endHung: (fault) => {
      state.faults.push(fault)
    },
  }
  const watchdog = new Watchdog({ threads: () => [thread], cpuMs: () => state.cpuMs })
  /** Checks the thread this many times. `each` sets the work between two checks. @returns how often it was ended */
  const look = (times: number, each: () => void = () => undefined) => {
    for (let n = 0; n < times; n += 1) {
      each()
      watchdog.check()
    }
    return state.faults.length
  }
  const work = (ms: number) => () => {
    state.cpuMs = (state.cpuMs ?? 0) + ms
  }
  return { pulse, state, watchdog, look, work }
}

t.test('a thread that works for ten seconds without handling a message hangs', async (t) => {
  const { state, look, work } = watched()
  t.equal(look(10, work(1000)), 0)
  t.equal(look(1, work(1000)), 1)
  t.match(state.faults, [HangError])
  t.match(state.faults[0], { message: /silent for 10 s .* 10 s of processor time/ })
  t.equal(state.pings, 1, 'it had a message to turn to')
})

t.test('a thread does not hang while it handles messages, or while no call waits', async (t) => {
  const { pulse, state, look, work } = watched()
  const turn = () => {
    pulse.turns += 1
    work(1000)()
  }
  t.equal(look(100, turn), 0)
  t.ok(state.pings >= 100, 'messages go on')
  state.callsUnderWay = 0
  t.equal(look(100, work(1000)), 0)
})

t.test('a thread does not hang while it is in a call that may take long', async (t) => {
  const { pulse, look, work } = watched()
  pulse.isInLongCall = true
  t.equal(look(1000, work(1000)), 0)
  pulse.isInLongCall = false
  t.equal(look(10, work(1000)), 1, 'the silence counts from the end of the long call')
})

t.test('a thread that waits for a disk, or shares a busy machine, gets longer', async (t) => {
  const { look, work } = watched()
  t.equal(look(60, work(50)), 0)
  t.equal(look(1), 1, 'the longer time is limited')
  const busy = watched()
  t.equal(busy.look(25, busy.work(200)), 0)
  t.equal(busy.look(1, busy.work(200)), 1)
})

t.test('without processor time, a minute decides', async (t) => {
  const { state, look } = watched()
  state.cpuMs = null
  t.equal(look(60), 0)
  t.equal(look(1), 1)
})

t.test('a thread that has not started is not silent', async (t) => {
  const { pulse, look, work } = watched()
  pulse.turns = 0
  t.equal(look(100, work(1000)), 0)
})

t.test('a heartbeat shows what a thread does', async (t) => {
  const memory = heartbeatMemory()
  joinHeartbeat(memory)
  const before = processorMs(readHeartbeat(memory).systemId)
  const isInLongCall = () => readHeartbeat(memory).isInLongCall
  t.equal(longCall(isInLongCall), true)
  t.throws(() =>
    longCall(() => {
      throw new Error('fails')
    }),
  )
  t.equal(isInLongCall(), false)
  t.ok(isLater(2, 1) && !isLater(1, 1) && isLater(-2147483648, 2147483647) && isLater(2 ** 31 + 5, 2 ** 31))
  if (process.platform !== 'linux') return
  const end = performance.now() + 60
  while (performance.now() < end);
  t.ok((processorMs(readHeartbeat(memory).systemId) ?? 0) > (before ?? Number.POSITIVE_INFINITY))
  t.equal(processorMs(0), null)
})

t.test('a heap limit is the configured one, or a part of the memory', async (t) => {
  t.equal(heapLimit(null, 512 * MB), 256 * MB)
  t.equal(heapLimit(null, 1536 * MB), 384 * MB)
  t.equal(heapLimit(null, 64_000 * MB), 512 * MB)
  t.equal(heapLimit(150 * MB, 512 * MB), 150 * MB)
  t.ok(heapLimit(null) >= 256 * MB)
})

t.test('a database that hangs its thread repeatedly is refused for longer and longer', async (t) => {
  let now = 0
  const quarantine = new Quarantine(() => now)
  t.notOk(quarantine.has('a') || quarantine.isPaused('a'))
  quarantine.add('a')
  t.ok(quarantine.has('a') && !quarantine.isPaused('a'))
  const pauses: number[] = []
  for (let n = 0; n < 9; n += 1) {
    quarantine.add('a')
    const begun = now
    while (quarantine.isPaused('a')) now += 1000
    pauses.push((now - begun) / 1000)
  }
  t.strictSame(pauses, [10, 20, 40, 80, 160, 320, 600, 600, 600])
  now += 60 * 60_000
  t.ok(quarantine.has('a'), 'it stays, since its thread has it open')
  quarantine.add('a')
  t.notOk(quarantine.isPaused('a'), 'after an hour, a hang counts as the first')
  for (let n = 0; n < 1000; n += 1) quarantine.add(`d${n}`)
  t.ok(quarantine.has('a') && quarantine.has('d998') && !quarantine.has('d999'))
  quarantine.remove('d1')
  t.notOk(quarantine.has('d1'))
})

/** Two databases of one thread, watched more closely than in a server. */
async function shared(t: Test) {
  const world = await serve(t, {
    threadEntry: DEADLY_ENTRY,
    watchMs: 30,
    settings: { limits: { ...DEFAULT_LIMITS, threadHeap: 32 * MB }, rules: DEFAULT_RULES },
  })
  const { databases, faults } = world
  const [evil, other] = await Promise.all(
    ['evil', 'other'].map(async (name) => {
      await databases.create(name)
      await put(await databases.get(name), 'x')
      return await databases.get(name)
    }),
  )
  return { ...world, faults, evil: evil as DatabaseHandle, other: other as DatabaseHandle }
}

for (const [id, fault] of [
  ['hanging', { name: 'HangError' }],
  ['hungry', { code: 'ERR_WORKER_OUT_OF_MEMORY' }],
] as const) {
  t.test(
    `${id}: callers are refused, what was stored stays, and others share no thread with it again`,
    async (t) => {
      const { databases, faults, evil, other } = await shared(t)
      const dying = t.rejects(evil.open(ADMIN, id, {}), { code: 'unavailable' })
      await sleep(30)
      const waiting = other.info(ADMIN).catch(({ code }) => code)
      await dying
      await waiting
      await until(() => faults.length === 1)
      t.match(faults, [fault])
      t.same(await idsOf(other), ['x'])
      t.same(await idsOf(evil), ['x'])
      const { threads } = await databases.stats()
      t.match(threads.at(-1), { stats: { openDatabases: 1 } }, 'a thread apart')
      await put(await databases.get('evil'), 'y')
    },
  )
}

t.test('a call that follows the death of a thread at once finds the database in quarantine', async (t) => {
  const { databases, evil } = await shared(t)
  const before = (await databases.stats()).threads.length
  const again = evil.open(ADMIN, 'hungry', {}).catch(() => put(evil, 'y'))
  await again
  const { threads } = await databases.stats()
  t.match(threads.slice(before), [{ stats: { openDatabases: 1 } }], 'only a thread apart has it open')
  t.equal(
    threads.reduce((sum, { stats }) => sum + (stats?.openDatabases ?? 0), 0),
    1,
  )
  t.same(await idsOf(evil), ['x', 'y'])
})

t.test('logins and the creation of databases go on while users’ threads hang', async (t) => {
  const { databases, evil } = await shared(t)
  await databases.create('_users')
  const stuck = t.rejects(evil.open(ADMIN, 'hanging', {}), { code: 'unavailable' })
  await sleep(30)
  await put(await databases.get('_users'), 'org.couchdb.user:anna', {
    name: 'anna',
    type: 'user',
    roles: [],
    password: 'a password',
  })
  await databases.create('made-meanwhile')
  t.ok(await databases.has('made-meanwhile'))
  await stuck
})

t.test('a server whose thread hangs closes in time', async (t) => {
  const { databases, evil } = await shared(t)
  const stuck = t.rejects(evil.open(ADMIN, 'hanging', {}), { code: 'unavailable' })
  await sleep(30)
  await databases.close()
  await stuck
})

t.test('a thread that handles no messages is ended, whatever blocks it', async (t) => {
  const worker = new Worker('for (;;);', { eval: true })
  await worker.terminate()
  t.pass('JavaScript can be ended at any place')
})
