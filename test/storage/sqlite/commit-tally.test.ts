import t from 'tap'
import { countOf } from '../../../src/core/histogram.ts'
import { sqliteEngine } from '../../../src/storage/sqlite/sqlite-engine.ts'
import { CommitTally } from '../../../src/storage/upkeep.ts'
import { temporaryFolder } from '../../helpers/server.ts'

t.test('an engine counts the commits of its databases: what shared one, and what it brought', async (t) => {
  const tally = new CommitTally()
  const engine = sqliteEngine({ dataDir: await temporaryFolder(t), tally })
  t.teardown(() => engine.close())
  const catalog = await engine.openCatalog()
  await catalog.create('notes')
  const store = await engine.openDatabase('notes')
  const before = tally.counts()
  const local = (id: string, body: string) => ({
    id,
    decide: () => ({ result: null, write: { rev: 1, body } }),
  })
  await store.updateLocals([local('_local/a', '{}'), local('_local/b', '{}')])
  const { writes, updates, seconds } = tally.counts()
  t.equal(countOf(writes) - countOf(before.writes), 1, 'one commit')
  t.equal(writes.sum - before.writes.sum, 2, 'two writes shared it')
  t.equal(updates.sum, 0, 'a _local document takes no sequence number')
  t.equal(countOf(seconds), countOf(writes))
  t.ok(seconds.sum > 0)
})
