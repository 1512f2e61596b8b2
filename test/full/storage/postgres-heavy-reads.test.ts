/** Reads of documents that are large or many: what they fetch is bounded by what they are asked for. */
import t from 'tap'
import { leafRev } from '../../../src/revisions/branch.ts'
import type { Query } from '../../../src/storage/postgres/connections.ts'
import { DatabaseViews } from '../../../src/storage/postgres/database-view.ts'
import { DocumentLoader } from '../../../src/storage/postgres/document-loader.ts'
import { DocumentPages } from '../../../src/storage/postgres/document-pages.ts'
import type { Row } from '../../../src/storage/postgres/prepared-query.ts'
import { RangeTotals } from '../../../src/storage/postgres/range-totals.ts'
import { startPostgres } from '../../helpers/postgres-server.ts'
import { DB, type Filled, openFilled, SETTINGS } from '../../storage/postgres/filled-database.ts'

const MB = 1_000_000

/** Reads, and counts the characters that PostgreSQL answers. */
function counting({ database }: Filled) {
  const fetched = { chars: 0, statements: 0 }
  const connections = Object.create(database.connections, {
    read: {
      value: async (query: Query) => {
        const rows = await database.connections.read(query)
        fetched.statements += 1
        fetched.chars += rows.reduce((sum, row) => sum + charsOf(row), 0)
        return rows
      },
    },
  })
  const views = new DatabaseViews(connections, [DB, DB], SETTINGS, database.damage)
  const counted = { ...database, connections, views }
  const totals = new RangeTotals(counted)
  const pages = new DocumentPages(new DocumentLoader(counted), totals)
  const of = async <T>(read: (pages: DocumentPages, totals: RangeTotals) => Promise<T>) => {
    Object.assign(fetched, { chars: 0, statements: 0 })
    return { result: await read(pages, totals), ...fetched }
  }
  return of
}

function charsOf(row: Row): number {
  return row.reduce<number>(
    (sum, value) => sum + (typeof value === 'string' || Buffer.isBuffer(value) ? value.length : 8),
    0,
  )
}

const COLUMNS = 'db, id, seq, version, first_seq, rev, deleted, leaves, place, size, ancestry, body'

