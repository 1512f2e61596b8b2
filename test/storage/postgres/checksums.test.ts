/** Checksums of rows in PostgreSQL: whatever column a disk changes, and rows that got none from the node that wrote them. */
import { createHash } from 'node:crypto'
import t, { type Test } from 'tap'
import { CouchError } from '../../../src/core/errors.ts'
import { encodeAncestry } from '../../../src/revisions/branch.ts'
import { CHUNK_BYTES } from '../../../src/storage/content-upload.ts'
import { postgresEngine } from '../../../src/storage/postgres/postgres-engine.ts'
import { readStoreAddress } from '../../../src/storage/store-address.ts'
import { startPostgres } from '../../helpers/postgres-server.ts'
import { until } from '../../helpers/until.ts'
import { attachment, put, readOne } from '../conformance/edits.ts'
import { fillNotes, isTrue, readAll } from '../conformance/readings.ts'
import { only, rejectsWith } from '../conformance/setup.ts'

t.setTimeout(300_000)
const server = await startPostgres(t)

type Sql = (text: string, values?: readonly unknown[]) => Promise<Record<string, unknown>[]>

async function openStore(t: Test) {
  const url = await server.createDatabase()
  const name = new URL(url).pathname.slice(1)
  const reported: CouchError[] = []
  const onDamage = (_: string, error: CouchError) => reported.push(error)
  const address = await readStoreAddress(url, null)
  const open = () => {
    const engine = postgresEngine({ address, poolSize: 4, onDamage })
    t.teardown(() => engine.close())
    return engine
  }
  const engine = open()
  const catalog = await engine.openCatalog()
  await catalog.create('notes')
  const store = await engine.openDatabase('notes')
  const sql: Sql = (text, values = []) => server.query(text, values, name)
  const reopen = () => open().openCatalog()
  return { engine, catalog, store, reported, sql, reopen }
}

t.test('a damaged record of the server is an error, or missing where it is made anew', async (t) => {
  const { engine, catalog, sql, reopen } = await openStore(t)
  const value = '{"is":"true"}'
  const kinds = ['token', 'growth']
  const lacking = async () =>
    (await sql('SELECT count(*)::int AS n FROM settee.record WHERE checksum IS NULL'))[0]?.n
  await catalog.writeRecords(kinds.flatMap((kind) => ['a', 'b\0'].map((key) => ({ kind, key, value }))))
  t.equal(await lacking(), 0)
  await sql(`SET search_path = settee; SELECT write_records(ARRAY['token'], ARRAY['older'], ARRAY['x'], ARRAY[false], ARRAY[NULL],
    'token', 'node', NULL)`)
  t.equal(await lacking(), 1)
  t.strictSame(await catalog.readRecords('token', ['b\0', 'none', 'older']), [value, null, 'x'])
  await sql(`UPDATE settee.record SET value = replace(value, 'true', 'tr3e') WHERE key = 'a'`)
  await rejectsWith(t, catalog.readRecords('token', ['a', 'older']), 'damaged_server_file')
  await rejectsWith(t, catalog.listRecords('token', {}, 10), 'damaged_server_file')
  t.strictSame(await catalog.readRecords('growth', ['a', 'b\0']), [null, value])
  t.strictSame(await catalog.listRecords('growth', {}, 10), [{ kind: 'growth', key: 'b\0', value }])
  await catalog.writeRecords([{ kind: 'token', key: 'a', value }])
  t.strictSame(await catalog.readRecords('token', ['a']), [value])
  await engine.close()
  const again = await reopen()
  await until(async () => (await lacking()) === 0)
  t.strictSame(
    await again.readRecords('token', ['older']),
    ['x'],
    'the next node that starts notes its checksum',
  )
})

/** Changes a column of a row a little, as a flipped bit does. */
const CHANGES: Readonly<Record<string, string>> = {
  text: "overlay(%c placing 'Q' from greatest(1, length(%c) / 2) for 1)",
  bytea: 'set_byte(%c, octet_length(%c) / 2, get_byte(%c, octet_length(%c) / 2) # 4)',
  boolean: 'NOT %c',
  bigint: '%c # 1048576',
  integer: '%c # 65536',
  smallint: '%c # 64::smallint',
}

