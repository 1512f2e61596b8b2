/**
 * The tables of a store in PostgreSQL, and its functions. A released migration never changes; new ones are appended. Functions
 * are replaced with each: one that takes other parameters has another name, so that nodes of the version before work on.
 *
 * Every table of a database's contents has `db`, the database's incarnation, first in its keys: so Citus can distribute
 * all of them by it, and one statement needs one shard. There are no sequences: numbers are counted in rows that the same
 * transaction has locked. Texts that are compared have the collation "C", so that their order is that of their bytes;
 * ids, keys and names are stored as stored-text.ts has them. Times are in ms since 1970, by the clock of the node.
 *
 * For the statements of functions, Citus needs more: each UPDATE and DELETE names the database, functions in them are not
 * volatile, lists are read by FOR ... IN SELECT (the servers of Citus 13 crash on an element such as p_starts[i] in a statement
 * of a distributed table), no function that reads a table is called within a query of another one, and nothing depends on how many
 * rows an INSERT ... SELECT ... ON CONFLICT has added, since Citus counts all of them.
 *
 * PostgreSQL's vacuum comes when a fifth of a table is dead. That is too late for tables of which compaction removes much at
 * once, and for leases, which come and go all the time: they have limits of their own.
 */
import { BLOB_FUNCTIONS } from './blob-functions.ts'
import { CATALOG_FUNCTIONS } from './catalog-functions.ts'
import { COMPACTION_FUNCTIONS } from './compaction-functions.ts'
import { INDEX_CHECKSUMS, INDEX_FUNCTIONS, INDEX_TABLES } from './index-tables.ts'
import { MEND_FUNCTIONS } from './mended-rows.ts'
import { ROW_FUNCTIONS } from './row-bytes.ts'
import { WRITE_FUNCTIONS } from './write-functions.ts'
import { WRITE_GROUP_FUNCTIONS } from './write-group.ts'

/** The list of databases and the server's own data. These tables stay on the coordinator under Citus. */
const CATALOG = `
-- one row: the store's identity, the last incarnation that was given out, the number of databases, and the numbers of
-- _db_updates. Who locks it and a row of database locks that of database first, and then those of entry.
CREATE TABLE store (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  folder_uuid text NOT NULL,
  server_uuid text NOT NULL,
  last_db bigint NOT NULL DEFAULT 0,
  databases bigint NOT NULL DEFAULT 0,
  update_seq bigint NOT NULL DEFAULT 0,
  -- JSON
  epochs text NOT NULL,
  -- timeline() when the newest epoch was begun
  timeline text NOT NULL
) WITH (fillfactor = 50);

-- db: the first value in the keys of its rows; incarnation: differs from it once the database was restored;
-- last_epoch and last_seq: the last known sequence (DatabaseEntry.lastKnown)
CREATE TABLE entry (
  name text COLLATE "C" PRIMARY KEY,
  db bigint NOT NULL UNIQUE,
  incarnation bigint NOT NULL,
  last_epoch text,
  last_seq bigint
) WITH (fillfactor = 70);

-- deleted databases whose rows are to be removed
CREATE TABLE leaving (db bigint PRIMARY KEY, since timestamptz NOT NULL DEFAULT now());

CREATE TABLE record (
  kind text COLLATE "C",
  key text COLLATE "C",
  value text NOT NULL,
  PRIMARY KEY (kind, key)
);

-- the latest update of each pair of name and type
CREATE TABLE catalog_update (
  name text COLLATE "C",
  type text COLLATE "C",
  seq bigint NOT NULL UNIQUE,
  PRIMARY KEY (name, type)
);

-- the changes of the last minutes, each call's in one row, for the other nodes; token names the call, so that it is known
-- whether a call whose answer was lost is stored; changes: JSON, a list of CatalogChange; null: the call must not be stored
CREATE TABLE catalog_change (
  token text COLLATE "C" PRIMARY KEY,
  xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  node text NOT NULL,
  changes text
);
CREATE INDEX catalog_change_xid ON catalog_change (xid);
`

