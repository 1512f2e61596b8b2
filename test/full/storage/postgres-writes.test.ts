import { randomBytes } from 'node:crypto'
import t from 'tap'
import type { CouchError } from '../../../src/core/errors.ts'
import { DOC_VALUES, refusals } from '../../../src/storage/postgres/write-functions.ts'
import { startPostgres } from '../../helpers/postgres-server.ts'
import { put, readOne, write } from '../../storage/conformance/edits.ts'
import { errorOf, only } from '../../storage/conformance/setup.ts'
import { openCuttable } from '../../storage/postgres/cuttable-database.ts'

const server = await startPostgres(t)

/** A text that no compression makes shorter. */
function text(bytes: number): string {
  return randomBytes(bytes).toString('base64').slice(0, bytes)
}

t.test(
  'the longest id is stored with everything that names it, and a longer one is refused alone',
  async (t) => {
    const { store } = await openCuttable(t, server)
    const longest = text(2600 - '1-'.length - 32)
    const outcomes = await store.updateDocs([put(longest), put(`${longest}x`), put('a')])
    t.same(
      outcomes.map((outcome) => (errorOf(outcome) as CouchError | undefined)?.code),
      [undefined, 'illegal_docid', undefined],
    )
    const other = { rev: `1-${'f'.repeat(32)}`, deleted: false, ancestry: ['f'.repeat(32)] }
    const content = { body: '{}', attachments: [] }
    const fork = { rev: other.rev, deleted: false, sequenced: true, revisions: [{ ...other, content }] }
    await only(store.updateDocs([write(longest, fork)]))
    t.equal((await readOne(store, longest))?.branches.length, 2)
    const local = (id: string) => ({ id, decide: () => ({ result: 0, write: { rev: 1, body: '{}' } }) })
    const [stored, refused] = await store.updateLocals([local(text(2600)), local(text(2601))])
    t.same(stored, { result: 0 })
    t.equal((errorOf(refused) as CouchError).code, 'illegal_docid')
  },
)

t.test('after some stale tries a write is decided under the lock', async (t) => {
  const { store, sql, operations } = await openCuttable(t, server)
  const values = Array.from({ length: DOC_VALUES }, (_, at) => `$${at + 1}`).join(', ')
  const types = await sql(
    "SELECT oidvectortypes(proargtypes) AS list FROM pg_proc WHERE proname = 'store_doc'",
  )
  await sql('CREATE SEQUENCE settee.tries; GRANT ALL ON SEQUENCE settee.tries TO settee')
  await sql('ALTER FUNCTION settee.store_doc RENAME TO really_store_doc')
  await sql(`CREATE FUNCTION settee.store_doc(${types[0]?.list}) RETURNS bigint LANGUAGE plpgsql AS $$
    BEGIN
      RETURN CASE WHEN nextval('tries') <= 5 THEN ${refusals.stale} ELSE really_store_doc(${values}) END;
    END $$`)
  const rev = await only(store.updateDocs([put('a')]))
  t.equal((await readOne(store, 'a'))?.rev, rev)
  const writes = operations.filter((name) => name === 'store_doc' || name === 'lock_database')
  t.same(writes, [...Array<string>(5).fill('store_doc'), 'lock_database', 'store_doc'])
})

t.test(
  'compaction forgets the stretches of the feed that no document is in, and counts stay right',
  async (t) => {
    const { store, sql } = await openCuttable(t, server)
    const ids = Array.from({ length: 600 }, (_, at) => `doc${at}`)
    for (let n = 0; n < 10; n++) {
      // The first ones stay in the first stretch.
      await store.updateDocs(ids.slice(n === 0 ? 0 : 100).map((id) => put(id, `{"n":${n}}`)))
    }
    const stretches = async () =>
      (await sql('SELECT stretch::int FROM settee.feed_count ORDER BY 1')).map(({ stretch }) => stretch)
    t.same(await stretches(), [0, 1, 2, 3, 4])
    await store.compact()
    t.same(await stretches(), [0, 4])
    const { rows: places } = await store.readChanges({ since: 0 }, { limit: 1000 }, ({ seq }) => seq)
    for (const seq of [0, 50, 99, 100, 101, 1023, 1024, 2550, 3071, 3072, 4600, 4601, 5000, 5099, 5100]) {
      t.equal(await store.countChanges(seq), places.filter((place) => place > seq).length, `above ${seq}`)
    }
    await store.updateDocs([put('doc0')])
    t.equal(await store.countChanges(99), 502)
  },
)

t.test('documents are assumed to be new after others were, and read once one of them is not', async (t) => {
  const { store, operations } = await openCuttable(t, server)
  const operationsOf = async (...ids: string[]) => {
    operations.length = 0
    const outcomes = await store.updateDocs(ids.map((id) => put(id)))
    return {
      operations: [...operations],
      revs: outcomes.map((outcome) => 'result' in outcome && outcome.result),
    }
  }
  const isLoad = (name: string) => name.startsWith('docs_')
  t.equal((await operationsOf('a')).operations.filter(isLoad).length, 1)
  t.same((await operationsOf('b')).operations, ['store_doc'])
  t.same((await operationsOf('c', 'd')).operations, ['commit_group'])
  const again = await operationsOf('e', 'b')
  t.ok(again.operations.some(isLoad))
  t.equal(again.operations.filter((name) => name === 'commit_group').length, 2)
  t.match(again.revs, [/^1-/, /^2-/])
  t.equal((await store.view()).docCount, 5)
  t.equal(
    (await operationsOf('f')).operations.filter(isLoad).length,
    1,
    'a wrong presumption is not repeated at once',
  )
  await store.updateSettings(() => ({ result: 0, write: { revsLimit: 7 } }))
  for (let n = 0; n < 8; n++) await only(store.updateDocs([put(`more${n}`)]))
  t.same((await operationsOf('g')).operations, ['store_doc'])
  t.equal((await store.view()).updateSeq, 16)
})
