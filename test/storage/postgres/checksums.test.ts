/** Checksums of rows in PostgreSQL: whatever column a disk changes, and rows that got none from the node that wrote them. */
import { createHash } from 'node:crypto'
import t, { type Test } from 'tap'
import { CouchError } from '../../../src/core/errors.ts'
import { encodeAncestry } from '../../../src/revisions/branch.ts'
import { CHUNK_BYTES } from '../../../src/storage/content-upload.ts'
import type { DocState, PurgeInfo } from '../../../src/storage/engine.ts'
import type { IndexedDoc, IndexRow, IndexStore } from '../../../src/storage/index-store.ts'
import { postgresEngine } from '../../../src/storage/postgres/postgres-engine.ts'
import { purgeRowSum } from '../../../src/storage/postgres/row-checksums.ts'
import { storedText } from '../../../src/storage/postgres/stored-text.ts'
import { readStoreAddress } from '../../../src/storage/store-address.ts'
import { startPostgres } from '../../helpers/postgres-server.ts'
import { until } from '../../helpers/until.ts'
import { attachment, put, readOne } from '../conformance/edits.ts'
import { fillNotes, isTrue, readAll } from '../conformance/readings.ts'
import { ALL, only, rejectsWith } from '../conformance/setup.ts'

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
  doc: [...['id', 'attachments', 'ancestry', 'body', 'content_checksum', 'ancestry_checksum']],
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
      t.ok(reported.length > before || counts.error === 0, 'the damage is reported')
    }
  }
  compare(t, await readAll(store), truth, { what: 'at the end', counts: { error: 0, missing: 0, same: 0 } })
})

t.test('damaged counters are named by a check, and counted anew by the next compaction', async (t) => {
  const { engine, store, sql } = await openStore(t)
  await fillNotes(store)
  await store.compact({ keepSince: 0 })
  const counters = async () => {
    const { docCount, deletedCount, updateSeq } = await store.view()
    const pending = await Promise.all([0, 50, 100, updateSeq].map((since) => store.countChanges(since)))
    return { docCount, deletedCount, updateSeq, pending, sizes: (await store.info()).sizes }
  }
  const truth = await counters()
  for (const change of [
    'UPDATE settee.database SET doc_count = doc_count # 4096',
    'UPDATE settee.database SET deleted_count = deleted_count # 1',
    'UPDATE settee.feed_count SET rows = rows # 8',
    'UPDATE settee.feed_count SET stretch = 77',
    'DELETE FROM settee.feed_count',
  ]) {
    await sql(change)
    const { damage } = await engine.checkDatabase('notes', null, 60_000)
    t.same(damage?.parts, [{ kind: 'counters' }], change)
    t.ok((await store.garbage()).needsCompaction)
    await store.compact({ keepSince: 0 })
    t.same(await counters(), truth, `${change}: they are right`)
    t.equal((await engine.checkDatabase('notes', null, 60_000)).damage, null)
  }
})

t.test('a changed column of a remembered purge makes it a forgotten one', async (t) => {
  const { engine, store, sql } = await openStore(t)
  const ids = Array.from({ length: 5 }, (_, n) => `note-${n}\0`)
  const purge = (id: string) => ({
    id,
    readSet: { branches: true, revisions: true } as const,
    decide: (doc: DocState | null) => ({
      result: null,
      write: { purged: [doc?.rev ?? ''], removed: doc?.revisions().map(({ rev }) => rev) ?? [], rest: null },
    }),
  })
  await store.updateDocs(ids.map((id) => put(id)))
  await store.purgeDocs(ids.map(purge))
  const truth = await store.readPurges()
  t.equal(truth.length, ids.length)
  const lacking = async () =>
    (await sql('SELECT count(*)::int AS n FROM settee.purge WHERE checksum IS NULL'))[0]?.n
  t.equal(await lacking(), 0)
  for (const [column, type] of Object.entries({
    seq: 'bigint',
    id: 'text',
    revs: 'text',
    checksum: 'integer',
  })) {
    const changed = (CHANGES[type] as string).replaceAll('%c', column)
    const [row] = await sql(
      `UPDATE settee.purge SET ${column} = ${changed} WHERE seq = 3 RETURNING ctid::text AS place`,
    )
    const rest = truth.filter(({ seq }) => seq !== 3)
    t.same(await store.readPurges(), rest, column)
    const { damage } = await engine.checkDatabase('notes', null, 60_000)
    t.same(damage?.parts, [{ kind: 'purges' }], `${column}: a check names it`)
    const { seq, id, revs } = truth[2] as PurgeInfo
    const sum = purgeRowSum({ seq, id, revs: JSON.stringify(revs) })
    await sql('UPDATE settee.purge SET seq = $1, id = $2, revs = $3, checksum = $4 WHERE ctid = $5::tid', [
      ...[seq, storedText(id), JSON.stringify(revs), sum, row?.place],
    ])
    t.same(await store.readPurges(), truth)
  }
  await sql('UPDATE settee.purge SET checksum = NULL; UPDATE settee.database SET unsummed_others = 1')
  t.same(await store.readPurges(), truth)
  await store.compact({ keepSince: 0 })
  t.equal(await lacking(), 0, 'a compaction notes them')
  t.same(await store.readPurges(), truth)
})