const DOCUMENTS = `
-- one row for each database: what is locked and counted by each of its writes; free space keeps these updates on one page
CREATE TABLE database (
  db bigint PRIMARY KEY,
  -- whoever has opened another one finds the database restored, and closes it
  incarnation bigint NOT NULL,
  update_seq bigint NOT NULL DEFAULT 0,
  doc_count bigint NOT NULL DEFAULT 0,
  deleted_count bigint NOT NULL DEFAULT 0,
  purge_seq bigint NOT NULL DEFAULT 0,
  -- grows with each write of any kind
  writes bigint NOT NULL DEFAULT 0,
  settings_version bigint NOT NULL DEFAULT 0,
  design_version bigint NOT NULL DEFAULT 0,
  last_blob bigint NOT NULL DEFAULT 0,
  -- bytes of the leaves' bodies and attachments, decoded
  external_bytes bigint NOT NULL DEFAULT 0,
  -- the sums of stored_bytes(body): of leaves, of superseded revisions, and of those that compaction has retained
  leaf_bytes bigint NOT NULL DEFAULT 0,
  superseded_bytes bigint NOT NULL DEFAULT 0,
  retained_bytes bigint NOT NULL DEFAULT 0,
  -- bytes of complete blobs; of attachments that a revision names and its successor does not
  blob_bytes bigint NOT NULL DEFAULT 0,
  loose_bytes bigint NOT NULL DEFAULT 0,
  -- when the last of the superseded revisions that are gone was superseded
  history_since bigint NOT NULL DEFAULT 0,
  compacted_at bigint NOT NULL DEFAULT 0,
  compacted_purge bigint NOT NULL DEFAULT 0,
  longest_ancestry integer NOT NULL DEFAULT 1000,
  revs_limit integer NOT NULL DEFAULT 1000,
  purged_infos_limit integer NOT NULL DEFAULT 1000,
  restored_at bigint,
  -- seconds since 1970
  created_at bigint NOT NULL,
  partitioned boolean NOT NULL,
  -- timeline() when the newest epoch was begun
  timeline text NOT NULL,
  -- JSON
  epochs text NOT NULL,
  security text
) WITH (fillfactor = 50);

-- one row for each document, with its winner
CREATE TABLE doc (
  db bigint,
  id text COLLATE "C",
  seq bigint NOT NULL,
  -- the value of database.writes at its last change of any kind
  version bigint NOT NULL,
  -- its first sequence number, which does not change
  first_seq bigint NOT NULL,
  rev text COLLATE "C" NOT NULL,
  deleted boolean NOT NULL,
  leaves integer NOT NULL,
  -- of the winner's version: see history-store.ts
  place bigint NOT NULL,
  stored_at bigint,
  grown_at bigint,
  -- bytes of the body and the attachments, decoded
  size bigint NOT NULL,
  -- JSON: a list of StoredAttachment, without those that have none
  attachments text,
  -- encodeAncestry of revisions/branch.ts
  ancestry bytea NOT NULL,
  body text NOT NULL,
  PRIMARY KEY (db, id),
  UNIQUE (db, seq)
);
CREATE INDEX doc_forked ON doc (db, first_seq) WHERE leaves > 1;
CREATE INDEX doc_deleted ON doc (db, id) WHERE deleted;

-- every stored revision that is not a winner: other leaves with their ancestry, and superseded ones
CREATE TABLE revision (
  db bigint,
  id text COLLATE "C",
  rev text COLLATE "C",
  deleted boolean NOT NULL,
  leaf boolean NOT NULL,
  -- compaction has retained it for the time machine; never a leaf
  retained boolean NOT NULL DEFAULT false,
  place bigint NOT NULL,
  stored_at bigint,
  grown_at bigint,
  superseded_at bigint,
  size bigint NOT NULL,
  attachments text,
  ancestry bytea,
  body text NOT NULL,
  PRIMARY KEY (db, id, rev)
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX revision_leaf ON revision (db, id) WHERE leaf;
CREATE INDEX revision_superseded ON revision (db, superseded_at) WHERE NOT leaf AND NOT retained;
CREATE INDEX revision_retained ON revision (db, superseded_at) WHERE retained;

-- how many rows of the feed each stretch of 1,024 numbers has
CREATE TABLE feed_count (db bigint, stretch bigint, rows integer NOT NULL, PRIMARY KEY (db, stretch)) WITH (fillfactor = 50);

-- version: the value of database.writes at its last change
CREATE TABLE local_doc (
  db bigint,
  id text COLLATE "C",
  version bigint NOT NULL,
  rev bigint NOT NULL,
  body text NOT NULL,
  PRIMARY KEY (db, id)
);
-- checkpoints whose first write after the last restore was refused
CREATE TABLE met (db bigint, id text COLLATE "C", PRIMARY KEY (db, id));
-- revs: JSON
CREATE TABLE purge (db bigint, seq bigint, id text NOT NULL, revs text NOT NULL, PRIMARY KEY (db, seq));
-- what sequence tokens of other servers mean here (token-position.ts); parts: JSON
CREATE TABLE point (
  db bigint,
  family text COLLATE "C",
  total bigint,
  parts text COLLATE "C",
  seq bigint NOT NULL,
  at bigint NOT NULL,
  PRIMARY KEY (db, family, total, parts)
);
-- the tokens of the last writes: whether a write whose answer was lost is stored (write-note.ts)
CREATE TABLE written (db bigint, opener text COLLATE "C", token bigint NOT NULL, at bigint NOT NULL, PRIMARY KEY (db, opener));
`