/** What clients see of a document, with the checksums. Times and sizes of versions are not covered. */
const COLUMNS: Readonly<Record<string, readonly string[]>> = {
  doc: [
    ...['id', 'seq', 'rev', 'deleted', 'leaves', 'attachments', 'ancestry', 'body'],
    ...['checksum', 'content_checksum', 'ancestry_checksum'],
  ],
  revision: [
    ...['id', 'rev', 'deleted', 'leaf', 'attachments', 'ancestry', 'body'],
    ...['content_checksum', 'ancestry_checksum'],
  ],
  blob: ['sha256', 'digest', 'length', 'checksum'],
  chunk: ['blob', 'position', 'data', 'checksum'],
  local_doc: ['id', 'rev', 'body', 'checksum'],
  database: ['security', 'security_checksum'],
}
/** A node reads settings when their version has changed. */
const ALSO: Readonly<Record<string, string>> = { database: ', settings_version = settings_version + 1' }

/** Documents of the fill with a picture, which a revision before the winner has then. */
const SUPERSEDED = ['note-020', 'note-021', 'note-022']

/** Rows of each column that are changed, one after the other. */
const ROWS = 2

t.test('whatever column is changed, what is read is what was written, or an error, or missing', async (t) => {
  const { store, sql, reported } = await openStore(t)
  await fillNotes(store)
  await store.updateDocs(SUPERSEDED.map((id) => put(id, '{"text":"without the picture"}')))
  const truth = await readAll(store)
  t.equal(reported.length, 0)
  for (const [table, columns] of Object.entries(COLUMNS)) {
    for (const column of columns) {
      const [{ type } = { type: '' }] = await sql(
        `SELECT data_type AS type FROM information_schema.columns
          WHERE table_schema = 'settee' AND table_name = $1 AND column_name = $2`,
        [table, column],
      )
      const changed = (CHANGES[type as string] as string).replaceAll('%c', column)
      const counts = { error: 0, missing: 0, same: 0 }
      const before = reported.length
      const found = await sql(
        `SELECT ctid::text AS place, ${column} AS old FROM settee.${table} WHERE ${column} IS NOT NULL
          ORDER BY md5(ctid::text) LIMIT ${ROWS}`,
      )
      for (const { place, old } of found) {
        const set = (value: string) => `UPDATE settee.${table} SET ${column} = ${value}${ALSO[table] ?? ''}`
        const [row] = await sql(`${set(changed)} WHERE ctid = $1::tid RETURNING ctid::text AS place`, [place])
        compare(t, await readAll(store), truth, { what: `${table}.${column} at ${place}`, counts })
        await sql(`${set('$2')} WHERE ctid = $1::tid`, [row?.place, old])
      }
      // A superseded revision or a checkpoint may be missing.
      t.ok(
        counts.error + counts.missing > 0 || column === 'id',
        `${table}.${column}: ${JSON.stringify(counts)}`,
      )
      t.ok(reported.length > before || counts.error === 0, 'and it is reported')
    }
  }
  compare(t, await readAll(store), truth, { what: 'at the end', counts: { error: 0, missing: 0, same: 0 } })
})

function compare(
  t: Test,
  read: ReadonlyMap<string, unknown>,
  truth: ReadonlyMap<string, unknown>,
  { what, counts }: { what: string; counts: { error: number; missing: number; same: number } },
): void {
  for (const key of truth.keys()) {
    const value = read.get(key)
    const error = value instanceof Error ? value : (value as { error?: unknown } | null | undefined)?.error
    if (error instanceof Error) {
      counts.error += 1
      if (!(error instanceof CouchError && error.code === 'damaged_document'))
        t.fail(`${what}: ${key} failed`, { error })
    } else if (value === null || value === undefined) counts.missing += truth.get(key) ? 1 : 0
    else if (isTrue(value, truth.get(key))) counts.same += 1
    else t.same(value, truth.get(key), `${what}: ${key} is what was written`)
  }
}