t.test('reads of large and of many documents', async (t) => {
  const server = await startPostgres(t)
  const filled = await openFilled(t, server)
  const { sql, put } = filled
  const of = counting(filled)
  const insert = (select: string) => sql(`INSERT INTO settee.doc (${COLUMNS}) SELECT ${DB}, ${select}`)
  const body = (doc: { readonly rev: string; body(rev: string): string | null } | null) =>
    doc?.body(doc.rev)?.length

  t.test('a page of large bodies ends where its characters are reached', async (t) => {
    await insert(
      `'large' || n, 1000 + n, 1, 1000 + n, '1-a', false, 1, 1, 1, '\\x0200', '"' || repeat('x', ${MB}) || '"' FROM generate_series(1, 50) n`,
    )
    const paging = { limit: 50, chars: 3 * MB, readSet: { body: true } }
    for (const page of [
      await of((pages) => pages.readChanges({ since: 1000 }, paging, body)),
      await of((pages) => pages.readChanges({ since: 1000, descending: true }, paging, body)),
      await of((pages) => pages.readRange({ start: { id: 'large', inclusive: true } }, paging, body)),
      await of((pages) => pages.readChanges({ since: 1000 }, { ...paging, readSet: {} }, body)),
    ]) {
      t.strictSame(page.result.rows, [MB + 2, MB + 2, MB + 2])
      t.ok(page.result.more)
      t.ok(page.chars < 12 * MB, `${page.chars} characters were fetched`)
    }
    const ids = Array.from({ length: 50 }, (_, n) => `large${n + 1}`)
    const byId = await of((pages) => pages.readDocs(ids, body, { body: true }, 3 * MB))
    t.strictSame(byId.result, [MB + 2, MB + 2, MB + 2])
    t.ok(byId.chars < 4 * MB)
    const one = await of((pages) => pages.readDocs(ids, body, { body: true }, 1))
    t.strictSame(one.result, [MB + 2], 'at least one')
  })

  t.test(
    'of a document with thousands of leaves, only those ancestries are read that are needed',
    async (t) => {
      const ancestry = Array.from({ length: 1000 }, (_, n) => `${n}`.padStart(32, '0'))
      await put('forked', { rev: '3000-z', ancestry: ['z'], body: '{"winner":1}' })
      await sql(`UPDATE settee.doc SET leaves = 3001 WHERE id = 'forked'`)
      await sql(
        `INSERT INTO settee.revision (db, id, rev, deleted, leaf, place, size, ancestry, body) SELECT ${DB}, 'forked',
        (1000 + n % 1000) || '-' || n, false, true, n, 1, decode('01' || repeat('0f', 16000), 'hex'), '{"n":' || n || '}'
        FROM generate_series(1, 3000) n`,
      )
      const leaves = await of((pages) =>
        pages.readDocs(['forked'], (doc) => doc?.branches.map(leafRev).length, {
          body: true,
          branches: true,
        }),
      )
      t.strictSame([leaves.result, leaves.statements], [[3001], 1])
      t.ok(leaves.chars < MB)
      const parent = await of((pages) =>
        pages.readDocs(['forked'], (doc) => doc?.branches.find(({ leaf }) => leaf === '7')?.ids.length, {
          branches: true,
          ancestryOf: ['1007-7'],
        }),
      )
      t.strictSame([parent.result, parent.statements], [[ancestry.length], 1])
      t.ok(parent.chars < MB)
      const late = await of((pages) =>
        pages.readDocs(
          ['forked'],
          (doc) => doc?.branches.filter((branch) => branch.pos > 1998 && branch.ids.length > 0).length,
          {
            branches: true,
            ancestryFrom: 1999,
          },
        ),
      )
      t.strictSame([late.result, late.statements], [[4], 1])
      t.ok(late.chars < MB)
    },
  )

  t.test('live documents are found behind many deleted ones', async (t) => {
    await insert(
      `'t' || lpad(n::text, 6, '0'), 10000 + n, 1, 10000 + n, '1-a', n NOT IN (5, 25000, 34000), 1, 1, 1, '\\x0200', '{}' FROM generate_series(1, 35000) n`,
    )
    await sql('UPDATE settee.database SET deleted_count = 34997, update_seq = 45000')
    const range = { start: { id: 't', inclusive: true }, end: { id: 'u', inclusive: false } }
    const back = { start: range.end, end: range.start, descending: true }
    for (const [from, wanted] of [
      [range, ['t000005', 't025000', 't034000']],
      [back, ['t034000', 't025000', 't000005']],
    ] as const) {
      const ids: string[] = []
      let rest: Parameters<DocumentPages['readRange']>[0] = from
      const mores: boolean[] = []
      for (let more = true; more; ) {
        const page = await of((pages) => pages.readRange(rest, { limit: 2 }, ({ id }) => id))
        ids.push(...page.result.rows)
        rest = { ...from, start: { id: ids.at(-1) as string, inclusive: false } }
        more = page.result.more
        mores.push(more)
      }
      t.strictSame(ids, wanted)
      t.equal(mores.filter((more) => !more).length, 1)
    }
    const counted = await of((_, totals) => totals.count(range))
    t.equal(counted.result, 3)
    const skipped = await of((_, totals) => totals.skip(range, 2))
    t.strictSame(skipped.result?.start, { id: 't025000', inclusive: false })
    t.equal((await of((_, totals) => totals.skip(range, 3))).result?.start?.id, 't034000')
    t.equal((await of((_, totals) => totals.skip(range, 4))).result, null)
  })

  t.test('a document of 8 MB is read with one statement', async (t) => {
    await put('huge', { rev: '1-a', body: `"${'é'.repeat(4 * MB)}"` })
    const huge = await of((pages) => pages.readDocs(['huge'], body, { body: true, branches: true }, 10))
    t.strictSame([huge.result, huge.statements], [[4 * MB + 2], 1])
  })

  t.test('one document is looked up by its key beside many small databases', async (t) => {
    const small = await openFilled(t, server)
    await small.sql(
      `INSERT INTO settee.doc (${COLUMNS}) SELECT 1000 + n, 'doc' || lpad(n::text, 8, '0'), 1, 1, 1, '1-a', false, 1, 1, 1,
        '\\x0200', '{}' FROM generate_series(1, 60000) n`,
    )
    await small.sql('ANALYZE settee.doc')
    const client = await small.database.connections.dedicated()
    t.teardown(() => client.end())
    await client.query('PREPARE one AS SELECT rev FROM doc WHERE db = $1 AND id = $2')
    const { rows } = await client.query<{ 'QUERY PLAN': string }>(`EXPLAIN EXECUTE one(${DB}, 'huge')`)
    const plan = rows.map((row) => row['QUERY PLAN']).join(' ')
    t.match(plan, /doc_pkey/)
    t.notMatch(plan, /Filter/)
  })
})