const CONTENTS = `
-- contents of attachments; sha256 is null while the content arrives, and while it is removed
CREATE TABLE blob (
  db bigint,
  blob bigint,
  sha256 bytea,
  digest text,
  length bigint NOT NULL,
  -- whether a revision has ever named it
  named boolean NOT NULL,
  PRIMARY KEY (db, blob),
  UNIQUE (db, sha256)
);
CREATE INDEX blob_unnamed ON blob (db, blob) WHERE NOT named;
CREATE TABLE chunk (db bigint, blob bigint, position bigint, data bytea NOT NULL, PRIMARY KEY (db, blob, position))
  WITH (autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE chunk ALTER COLUMN data SET STORAGE EXTERNAL;
-- which revisions name a blob
CREATE TABLE blob_use (db bigint, blob bigint, id text COLLATE "C", rev text COLLATE "C", PRIMARY KEY (db, blob, id, rev));
-- blob-leases.ts; holder: an upload or a reference
CREATE TABLE lease (
  db bigint,
  holder text COLLATE "C",
  blob bigint,
  renewed_at bigint NOT NULL,
  PRIMARY KEY (db, holder, blob)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX lease_blob ON lease (db, blob);
-- the opener that compacts, null if none does; finished: how many compactions have succeeded; done: in percent
CREATE TABLE compaction (
  db bigint PRIMARY KEY,
  opener text,
  renewed_at bigint NOT NULL,
  done integer NOT NULL,
  finished bigint NOT NULL
);
`

const BY_DATABASE = [
  'doc',
  'revision',
  'feed_count',
  'local_doc',
  'met',
  'purge',
  'point',
  'written',
  'blob',
  'chunk',
  'blob_use',
  'lease',
  'index_store',
  'index_doc',
  'index_row',
  'index_stretch',
]

/**
 * A statement is planned once for all databases. If most of them are small, PostgreSQL expects a few rows in each, and finds one
 * document by reading all of its database: 65 ms instead of 0.1 in one of 100,000 documents. So it is told to expect
 * that a database has all the rows of a table, from the next ANALYZE on.
 */
const STATISTICS = BY_DATABASE.map(
  (table) => `ALTER TABLE ${table} ALTER COLUMN db SET (n_distinct = 1);`,
).join('\n')

/** When a call was noted: a call that must not be stored is remembered for longer than others need to see it. */
const CALL_TIMES = 'ALTER TABLE catalog_change ADD COLUMN at timestamptz NOT NULL DEFAULT now();'

const SHARDS = 'ALTER TABLE database ADD COLUMN shards integer NOT NULL DEFAULT 1;'

/**
 * From here on leaf_bytes is the sum of all that is neither the body of a retained revision nor superseded: of leaves with
 * their keys and ancestries, of what retained revisions take beside their bodies, of `_local` documents, purges and the security
 * object (row-bytes.ts); and retained_bytes is that of bodies alone. Rows from before, and those of older nodes, were counted otherwise.
 *
 * uncounted: 0 if the sums are right; else a compaction counts anew. It changes with each write of an older node, and is null
 * in databases from before.
 */
const WHOLE_SUMS = `
ALTER TABLE database ADD COLUMN uncounted bigint;
ALTER TABLE database ALTER COLUMN uncounted SET DEFAULT 0;
`

/**
 * Checksums of documents and revisions (row-checksums.ts); null in rows from before, and in those of older nodes.
 *
 * unsummed: 0 if no row lacks one; else a compaction notes them. It changes with each write of an older node, and is null in databases
 * from before.
 *
 * The tables are locked in the order in which a write locks them.
 *
 * Of an empty table, PostgreSQL estimates rows by the width of its columns. With 4 bytes more in `doc` it would expect one row for
 * each database instead of two, and find a document by reading all of its database until the first ANALYZE: hence a smallint.
 */