const LACKING = `SELECT
  (SELECT count(*)::int FROM settee.doc WHERE checksum IS NULL OR content_checksum IS NULL OR ancestry_checksum IS NULL) AS docs,
  (SELECT count(*)::int FROM settee.revision WHERE content_checksum IS NULL OR (ancestry IS NOT NULL AND ancestry_checksum IS NULL))
    AS revisions,
  (SELECT count(*) FROM settee.local_doc WHERE checksum IS NULL)::int + (SELECT count(*) FROM settee.blob WHERE checksum IS NULL)::int
    + (SELECT count(*) FROM settee.chunk WHERE checksum IS NULL)::int
    + (SELECT count(*) FROM settee.database WHERE security IS NOT NULL AND security_checksum IS NULL)::int AS others`

const PICTURE = { attachments: [attachment('a.png', Buffer.from('a picture'))] }

t.test('rows of before are read without checksums, and a compaction notes them', async (t) => {
  const { store, sql } = await openStore(t)
  await fillNotes(store)
  const truth = await readAll(store)
  t.same(await sql(LACKING), [{ docs: 0, revisions: 0, others: 0 }], 'every write notes them')
  const [before] = await sql(
    `SELECT count(*)::int AS lists FROM settee.doc WHERE attachments LIKE '%"checksum":%'`,
  )
  const lists = before?.lists as number
  t.ok(lists > 0)
  t.notOk((await store.garbage()).isOwed)
  await sql('UPDATE settee.database SET unsummed = NULL, unsummed_others = NULL, security_checksum = NULL')
  for (const table of ['local_doc', 'blob', 'chunk']) await sql(`UPDATE settee.${table} SET checksum = NULL`)
  await sql(`UPDATE settee.doc SET checksum = NULL, content_checksum = NULL, ancestry_checksum = NULL,
    attachments = regexp_replace(attachments, '"checksum":-?[0-9]+,', '', 'g')`)
  await sql(`UPDATE settee.revision SET content_checksum = NULL, ancestry_checksum = NULL`)
  t.ok((await store.garbage()).isOwed)
  t.same(await readAll(store), truth)
  await store.compact({ keepSince: 0 })
  t.same(await sql(LACKING), [{ docs: 0, revisions: 0, others: 0 }])
  t.same(
    await sql(`SELECT count(*)::int AS lists FROM settee.doc WHERE attachments LIKE '%"checksum":%'`),
    [{ lists }],
    'of lists of attachments as well',
  )
  t.notOk((await store.garbage()).isOwed)
  compare(t, await readAll(store), truth, { what: 'afterwards', counts: { error: 0, missing: 0, same: 0 } })
})

