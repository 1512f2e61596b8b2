/** What happens to databases as a feed; protocol.md 4.9. */
import assert from 'node:assert/strict'
import t, { type Test } from 'tap'
import { Feed } from '../../src/changes/changes-feed.ts'
import { readUpdatesQuery, updatesDatabase } from '../../src/changes/db-updates.ts'
import { FeedHub } from '../../src/changes/hub.ts'
import type { UserCtx } from '../../src/core/types.ts'
import { memoryEngine } from '../helpers/memory-engine.ts'
import { ADMIN, ANNA, FakeClock, FakeOutput, settled } from './helpers.ts'

/** A catalog with the databases `a` and `b`, of which `a` was updated, and feeds over it with a fake clock. */
async function start(t: Test) {
  const catalog = await memoryEngine().openCatalog()
  await catalog.create('a')
  await catalog.create('b')
  await catalog.noteUpdated(['a'])
  const listeners = new Set<() => void>()
  let reads = 0
  const database = updatesDatabase({
    updates: (range, limit) => {
      reads += 1
      return catalog.readUpdates(range, limit)
    },
    watchUpdates: (listener) => {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
  })
  const clock = new FakeClock()
  const hub = new FeedHub(clock)
  const running: { out: FakeOutput; done: Promise<void> }[] = []
  t.teardown(async () => {
    for (const { out } of running) out.disconnect()
    await Promise.all(running.map(({ done }) => done))
    assert.equal(listeners.size, 0, 'the feed has removed its listener')
    assert.equal(clock.timers, 0)
  })
  const feed = async (query: Record<string, string>, caller: () => UserCtx = () => ADMIN) => {
    const feed = new Feed(hub.join(database), caller, readUpdatesQuery(query, 60_000), clock)
    const out = new FakeOutput()
    try {
      await feed.open()
    } catch (refusal) {
      feed.close()
      throw refusal
    }
    const one = { out, done: feed.run(out) }
    running.push(one)
    await settled()
    return out
  }
  const happens = async (change: () => Promise<unknown>) => {
    await change()
    for (const listener of listeners) listener()
    await settled()
  }
  return { catalog, feed, happens, clock, hub, reads: () => reads }
}

/** Tokens without their epochs. */
function plain(text: string): string {
  return text.replace(/(\d+)-[0-9A-Za-z_-]+/g, '$1')
}

const A = '{"db_name":"a","type":"created","seq":"1"}'
const B = '{"db_name":"b","type":"created","seq":"2"}'
const A_UPDATED = '{"db_name":"a","type":"updated","seq":"3"}'

t.test('a normal feed is correct byte by byte', async (t) => {
  const { feed } = await start(t)
  const cases: [query: Record<string, string>, rows: string[], lastSeq: number][] = [
    [{}, [A, B, A_UPDATED], 3],
    [{ limit: '2' }, [A, B], 2],
    [{ since: '2' }, [A_UPDATED], 3],
    [{ since: '"1"', limit: '1' }, [B], 2],
    [{ since: 'now' }, [], 3],
    [{ since: '3' }, [], 3],
    [{ since: '99' }, [A, B, A_UPDATED], 3],
    [{ since: '5-elsewhere' }, [A, B, A_UPDATED], 3],
    [{ descending: 'true' }, [A_UPDATED, B, A], 1],
    [{ descending: 'true', limit: '2' }, [A_UPDATED, B], 2],
    [{ limit: '0' }, [], 0],
    [{ feed: 'longpoll' }, [A, B, A_UPDATED], 3],
  ]
  for (const [query, rows, lastSeq] of cases) {
    const out = await feed(query)
    t.equal(
      plain(out.text),
      `{"results":[\n${rows.join(',\r\n')}\n],\n"last_seq":"${lastSeq}"}\n`,
      JSON.stringify(query),
    )
    t.ok(out.ended)
  }
})

t.test('a feed continues from its last token', async (t) => {
  const { feed } = await start(t)
  const { last_seq } = JSON.parse((await feed({ limit: '2' })).text) as { last_seq: string }
  t.match(last_seq, /^2-[0-9A-Za-z_-]{12}$/)
  t.equal(plain((await feed({ since: last_seq })).text), `{"results":[\n${A_UPDATED}\n],\n"last_seq":"3"}\n`)
})

t.test('a feed can have more rows than a page', async (t) => {
  const { catalog, feed } = await start(t)
  for (let i = 0; i < 1100; i++) await catalog.create(`c${i}`)
  const seqs = async (query: Record<string, string>) => {
    const { results } = JSON.parse((await feed(query)).text) as { results: { seq: string }[] }
    return results.map(({ seq }) => Number.parseInt(seq, 10))
  }
  const upwards = Array.from({ length: 1103 }, (_, i) => i + 1)
  t.same(await seqs({}), upwards)
  t.same(await seqs({ descending: 'true' }), upwards.toReversed())
  t.same(await seqs({ limit: '700' }), upwards.slice(0, 700))
})

t.test('a continuous feed sends changes, heartbeats and its end', async (t) => {
  const { catalog, feed, happens, clock } = await start(t)
  const out = await feed({ feed: 'continuous', since: '1', heartbeat: '1000' })
  t.equal(plain(out.text), `${B}\n${A_UPDATED}\n`)
  await happens(() => catalog.delete('b'))
  const deleted = '{"db_name":"b","type":"deleted","seq":"4"}\n'
  t.equal(plain(out.text), `${B}\n${A_UPDATED}\n${deleted}`)
  await clock.pass(1000)
  t.ok(out.text.endsWith('}\n\n'), 'a heartbeat')
  const limited = await feed({ feed: 'continuous', since: 'now', limit: '1', timeout: '500' })
  await happens(() => catalog.create('c'))
  t.equal(plain(limited.text), '{"db_name":"c","type":"created","seq":"5"}\n{"last_seq":"5"}\n')
  t.ok(limited.ended)
  const idle = await feed({ feed: 'continuous', since: 'now', timeout: '500' })
  await clock.pass(500)
  t.equal(plain(idle.text), '{"last_seq":"5"}\n')
})

t.test('a longpoll waits for a change or its timeout, and is never silent for long', async (t) => {
  const { catalog, feed, happens, clock } = await start(t)
  const out = await feed({ feed: 'longpoll', since: 'now' })
  t.equal(out.text, '{"results":[\n')
  await clock.pass(25_000)
  t.equal(out.text, '{"results":[\n\n', "a heartbeat is sent before a proxy's time limit")
  await happens(() => catalog.noteUpdated(['b']))
  t.equal(
    plain(out.text),
    '{"results":[\n\n{"db_name":"b","type":"updated","seq":"4"}\n],\n"last_seq":"4"}\n',
  )
  const idle = await feed({ feed: 'longpoll', since: 'now', heartbeat: 'true' })
  await clock.pass(90_000)
  t.ok(idle.ended, 'the feed ends before the 100 s of a proxy')
})

t.test('an eventsource feed sends changes and heartbeats', async (t) => {
  const { catalog, feed, happens, clock } = await start(t)
  const out = await feed({ feed: 'eventsource', since: 'now', heartbeat: '2000' })
  t.equal(out.text, ':\n\n')
  await happens(() => catalog.create('c'))
  t.equal(plain(out.text), ':\n\ndata: {"db_name":"c","type":"created","seq":"4"}\nid: "4"\n\n')
  await clock.pass(2000)
  t.ok(out.text.endsWith('event: heartbeat\ndata: \n\n'))
})

t.test('waiting feeds share one read', async (t) => {
  const { catalog, feed, happens, reads } = await start(t)
  const outs = []
  for (let i = 0; i < 20; i++) outs.push(await feed({ feed: 'continuous', since: 'now', heartbeat: '9000' }))
  const before = reads()
  await happens(() => catalog.create('c'))
  t.ok(outs.every(({ text }) => text.includes('"c"')))
  t.ok(reads() - before <= 2, `${reads() - before} reads`)
})

t.test('only server admins may read the feed, and it ends when they lose the role', async (t) => {
  const { feed, hub } = await start(t)
  await t.rejects(
    feed({}, () => ANNA),
    { code: 'forbidden' },
  )
  let user = ADMIN
  const out = await feed({ feed: 'continuous', since: 'now', heartbeat: '9000' }, () => user)
  user = ANNA
  hub.recheckAccounts('all')
  await settled()
  t.ok(out.ended)
})

t.test('feeds end when the server stops', async (t) => {
  const { feed, hub } = await start(t)
  const out = await feed({ feed: 'longpoll', since: 'now' })
  hub.close()
  await settled()
  t.equal(plain(out.text), '{"results":[\n\n],\n"last_seq":"3"}\n')
})

t.test('parameters are read, limited and checked', async (t) => {
  const read = (query: Record<string, string>, lastEventId?: string) =>
    readUpdatesQuery(query, 50_000, lastEventId)
  t.match(read({}), { kind: 'normal', since: '0', limit: Infinity, heartbeat: null, timeout: 50_000 })
  t.match(read({ heartbeat: 'true' }), { heartbeat: 50_000 })
  t.match(read({ heartbeat: '70000', timeout: '70000' }), { heartbeat: 50_000, timeout: 50_000 })
  t.match(read({ heartbeat: 'false', timeout: '0' }), { heartbeat: null, timeout: 0 })
  t.match(read({ descending: 'yes' }), { options: { descending: false } })
  t.match(read({ feed: 'eventsource', since: '1' }, '2'), { since: '2' })
  t.match(read({ since: '1' }, '2'), { since: '1' })
  for (const [name, value] of [
    ['limit', 'x'],
    ['limit', '-1'],
    ['limit', ''],
    ['timeout', '1.5'],
    ['heartbeat', 'yes'],
    ['heartbeat', '0'],
  ] as const) {
    t.throws(
      () => read({ [name]: value }),
      { code: 'bad_request', reason: 'invalid_integer' },
      `${name}=${value}`,
    )
  }
  const reason = 'Supported `feed` types: normal, continuous, longpoll, eventsource'
  t.throws(() => read({ feed: 'live' }), { code: 'bad_request', reason })
  t.throws(() => read({ feed: 'toString' }), { code: 'bad_request', reason })
})
