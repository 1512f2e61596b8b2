/** The tables of a database's file. A released migration never changes; new ones are appended. */
import { longCall, Yielder } from '../../core/event-loop.ts'
import { type PurgeFacts, purgeChecksum } from '../checksum.ts'
import { APPLICATION_ID, type Connection, memoryDatabase } from './connection.ts'
import { sumMeta } from './meta.ts'

const VERSION_1 = `
-- counters, epochs, limits: what the file knows of itself
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;

-- a row a document: its winner, and its place in the feed
CREATE TABLE doc (
  num INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  seq INTEGER NOT NULL UNIQUE,
  rev TEXT NOT NULL,
  deleted INTEGER NOT NULL
);

-- a row a revision: leaves with their ancestry; superseded ones (ancestry null) until compaction
CREATE TABLE revision (
  num INTEGER PRIMARY KEY,
  doc INTEGER NOT NULL,
  rev TEXT NOT NULL,
  leaf INTEGER NOT NULL,
  deleted INTEGER NOT NULL,
  ancestry BLOB,
  attachments INTEGER NOT NULL,
  size INTEGER NOT NULL,
  body TEXT NOT NULL,
  UNIQUE (doc, rev)
);
CREATE INDEX revision_leaf ON revision (doc) WHERE leaf;

CREATE TABLE attachment (
  revision INTEGER NOT NULL,
  name TEXT NOT NULL,
  blob INTEGER NOT NULL,
  type TEXT NOT NULL,
  revpos INTEGER NOT NULL,
  PRIMARY KEY (revision, name)
) WITHOUT ROWID;

-- sha256 is null while the content is still arriving (state 'staging')
CREATE TABLE blob (
  num INTEGER PRIMARY KEY,
  sha256 BLOB UNIQUE,
  md5 BLOB,
  length INTEGER NOT NULL,
  state TEXT NOT NULL
);
CREATE TABLE chunk (blob INTEGER NOT NULL, position INTEGER NOT NULL, data BLOB NOT NULL, UNIQUE (blob, position));

CREATE TABLE local (id TEXT PRIMARY KEY, rev INTEGER NOT NULL, body TEXT NOT NULL);
CREATE TABLE security (one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL, body TEXT NOT NULL);
CREATE TABLE purge (seq INTEGER PRIMARY KEY, id TEXT NOT NULL, revs TEXT NOT NULL);

-- how many rows of the feed each stretch of 1024^level numbers holds (feed-counts.ts)
CREATE TABLE feed_count (
  level INTEGER NOT NULL,
  bucket INTEGER NOT NULL,
  rows INTEGER NOT NULL,
  PRIMARY KEY (level, bucket)
) WITHOUT ROWID;
`

const VERSION_2 = `
-- how the blob's bytes are coded (null: not at all), and the bytes they decode to (null: as many as the blob has)
ALTER TABLE attachment ADD COLUMN encoding TEXT;
ALTER TABLE attachment ADD COLUMN length INTEGER;

-- what an opening sweeps is found at once, however many blobs there are
CREATE INDEX blob_staging ON blob (num) WHERE state = 'staging';

-- whether any revision names a blob, asked when it may be removed
CREATE INDEX attachment_blob ON attachment (blob);
`

const VERSION_3 = `
-- how many leaves the document has, so that of most nothing but this row is read; 0: not counted yet
ALTER TABLE doc ADD COLUMN leaves INTEGER NOT NULL DEFAULT 0;
`

const VERSION_4 = `
-- the number of the winner's row in revision, by which its body is found without an index; null: not noted yet, as in
-- every document that was last written before this version, however many there are
ALTER TABLE doc ADD COLUMN winner INTEGER;
`

