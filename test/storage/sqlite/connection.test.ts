/** What the connection adds to the driver. */
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t from 'tap'
import { Connection } from '../../../src/storage/sqlite/connection.ts'
import { temporaryFolder } from '../../helpers/server.ts'

const USES = 2000
const ROUNDS = 5

/** The least CPU that the uses took in some rounds, in microseconds. */
function leastCpu(use: () => void): number {
  const rounds = Array.from({ length: ROUNDS }, () => {
    const since = process.cpuUsage()
    for (let n = 0; n < USES; n++) use()
    const { user, system } = process.cpuUsage(since)
    return user + system
  })
  return Math.min(...rounds)
}

// Should this fail with a later SQLite or driver that keeps the plan by itself, `withStablePlan` has become needless.
t.test('a statement with parameters is planned once, not with each use', async (t) => {
  const path = join(await temporaryFolder(t), 'plans.sqlite')
  const connection = new Connection(path)
  t.teardown(() => connection.close())
  connection.exec(
    'CREATE TABLE a (num INTEGER PRIMARY KEY, id TEXT UNIQUE); CREATE TABLE b (num INTEGER PRIMARY KEY)',
  )
  connection.exec("INSERT INTO a VALUES (1, 'one'); INSERT INTO b VALUES (1)")
  const driver = new Sqlite(path)
  t.teardown(() => driver.close())
  const sql = (value: string) =>
    `SELECT a.num FROM a CROSS JOIN b ON b.num = coalesce(a.num, (SELECT num FROM b)) WHERE a.id = ${value} LIMIT ${value}`
  const ours = connection.prepareTuples(sql('?'))
  const planned = driver.prepare(sql('?')).raw()
  t.same(ours.get('one', 1), [1])
  t.same(planned.get('one', 1), [1])
  const [once, always] = [leastCpu(() => ours.get('one', 1)), leastCpu(() => planned.get('one', 1))]
  t.ok(once < always / 2, `${once} us, and ${always} where the driver's statement is planned with each use`)
})