/** Writes as a node of the version before does: it calls the functions that it knows. */
function olderNode(sql: Sql) {
  let token = 0
  const head = () => [++token]
  const rev = (n: number, letter: string) => `${n}-${letter.repeat(32)}`
  return {
    doc: (id: string, letter: string, body: string) =>
      sql(
        `SELECT settee.save_doc(db, settings_version, 'older', $1, 1, 1, 0, 2, 300, 0, 0, $2, 0, 0, $3, false, 2, $4, $5)
          FROM settee.database`,
        [...head(), id, rev(1, letter), encodeAncestry([letter.repeat(32)]), body],
      ),
    local: (id: string, body: string) =>
      sql(
        `SELECT settee.save_locals(db, settings_version, 'older', $1, 1, ARRAY[$2], ARRAY[0::bigint], ARRAY[1::bigint],
            ARRAY[$3], '{}', 300) FROM settee.database`,
        [...head(), id, body],
      ),
    security: (security: string) =>
      sql(
        `SELECT settee.write_settings(db, settings_version, 'older', $1, 1, $2, NULL, NULL, NULL) FROM settee.database`,
        [...head(), security],
      ),
    content: async (bytes: Buffer) => {
      const [begun] = await sql(`SELECT settee.begin_upload(db, 'older', 1) AS blob FROM settee.database`)
      const blob = begun?.blob
      await sql(`SELECT settee.add_chunks(db, $1, 'older', 0, $2, NULL, NULL, NULL) FROM settee.database`, [
        blob,
        bytes.subarray(0, CHUNK_BYTES),
      ])
      await sql(
        `SELECT settee.finish_upload(db, $1, 'older', 1, $2, 'md5-x', $3, 1, $4) FROM settee.database`,
        [blob, createHash('sha256').update(bytes).digest(), bytes.length, bytes.subarray(CHUNK_BYTES)],
      )
      return Number(blob)
    },
    update: (id: string, letter: string, body: string) =>
      sql(
        `SELECT settee.save_group(d.db, settings_version, 'older', $1, 1, NULL, NULL, 1, 0, 0, 0, 300, 300, 0, 0, 1,
            ARRAY[$2], ARRAY[x.version], ARRAY[1::bigint], ARRAY[$3], ARRAY[false], ARRAY[2::bigint], ARRAY[NULL::text],
            ARRAY[$4::bytea], ARRAY[$5], ARRAY[x.seq], NULL, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}')
          FROM settee.database d JOIN settee.doc x ON x.db = d.db AND x.id = $2`,
        [...head(), id, rev(2, letter), encodeAncestry([letter.repeat(32), '0'.repeat(32)]), body],
      ),
  }
}

t.test('a node of the version before writes on, without checksums', async (t) => {
  const { store, sql } = await openStore(t)
  await sql(
    `ALTER DATABASE ${(await sql('SELECT current_database() AS name'))[0]?.name} SET search_path = settee`,
  )
  const older = olderNode(sql)
  await only(
    store
      .updateDocs([put('a', '{"text":"true"}', PICTURE), put('b', '{"text":"true"}')])
      .then((all) => all.slice(1)),
  )
  t.notOk((await store.garbage()).isOwed)
  await older.doc('c', 'c', '{"text":"of the older one"}')
  await older.update('b', 'b', '{"text":"of the older one"}')
  await older.local('_local/older', '{"a":"of the older one"}')
  await older.security('{"members":{"names":["of the older one"]}}')
  t.same(await sql(LACKING), [{ docs: 2, revisions: 0, others: 2 }], 'the superseded revision keeps its own')
  t.ok((await store.garbage()).isOwed)
  t.match(await readOne(store, 'b'), { revisions: [{}, { body: '{"text":"of the older one"}' }] })
  t.match(await readOne(store, 'c'), { revisions: [{ body: '{"text":"of the older one"}' }] })
  await only(store.updateDocs([put('c', '{"text":"of the newer one"}')]))
  t.same(await sql(LACKING), [{ docs: 1, revisions: 1, others: 2 }])
  await store.compact({ keepSince: 0 })
  t.same(await sql(LACKING), [{ docs: 0, revisions: 0, others: 0 }])
  t.notOk((await store.garbage()).isOwed)
  t.equal((await readOne(store, 'a'))?.revisions[0]?.attachments.length, 1)
  await sql(`UPDATE settee.doc SET body = replace(body, 'older', '0lder') WHERE id = 'b'`)
  await rejectsWith(t, readOne(store, 'b'), 'damaged_document')

  const content = Buffer.alloc(2 * CHUNK_BYTES - 2, 'a content of the older one ')
  const blob = await older.content(content)
  const lease = await store.referenceBlob(blob)
  t.same(await sql(LACKING), [{ docs: 0, revisions: 0, others: 3 }])
  t.ok((await store.garbage()).isOwed)
  await store.compact({ keepSince: 0 })
  t.same(await sql(LACKING), [{ docs: 0, revisions: 0, others: 0 }])
  await sql(`UPDATE settee.chunk SET data = set_byte(data, 0, 0) WHERE blob = $1 AND position = 1`, [blob])
  await rejectsWith(t, store.readBlob(blob, CHUNK_BYTES, 100), 'damaged_document')
  lease?.release()
})
