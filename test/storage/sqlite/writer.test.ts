import { join } from 'node:path'
import t, { type Test } from 'tap'
import { countOf } from '../../../src/core/histogram.ts'
import { CommitTally } from '../../../src/storage/commit-tally.ts'
import { Connection } from '../../../src/storage/sqlite/connection.ts'
import type { Job } from '../../../src/storage/sqlite/database-access.ts'
import { sqliteEngine } from '../../../src/storage/sqlite/sqlite-engine.ts'
import { type InMemoryState, Writer } from '../../../src/storage/sqlite/writer.ts'
import { temporaryFolder } from '../../helpers/server.ts'

const NO_MEMORY: InMemoryState = {
  prefetch: () => {},
  flush: () => {},
  committed: () => {},
  rollBack: () => {},
}

/** A table of large rows in a file that cannot grow beyond some pages. */
async function smallFile(t: Parameters<typeof temporaryFolder>[0], pages: number): Promise<Connection> {
  const connection = new Connection(join(await temporaryFolder(t), 'small.sqlite'))
  t.teardown(() => connection.close())
  connection.exec('CREATE TABLE row (n INTEGER PRIMARY KEY, data BLOB)')
  connection.pragma(`max_page_count = ${pages}`)
  return connection
}

function insert(connection: Connection, n: number, bytes: number, told: string[]): Job {
  const carryOut = () => {
    connection.prepare('INSERT INTO row (n, data) VALUES (?, ?)').run(n, Buffer.alloc(bytes))
  }
  return {
    plan: { bytes, decide: () => carryOut },
    done: () => told.push(`${n} done`),
    failed: (error) => told.push(`${n} failed: ${(error as { code?: string } | undefined)?.code}`),
  }
}

t.test(
  'SQLite rolls back the whole transaction when the file is full: each write is then tried alone',
  async (t) => {
    const connection = await smallFile(t, 20)
    const writer = new Writer(connection, NO_MEMORY)
    const told: string[] = []
    writer.add(insert(connection, 1, 1_000, told))
    writer.add(insert(connection, 2, 1_000_000, told))
    writer.add(insert(connection, 3, 1_000, told))
    await writer.drained()
    t.same(told, ['1 done', '2 failed: insufficient_storage', '3 done'])
    t.same(
      connection.prepare('SELECT n FROM row ORDER BY n').all(),
      [{ n: 1 }, { n: 3 }],
      'only what was answered is stored',
    )
    t.notOk(connection.inTransaction)
  },
)

t.test('a failed commit answers nobody before each write was tried alone', async (t) => {
  let commits = 0
  const connection = new Connection(join(await temporaryFolder(t), 'faulty.sqlite'), {
    onOperation: (operation) => {
      if (operation === 'COMMIT' && ++commits === 1) throw new Error('the first commit fails')
    },
  })
  t.teardown(() => connection.close())
  connection.exec('CREATE TABLE row (n INTEGER PRIMARY KEY, data BLOB)')
  const writer = new Writer(connection, NO_MEMORY)
  const told: string[] = []
  for (const n of [1, 2, 3]) writer.add(insert(connection, n, 10, told))
  await writer.drained()
  t.same(told, ['1 done', '2 done', '3 done'])
  t.equal(commits, 4, 'one for the group, one for each alone')
})

/** A file that counts its commits. */
async function countedFile(t: Test) {
  // A stopped clock: a slow group takes fewer writes.
  t.intercept(performance, 'now', { value: () => 0 })
  const counts = { commits: 0 }
  const connection = new Connection(join(await temporaryFolder(t), 'counted.sqlite'), {
    onOperation: (operation) => {
      if (operation === 'COMMIT') counts.commits += 1
    },
  })
  t.teardown(() => connection.close())
  connection.exec('CREATE TABLE row (n INTEGER PRIMARY KEY, data BLOB)')
  return { connection, counts, rows: () => connection.prepare('SELECT n FROM row ORDER BY n').all() }
}

t.test('a decision that throws is refused alone: the others of its group share one commit', async (t) => {
  const { connection, counts, rows } = await countedFile(t)
  const writer = new Writer(connection, NO_MEMORY)
  const told: string[] = []
  const refused = insert(connection, 2, 10, told)
  const decide = () => {
    throw Object.assign(new Error(), { code: 'refused' })
  }
  writer.add(insert(connection, 1, 10, told))
  writer.add({ ...refused, plan: { bytes: 10, decide } })
  writer.add(insert(connection, 3, 10, told))
  await writer.drained()
  t.same(told, ['1 done', '2 failed: refused', '3 done'])
  t.same(rows(), [{ n: 1 }, { n: 3 }])
  t.equal(counts.commits, 1)
})