const DOCUMENT_CHECKSUMS = `
ALTER TABLE database ADD COLUMN unsummed bigint;
ALTER TABLE database ALTER COLUMN unsummed SET DEFAULT 0;
ALTER TABLE doc ADD COLUMN checksum smallint, ADD COLUMN content_checksum integer, ADD COLUMN ancestry_checksum integer;
ALTER TABLE revision ADD COLUMN content_checksum integer, ADD COLUMN ancestry_checksum integer;
`

/** What tells a store that went back from one that did not (store-memory.ts). */
const CONTINUITY = `
-- the boot since which the newest epoch of the database may be continued
ALTER TABLE database ADD COLUMN boot text NOT NULL DEFAULT '';
-- generation: begins where changes may be gone, so that every database is restored; part of timeline(). It is TIME-EPOCH, in ms
-- since 1970; empty before the first.
ALTER TABLE store ADD COLUMN generation text NOT NULL DEFAULT '';
-- boot: the epoch that the last start of a node has begun; boot_seq: its first number
ALTER TABLE store ADD COLUMN boot text NOT NULL DEFAULT '';
ALTER TABLE store ADD COLUMN boot_seq bigint NOT NULL DEFAULT 0;
`

/**
 * Checksums of what {@link DOCUMENT_CHECKSUMS} leaves out: contents of attachments, `_local` documents, the security object and records. And what is
 * known to be damaged.
 *
 * unsummed_others: as unsummed, for these; unsummed_records: for records, whose checksums the next node that starts notes.
 */
const OTHER_CHECKSUMS = `
ALTER TABLE database ADD COLUMN security_checksum integer, ADD COLUMN unsummed_others bigint;
ALTER TABLE database ALTER COLUMN unsummed_others SET DEFAULT 0;
-- damaged_leaves: those that devices are asked for (noted-leaves.ts); damaged_at: when the last was noted, in ms since 1970
ALTER TABLE database ADD COLUMN damaged_leaves text, ADD COLUMN damaged_at bigint;
ALTER TABLE store ADD COLUMN unsummed_records bigint;
ALTER TABLE store ALTER COLUMN unsummed_records SET DEFAULT 0;
ALTER TABLE record ADD COLUMN checksum integer;
ALTER TABLE blob ADD COLUMN checksum integer;
ALTER TABLE chunk ADD COLUMN checksum integer;
ALTER TABLE local_doc ADD COLUMN checksum integer;
`

/** Functions that read lists of attachments with any texts: {@link attachmentNumber}. */
const ANY_TEXTS = ''

/**
 * Checksums of indexes and of remembered purges, and functions that make damaged rows of documents again (mended-rows.ts). A compaction
 * notes those of purges from before.
 */
const LATER_CHECKSUMS = `
UPDATE database SET unsummed_others = coalesce(unsummed_others, 0) + 1 WHERE purge_seq > 0;
ALTER TABLE purge ADD COLUMN checksum integer;
${INDEX_CHECKSUMS}
`

/** The steps from nothing to the newest tables. A step that only replaces functions is empty. */
export const MIGRATIONS: readonly string[] = [
  [CATALOG, DOCUMENTS, CONTENTS, INDEX_TABLES, STATISTICS].join(''),
  CALL_TIMES,
  SHARDS,
  WHOLE_SUMS,
  ANY_TEXTS,
  DOCUMENT_CHECKSUMS,
  CONTINUITY,
  OTHER_CHECKSUMS,
  LATER_CHECKSUMS,
]

/** All functions, which are made, or replaced, after the steps that a store lacks. */
export const FUNCTIONS: string = [
  ROW_FUNCTIONS,
  CATALOG_FUNCTIONS,
  BLOB_FUNCTIONS,
  COMPACTION_FUNCTIONS,
  WRITE_FUNCTIONS,
  WRITE_GROUP_FUNCTIONS,
  MEND_FUNCTIONS,
  INDEX_FUNCTIONS,
].join('')

/**
 * The schema that the oldest settee may have that can still work beside this one's tables, so that nodes are upgraded one
 * after the other.
 */
export const OLDEST_COMPATIBLE = 1