/** Columns of a document's row that the rest of it proves. */
const PROVEN = ['seq', 'rev', 'deleted', 'leaves', 'checksum']
/** Rows of each that are changed at a time. */
const PROVEN_ROWS = 12

t.test('a row of a document is made again when a reader has met its damage', async (t) => {
  const { store, sql, reported } = await openStore(t)
  await fillNotes(store)
  // Numbers that differ by more than what the checksum of a row knows of them.
  await sql('UPDATE settee.database SET update_seq = update_seq + 200000')
  await store.updateDocs(Array.from({ length: 20 }, (_, n) => put(`later-${n}`, '{"text":"later"}')))
  const truth = withoutSeqs(await readAll(store))
  const counts = { error: 0, missing: 0, same: 0 }
  const changes: Record<string, string> = {
    ...Object.fromEntries(PROVEN.map((column) => [column, `${column} = ${changeOf(column)}`])),
    generation: `rev = overlay(rev placing '7' from 1 for 1)`,
    'generation and tombstone': `rev = '97' || rev, deleted = NOT deleted`,
  }
  for (const [what, set] of Object.entries(changes)) {
    const changed = await sql(
      `UPDATE settee.doc SET ${set} WHERE id IN (SELECT id FROM settee.doc ORDER BY md5(id || $1) LIMIT ${PROVEN_ROWS}) RETURNING id`,
      [what],
    )
    t.equal(changed.length, PROVEN_ROWS)
    const before = reported.length
    compare(t, withoutSeqs(await readAll(store)), truth, { what, counts })
    t.ok(reported.length > before, `${what} is reported`)
    await until(async () => {
      const after = withoutSeqs(await readAll(store))
      return [...truth].every(([key, value]) => isTrue(after.get(key), value))
    })
    t.same((await store.readChanges({ since: 0 }, ALL, ({ id }) => id)).damaged ?? 0, 0)
    const { updateSeq, docCount, deletedCount } = await store.view()
    t.equal((await store.readChanges({ since: 0 }, ALL, ({ id }) => id)).rows.length, docCount + deletedCount)
    const seqs = (await store.readChanges({ since: 0 }, ALL, ({ seq }) => seq)).rows
    for (const since of [0, ...seqs.filter((_, at) => at % 10 === 0), updateSeq])
      t.equal(await store.countChanges(since), seqs.filter((seq) => seq > since).length, `${what}: pending`)
  }
  t.ok(counts.error + counts.missing > 0)
  await sql(`UPDATE settee.doc SET seq = seq + 1, body = body || ' ' WHERE id = 'later-1'`)
  for (const _ of [1, 2]) await rejectsWith(t, readOne(store, 'later-1'), 'damaged_document')
  t.match((await readOne(store, 'later-2'))?.rev, /^1-/)
})

function changeOf(column: string): string {
  const types: Readonly<Record<string, string>> = {
    ...{ seq: 'bigint', rev: 'text', deleted: 'boolean', leaves: 'integer', checksum: 'smallint' },
  }
  return (CHANGES[types[column] as string] as string).replaceAll('%c', column)
}

/** What was read without places in the feed, of which a row that is made again has a new one. */
function withoutSeqs(read: ReadonlyMap<string, unknown>): Map<string, unknown> {
  return new Map(
    [...read].map(([key, value]) => {
      if (Array.isArray(value)) return [key, value.with(2, null)]
      const isDocument = typeof value === 'object' && value !== null && 'seq' in value
      return [key, isDocument ? { ...value, seq: null } : value]
    }),
  )
}

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

const INDEX_POSITION = { seq: 7, seen: 7, epoch: 'a', purgeSeq: 3 }