t.test(
  'what fails in the midst of its writing leaves no trace, and each of its group is tried alone',
  async (t) => {
    const { connection, counts, rows } = await countedFile(t)
    /** As a store's counters: what the jobs counted, and what of it was committed. */
    const memory = { counted: 0, committed: 0 }
    const writer = new Writer(connection, {
      ...NO_MEMORY,
      committed: () => {
        memory.committed = memory.counted
      },
      rollBack: () => {
        memory.counted = memory.committed
      },
    })
    const told: string[] = []
    const add = (n: number, then: () => void) => {
      const job = insert(connection, n, 10, told)
      const carryOut = job.plan.decide()
      const decide = () => () => {
        memory.counted += 1
        carryOut()
        then()
      }
      writer.add({ ...job, plan: { bytes: 10, decide } })
    }
    add(1, () => {})
    add(2, () => {
      throw Object.assign(new Error(), { code: 'half_way' })
    })
    add(3, () => connection.prepare('INSERT INTO row (n) VALUES (3)').run())
    add(4, () => {})
    await writer.drained()
    t.same(told, ['1 done', '2 failed: half_way', '3 failed: internal_server_error', '4 done'])
    t.same(rows(), [{ n: 1 }, { n: 4 }])
    t.equal(counts.commits, 2, 'only the writes that were repeated alone are committed')
    t.same(memory, { counted: 2, committed: 2 })
  },
)

t.test('a write that throws undefined is a write that failed', async (t) => {
  const connection = await smallFile(t, 100)
  const writer = new Writer(connection, NO_MEMORY)
  const told: string[] = []
  const refused = insert(connection, 1, 10, told)
  writer.add({ ...refused, plan: { bytes: 10, decide: throwUndefined } })
  await writer.drained()
  t.same(told, ['1 failed: undefined'])
})

function throwUndefined(): never {
  throw undefined
}

t.test('a group is bounded by its bytes and its number of writes', async (t) => {
  const connection = await smallFile(t, 100_000)
  const begun: number[] = []
  let jobs = 0
  const counted = new Writer(connection, {
    ...NO_MEMORY,
    flush: () => {
      begun.push(jobs)
      jobs = 0
    },
  })
  const add = (n: number, bytes: number) => {
    const job = insert(connection, n, 10, [])
    const decide = () => {
      jobs += 1
      return job.plan.decide()
    }
    counted.add({ ...job, plan: { bytes, decide } })
  }
  for (let n = 0; n < 600; n++) add(n, 1)
  await counted.drained()
  t.ok(Math.max(...begun) <= 256, `at most 256 writes a group: ${begun}`)
  begun.length = 0
  for (let n = 1000; n < 1004; n++) add(n, 600_000)
  await counted.drained()
  t.same(begun, [1, 1, 1, 1], 'more than 1 MB never shares a group')
})

t.test(
  'what became durable is told: how many writes, refused ones not counted, and how long it took',
  async (t) => {
    const { connection } = await countedFile(t)
    const commits: number[] = []
    const times: number[] = []
    const committed = (writes: number, ms: number) => {
      commits.push(writes)
      times.push(ms)
    }
    const writer = new Writer(connection, { ...NO_MEMORY, committed })
    const told: string[] = []
    writer.add(insert(connection, 1, 10, told))
    writer.add({ ...insert(connection, 2, 10, told), plan: { bytes: 1, decide: () => refuse() } })
    writer.add(insert(connection, 3, 10, told))
    await writer.drained()
    t.strictSame(commits, [2])
    writer.add(insert(connection, 4, 10, told))
    writer.add(insert(connection, 4, 10, told))
    await writer.drained()
    t.strictSame(commits, [2, 1], 'the writes of a failed group that were repeated alone are committed')
    t.ok(times.every((ms) => ms >= 0 && Number.isFinite(ms)))
  },
)

function refuse(): never {
  throw new Error('refused')
}

t.test('an engine counts the commits of its databases: what shared one, and what it brought', async (t) => {
  const tally = new CommitTally()
  const engine = sqliteEngine({ dataDir: await temporaryFolder(t), tally })
  t.teardown(() => engine.close())
  const catalog = await engine.openCatalog()
  await catalog.create('notes')
  const store = await engine.openDatabase('notes')
  const local = (id: string, body: string) => ({
    id,
    decide: () => ({ result: null, write: { rev: 1, body } }),
  })
  const commitBoth = async () => {
    const before = tally.counts()
    await store.updateLocals([local('_local/a', '{}'), local('_local/b', '{}')])
    const after = tally.counts()
    t.equal(after.writes.sum - before.writes.sum, 2, 'two writes')
    return { ...after, commits: countOf(after.writes) - countOf(before.writes) }
  }
  let counted = await commitBoth()
  // On a busy machine the time of a turn may end after the first.
  while (counted.commits > 1) counted = await commitBoth()
  const { writes, updates, seconds } = counted
  t.equal(updates.sum, 0, 'a _local document takes no sequence number')
  t.equal(countOf(seconds), countOf(writes))
  t.ok(seconds.sum > 0)
})