const VERSION_5 = `
-- ms since 1970 when the revision was stored; null: before this version
ALTER TABLE revision ADD COLUMN stored_at INTEGER;

-- revisions that are no leaves any more, by the numbers of their rows, and since when (ms since 1970);
-- kept: compaction has been there, and CouchDB's model knows the body no more: the time machine alone does;
-- bytes: of the body. What they sum up to is counted in meta (wear.ts).
CREATE TABLE superseded (
  revision INTEGER PRIMARY KEY,
  at INTEGER NOT NULL,
  kept INTEGER NOT NULL,
  bytes INTEGER NOT NULL DEFAULT 0
);
-- before then nothing says when what was stored
INSERT INTO meta SELECT 'timed_since', CAST(unixepoch('subsec') * 1000 AS INTEGER) FROM (SELECT 1 FROM doc LIMIT 1);

-- replication checkpoints whose first write after the last restore was refused
CREATE TABLE refused_checkpoint (id TEXT PRIMARY KEY) WITHOUT ROWID;
`

const VERSION_6 = `
-- where the attachment stands among those of its revision; 0 in revisions from before this version, which are ordered by name
ALTER TABLE attachment ADD COLUMN place INTEGER NOT NULL DEFAULT 0;
`

const VERSION_7 = `
-- what sequence tokens of other servers mean here (token-position.ts); parts: JSON; at: ms since 1970 when it was remembered
CREATE TABLE remembered_token (
  family TEXT NOT NULL,
  total INTEGER NOT NULL,
  parts TEXT NOT NULL,
  seq INTEGER NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (family, total, parts)
) WITHOUT ROWID;
`

const VERSION_8 = `
-- deleted documents in the order of their ids, so that live ones are counted in indexes alone (range-counts.ts)
CREATE INDEX doc_deleted ON doc (id) WHERE deleted;
`

/**
 * Reads the whole file: at best a third of a second for a gigabyte, many seconds on a slow disk. The time is that from
 * which on times are known; none of these revisions was a leaf at any such time.
 */
const VERSION_5_ROWS = `
INSERT INTO superseded
SELECT num, (SELECT value FROM meta WHERE key = 'timed_since'), 0, octet_length(body) FROM revision
WHERE num > ? AND num <= ? AND NOT leaf
`
const VERSION_5_SUMS = `
INSERT OR REPLACE INTO meta SELECT 'superseded_rows', count(*) FROM superseded;
INSERT OR REPLACE INTO meta SELECT 'superseded_bytes', coalesce(sum(bytes), 0) FROM superseded;
`

/** Work on a table whose rows have keys, one stretch of keys at a time. */
export interface KeyStretches {
  /** Selects as `last` the last key of the stretch that follows the key in its parameter; null: there is none. */
  readonly next: string
  /** Run in this order. Each processes the keys above the first parameter up to the second. */
  readonly sql: readonly string[]
}

/** A step to the next schema: SQL that runs at once, and SQL that runs for one stretch of a table's rows at a time. */
export type Migration =
  | string
  | {
      readonly stretches: readonly KeyStretches[]
      /** Runs after the last stretch. */
      readonly end: string
    }
  | RowsMigration
  | SummingMigration

interface SummingMigration {
  readonly sql: string
  /** Notes checksums, which SQL cannot compute. Yields between two stretches. */
  sum(connection: Pick<Connection, 'prepare'>): Iterable<void>
}

interface RowsMigration {
  readonly sql: string
  readonly rows: {
    readonly table: string
    /** Processes the row numbers above the first parameter up to the second. */
    readonly sql: string
    /** Runs after the last stretch. */
    readonly end: string
  }
}

const VERSION_9 = `
-- ms since 1970 when the ancestry of a leaf last grew; null: never, or before this version
ALTER TABLE revision ADD COLUMN grown_at INTEGER;
`

const VERSION_10 = `
-- what the row must say (checksum.ts); null: not noted yet, in rows from before this version
ALTER TABLE doc ADD COLUMN checksum INTEGER;
ALTER TABLE revision ADD COLUMN checksum INTEGER;
ALTER TABLE attachment ADD COLUMN checksum INTEGER;
ALTER TABLE blob ADD COLUMN checksum INTEGER;
ALTER TABLE chunk ADD COLUMN checksum INTEGER;
ALTER TABLE local ADD COLUMN checksum INTEGER;
ALTER TABLE security ADD COLUMN checksum INTEGER;
INSERT INTO meta SELECT 'unsummed', 1 FROM meta WHERE key = 'created_at';
`