function indexedDoc(n: number): IndexedDoc {
  const entry = (key: number) => ({
    key: Uint8Array.of(1, key >> 8, key & 255, 0),
    keyText: `"the key ${key}"`,
    valueText: JSON.stringify({ n, words: 'some words '.repeat(n % 9) }),
  })
  return { id: `doc-${n}`, rows: [[entry(n), entry(n + 1000)], n % 3 === 0 ? [entry(7)] : []] }
}

/** Fills an index of 300 documents, with a reduction of each of its buckets. */
async function fillIndex(store: IndexStore): Promise<void> {
  const docs = Array.from({ length: 300 }, (_, n) => indexedDoc(n))
  const { version: empty } = await store.status()
  const from = await store.update(docs, { from: empty, position: INDEX_POSITION, more: false })
  const version = (await store.update([{ id: 'doc-5', rows: [[], []] }, indexedDoc(6)], {
    ...{ from: from as number, position: INDEX_POSITION, more: false },
  })) as number
  const { ranges } = await store.reducedRanges(0, {}, 100)
  const kept = ranges.flatMap(({ bucket }) => (bucket === null ? [] : [{ bucket, reduction: '[12]' }]))
  await store.keepReductions(0, version, kept)
}

/** What a query can read of an index, each as a text. */
async function readIndex(store: IndexStore): Promise<string[]> {
  const { position } = await store.status()
  const found: unknown[] = [position]
  for (const index of [0, 1]) {
    for (const descending of [false, true]) {
      const { rows }: { rows: IndexRow[] } = await store.read(index, { descending }, 1000)
      found.push(...rows)
    }
    found.push(...(await store.readValues(index, {})).values)
    const counts = await store.counts(index, [])
    found.push(['total', counts.total], counts.position)
    const { ranges } = await store.reducedRanges(index, {}, 100)
    found.push(...ranges.flatMap(({ reduction }) => (reduction === null ? [] : [['reduced', reduction]])))
  }
  // An update reads the keys of the rows that it replaces.
  const { version } = await store.status()
  for (let n = 0; n < 300; n += 60) {
    const docs = Array.from({ length: 60 }, (_, at) => indexedDoc(n + at)).filter(({ id }) => id !== 'doc-5')
    await store.update(docs, { from: version, position: INDEX_POSITION, more: true })
  }
  return found.map((part) => JSON.stringify(part))
}

const INDEX_COLUMNS: Readonly<Record<string, readonly string[]>> = {
  index_store: ['seq', 'epoch', 'purge_seq', 'rows[1]', 'checksum'],
  index_doc: ['keys', 'checksum'],
  index_row: ['head', 'key_length', 'key', 'value', 'checksum'],
  index_stretch: ['reduction', 'checksum'],
}
const INDEX_CHANGES: Readonly<Record<string, string>> = { 'rows[1]': 'rows[1] # 65536' }

t.test('whatever column of an index is changed, no query gets it, and the index is made again', async (t) => {
  const { engine, sql } = await openStore(t)
  const store = engine.openIndexes('notes').open('abc', 2)
  await fillIndex(store)
  const truth = await readIndex(store)
  const written = new Set(truth)
  t.ok(written.has('["reduced","[12]"]'))
  for (const [table, columns] of Object.entries(INDEX_COLUMNS)) {
    for (const column of columns) {
      const [{ type } = { type: '' }] = await sql(
        `SELECT data_type AS type FROM information_schema.columns
          WHERE table_schema = 'settee' AND table_name = $1 AND column_name = $2`,
        [table, column],
      )
      const changed = INDEX_CHANGES[column] ?? (CHANGES[type as string] as string).replaceAll('%c', column)
      const rows = await sql(
        `UPDATE settee.${table} SET ${column} = ${changed} WHERE ctid IN (SELECT ctid FROM settee.${table}
          WHERE checksum IS NOT NULL AND store = (SELECT store FROM settee.index_store) ORDER BY md5(ctid::text) LIMIT 1) RETURNING 1`,
      )
      t.equal(rows.length, 1, `${table}.${column} is changed`)
      const read = await readIndex(store).catch((error: unknown) => error)
      if (read instanceof CouchError) t.equal(read.code, 'unavailable', `${table}.${column}`)
      else t.fail(`${table}.${column} is not noticed`)
      t.same((await store.status()).position, null, 'it is empty')
      t.same((await store.read(0, {}, 10)).rows, [])
      await fillIndex(store)
      t.same(await readIndex(store), truth, 'the index is built again')
    }
  }
})

