/** A database with very many `_local` documents is marked as restored: its checkpoints go, and no statement looks at all of them. */
import t from 'tap'
import { startPostgres } from '../../helpers/postgres-server.ts'
import { only } from '../../storage/conformance/setup.ts'
import { openCuttable } from '../../storage/postgres/cuttable-database.ts'

t.test('checkpoints among many other documents', async (t) => {
  const { engine, store, operations, sql } = await openCuttable(t, await startPostgres(t))
  const local = (id: string, body: object) => ({
    id: `_local/${id}`,
    decide: () => ({ result: 0, write: { rev: 1, body: JSON.stringify(body) } }),
  })
  const checkpoint = { session_id: 's', history: [{ session_id: 's', last_seq: 1 }] }
  await only(store.updateLocals([local('a', checkpoint)]))
  await only(store.updateLocals([local('z', checkpoint)]))
  await sql(`INSERT INTO settee.local_doc (db, id, version, rev, body)
    SELECT db, '_local/m' || n, 1, 1, '{}' FROM settee.database, generate_series(1, 12000) AS n`)
  const catalog = await engine.openCatalog()
  operations.length = 0
  await catalog.replace('notes', null)
  const looks = operations.filter((operation) => operation === 'find_checkpoints').length
  t.ok(looks >= 120, `${looks} looks`)
  const lockedAt = operations.indexOf('lock_restored')
  const locked = operations.slice(lockedAt).filter((operation) => operation === 'find_checkpoints').length
  t.equal(locked, 3, 'few while the database is locked')
  const again = await engine.openDatabase('notes')
  t.same(await again.readLocals(['_local/a', '_local/z']), [null, null])
  t.equal(await again.countLocals({}), 12_000)
})