const VERSION_11 = `
-- as in version 10; all values and purges have one
ALTER TABLE meta ADD COLUMN checksum INTEGER;
ALTER TABLE purge ADD COLUMN checksum INTEGER;
`

function* sumMetaAndPurges(connection: Pick<Connection, 'prepare'>): Iterable<void> {
  sumMeta(connection)
  const page = connection.prepare<PurgeFacts>(
    `SELECT seq, id, revs FROM purge WHERE seq > ? ORDER BY seq LIMIT ${STRETCH}`,
  )
  const put = connection.prepare('UPDATE purge SET checksum = ? WHERE seq = ?')
  for (let above = Number.MIN_SAFE_INTEGER; ; ) {
    const rows = page.all(above)
    for (const row of rows) put.run(purgeChecksum(row), row.seq)
    const last = rows.at(-1)
    if (last === undefined) return
    above = last.seq
    yield
  }
}

/** The version since which rows have checksums. */
export const SUMMED_VERSION = 10

/** The steps from nothing to the newest schema of a database. */
export const MIGRATIONS: readonly Migration[] = [
  VERSION_1,
  VERSION_2,
  VERSION_3,
  VERSION_4,
  { sql: VERSION_5, rows: { table: 'revision', sql: VERSION_5_ROWS, end: VERSION_5_SUMS } },
  VERSION_6,
  VERSION_7,
  VERSION_8,
  VERSION_9,
  VERSION_10,
  { sql: VERSION_11, sum: sumMetaAndPurges },
]

/** Rows in a stretch, which takes much less time than a thread may be held, also on a slow disk. */
export const STRETCH = 1000

/** More than any file of settee has. */
const MAX_SCHEMA = 1000
const READ_SCHEMA =
  'SELECT type, name, tbl_name AS tableName, sql FROM sqlite_schema ' +
  `ORDER BY type, name LIMIT ${MAX_SCHEMA}`
/** Litestream's own tables (docs/backup.md): columns without constraints, which run nothing. */
const LITESTREAM = /^CREATE TABLE "?_litestream_\w+"? *\([\w ,]+\)$/
/** SQLite's statistics. */
const STATISTICS: ReadonlySet<string> = new Set(['sqlite_stat1', 'sqlite_stat4'])

interface SchemaRow {
  readonly type: string
  readonly name: string
  readonly tableName: string
  readonly sql: string | null
}

const expectedSchemas = new WeakMap<readonly Migration[], Map<number, string>>()

/** The schema that the first migrations make. */
function schemaAfter(migrations: readonly Migration[], version: number): string {
  const known = expectedSchemas.get(migrations) ?? new Map<number, string>()
  expectedSchemas.set(migrations, known)
  const found = known.get(version)
  if (found !== undefined) return found
  const empty = memoryDatabase()
  try {
    migrate(empty, 'an empty file', migrations.slice(0, version))
    const text = schemaIn(empty)
    known.set(version, text)
    return text
  } finally {
    empty.close()
  }
}

/** Tables, indexes, views and triggers as one text, without tables of others that are known. */
function schemaIn(connection: Pick<Connection, 'prepare'>): string {
  const rows = connection.prepare<SchemaRow>(READ_SCHEMA).all()
  return JSON.stringify(rows.filter((row) => !isKnownOthers(row)))
}

function isKnownOthers({ type, name, sql }: SchemaRow): boolean {
  return type === 'table' && (STATISTICS.has(name) || LITESTREAM.test(sql ?? ''))
}

/** A file that this settee does not open. The message is for the operator and names the file. */
export class RefusedFile extends Error {
  /** Whether a newer settee has written it. */
  readonly isNewer: boolean

  constructor(message: string, { isNewer = false }: { readonly isNewer?: boolean } = {}) {
    super(message)
    this.isNewer = isNewer
  }
}

/**
 * Reads the version of a file's schema.
 * @param file its name in error messages
 * @param migrations those of the file's kind; by default a database's
 * @returns 0 for a file without tables
 * @throws RefusedFile for a file that is not settee's, has another schema than its migrations make, or is newer than this
 *   settee
 */