t.test('rows of an index that an older node has written are read without checksums', async (t) => {
  const { engine, sql } = await openStore(t)
  const store = engine.openIndexes('notes').open('abc', 2)
  await fillIndex(store)
  const truth = await readIndex(store)
  for (const table of Object.keys(INDEX_COLUMNS)) await sql(`UPDATE settee.${table} SET checksum = NULL`)
  t.same(await readIndex(store), truth)
  const [old] = await sql('SELECT db, signature, version, store FROM settee.index_store')
  const none = "'{}'::integer[], '{}'::bytea[], '{}'::bytea[]"
  const row = `ARRAY[0], ARRAY[r.head], ARRAY[r.tail], ARRAY['"older"'], ARRAY['"older"']`
  await sql(
    `SET search_path = settee; SELECT index_update(s.db, s.signature, 2, s.version, 77, s.store, 8, 'a', 3, NULL, '{}', '{}',
      ${none}, ${row}, ${none}, '{}'::integer[], '{}', '{}')
      FROM index_store s, (SELECT * FROM index_row WHERE idx = 0 ORDER BY head LIMIT 1) r`,
  )
  t.ok(old)
  const again = engine.openIndexes('notes').open('abc', 2)
  t.match(await again.status(), { version: 77, position: { seq: 8 } })
  t.match((await again.read(0, {}, 1)).rows, [{ keyText: '"older"', valueText: '"older"' }])
})

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
  t.notOk((await store.garbage()).needsCompaction)
  await sql('UPDATE settee.database SET unsummed = NULL, unsummed_others = NULL, security_checksum = NULL')
  for (const table of ['local_doc', 'blob', 'chunk']) await sql(`UPDATE settee.${table} SET checksum = NULL`)
  await sql(`UPDATE settee.doc SET checksum = NULL, content_checksum = NULL, ancestry_checksum = NULL,
    attachments = regexp_replace(attachments, '"checksum":-?[0-9]+,', '', 'g')`)
  await sql(`UPDATE settee.revision SET content_checksum = NULL, ancestry_checksum = NULL`)
  t.ok((await store.garbage()).needsCompaction)
  t.same(await readAll(store), truth)
  await store.compact({ keepSince: 0 })
  t.same(await sql(LACKING), [{ docs: 0, revisions: 0, others: 0 }])
  t.same(
    await sql(`SELECT count(*)::int AS lists FROM settee.doc WHERE attachments LIKE '%"checksum":%'`),
    [{ lists }],
    'lists of attachments have checksums',
  )
  t.notOk((await store.garbage()).needsCompaction)
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
  t.notOk((await store.garbage()).needsCompaction)
  await older.doc('c', 'c', '{"text":"of the older one"}')
  await older.update('b', 'b', '{"text":"of the older one"}')
  await older.local('_local/older', '{"a":"of the older one"}')
  await older.security('{"members":{"names":["of the older one"]}}')
  t.same(await sql(LACKING), [{ docs: 2, revisions: 0, others: 2 }], 'the superseded revision keeps its own')
  t.ok((await store.garbage()).needsCompaction)
  t.match(await readOne(store, 'b'), { revisions: [{}, { body: '{"text":"of the older one"}' }] })
  t.match(await readOne(store, 'c'), { revisions: [{ body: '{"text":"of the older one"}' }] })
  await only(store.updateDocs([put('c', '{"text":"of the newer one"}')]))
  t.same(await sql(LACKING), [{ docs: 1, revisions: 1, others: 2 }])
  await store.compact({ keepSince: 0 })
  t.same(await sql(LACKING), [{ docs: 0, revisions: 0, others: 0 }])
  t.notOk((await store.garbage()).needsCompaction)
  t.equal((await readOne(store, 'a'))?.revisions[0]?.attachments.length, 1)
  await sql(`UPDATE settee.doc SET body = replace(body, 'older', '0lder') WHERE id = 'b'`)
  await rejectsWith(t, readOne(store, 'b'), 'damaged_document')

  const content = Buffer.alloc(2 * CHUNK_BYTES - 2, 'a content of the older one ')
  const blob = await older.content(content)
  const lease = await store.referenceBlob(blob)
  t.same(await sql(LACKING), [{ docs: 0, revisions: 0, others: 3 }])
  t.ok((await store.garbage()).needsCompaction)
  await store.compact({ keepSince: 0 })
  t.same(await sql(LACKING), [{ docs: 0, revisions: 0, others: 0 }])
  await sql(`UPDATE settee.chunk SET data = set_byte(data, 0, 0) WHERE blob = $1 AND position = 1`, [blob])
  await rejectsWith(t, store.readBlob(blob, CHUNK_BYTES, 100), 'damaged_document')
  lease?.release()
})