export function schemaOf(
  connection: Pick<Connection, 'pragma' | 'prepare'>,
  file: string,
  migrations: readonly Migration[] = MIGRATIONS,
): number {
  const version = connection.pragma('user_version') as number
  const application = connection.pragma('application_id') as number
  if (version > 0 && application !== APPLICATION_ID) throw new RefusedFile(`${file} is not a file of settee.`)
  if (version === 0) return version
  if (version <= migrations.length) {
    // A trigger, a view in place of a table or a computed column would run with each call.
    if (schemaIn(connection) === schemaAfter(migrations, version)) return version
    throw new RefusedFile(`${file} has tables, views or triggers that settee does not make.`)
  }
  throw new RefusedFile(
    `${file} was written by a newer settee: its schema is ${version}, and this one knows ${migrations.length}. ` +
      'Start the newer version again, or follow docs/upgrade.md to go back.',
    { isNewer: true },
  )
}

type Migratable = Pick<Connection, 'exec' | 'pragma' | 'prepare'>

/**
 * Upgrades a new or small file to the newest schema at once, in one transaction.
 * @throws as {@link schemaOf}
 */
export function migrate(
  connection: Migratable,
  file: string,
  migrations: readonly Migration[] = MIGRATIONS,
): void {
  const steps = migrationSteps(connection, file, migrations)
  for (let step = steps.next(); !step.done; ) step = steps.next()
}

/**
 * As {@link migrate}, while the thread serves other databases: for a file that nobody else uses yet.
 * @param refuseIfEnding called between two steps; an error that it throws ends the migration, and the file is unchanged
 * @throws as {@link schemaOf}
 */
export async function migrateInSteps(
  connection: Connection,
  file: string,
  migrations: readonly Migration[],
  refuseIfEnding: () => void,
): Promise<void> {
  const yielder = new Yielder()
  try {
    for (const _ of migrationSteps(connection, file, migrations)) {
      if (!yielder.isDue) continue
      await yielder.yieldIfDue()
      refuseIfEnding()
    }
  } catch (error) {
    connection.rollback(error)
    throw error
  }
}

/** Yields between the steps of a single transaction, so that the file has either the old or the new schema. */
function* migrationSteps(
  connection: Migratable,
  file: string,
  migrations: readonly Migration[],
): Generator<void> {
  const version = schemaOf(connection, file, migrations)
  if (version === migrations.length) return
  connection.exec('BEGIN IMMEDIATE')
  for (const migration of migrations.slice(version)) {
    if (typeof migration !== 'string' && 'stretches' in migration) {
      for (const stretches of migration.stretches) yield* keysInStretches(connection, stretches)
      longCall(() => connection.exec(migration.end))
      yield
      continue
    }
    longCall(() => connection.exec(typeof migration === 'string' ? migration : migration.sql))
    yield
    if (typeof migration === 'string') continue
    if ('sum' in migration) yield* migration.sum(connection)
    else yield* rowsInStretches(connection, migration.rows)
  }
  connection.exec(`PRAGMA application_id = ${APPLICATION_ID}`)
  connection.exec(`PRAGMA user_version = ${migrations.length}`)
  longCall(() => connection.exec('COMMIT'))
}

function* keysInStretches(connection: Migratable, { next, sql }: KeyStretches): Generator<void> {
  const find = connection.prepare<{ last: string | null }>(next)
  const statements = sql.map((each) => connection.prepare(each))
  for (let above = ''; ; ) {
    const last = find.get(above)?.last ?? null
    if (last === null) return
    for (const statement of statements) statement.run(above, last)
    above = last
    yield
  }
}

function* rowsInStretches(
  connection: Migratable,
  { table, sql, end }: RowsMigration['rows'],
): Generator<void> {
  const greatest = `SELECT coalesce(max(rowid), 0) AS last FROM ${table}`
  const last = connection.prepare<{ last: number }>(greatest).get()?.last ?? 0
  const statement = connection.prepare(sql)
  for (let above = 0; above < last; above += STRETCH) {
    statement.run(above, above + STRETCH)
    yield
  }
  longCall(() => connection.exec(end))
}
