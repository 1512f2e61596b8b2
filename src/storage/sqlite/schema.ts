/** The tables of a database's file. A migration never changes once it has been released; the next is appended. */
import { APPLICATION_ID, type Connection } from './connection.ts'

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
-- kept: compaction has been there, and CouchDB's model knows the body no more: the time machine alone does
CREATE TABLE superseded (revision INTEGER PRIMARY KEY, at INTEGER NOT NULL, kept INTEGER NOT NULL);
INSERT INTO superseded SELECT num, CAST(unixepoch('subsec') * 1000 AS INTEGER), 0 FROM revision WHERE NOT leaf;
-- before then nothing says when what was stored
INSERT INTO meta SELECT 'timed_since', CAST(unixepoch('subsec') * 1000 AS INTEGER) FROM (SELECT 1 FROM doc LIMIT 1);

-- replication checkpoints whose first write after the last restore was refused
CREATE TABLE refused_checkpoint (id TEXT PRIMARY KEY) WITHOUT ROWID;
`

/** The steps from nothing to the newest schema of a database. */
export const MIGRATIONS: readonly string[] = [VERSION_1, VERSION_2, VERSION_3, VERSION_4, VERSION_5]

/**
 * Brings a file to the newest schema, each step in a transaction of its own.
 * @param migrations the file's kind: by default a database's
 * @throws Error with one clear line for a file that is not settee's or is newer than this settee
 */
export function migrate(
  connection: Connection,
  file: string,
  migrations: readonly string[] = MIGRATIONS,
): void {
  const version = connection.pragma('user_version') as number
  const application = connection.pragma('application_id') as number
  if (version > 0 && application !== APPLICATION_ID) throw new Error(`${file} is not a settee database`)
  if (version > migrations.length) {
    throw new Error(
      `${file} was written by a newer settee (schema ${version}); this one knows ${migrations.length}`,
    )
  }
  migrations.slice(version).forEach((sql, step) => {
    connection.exec(
      `BEGIN IMMEDIATE; ${sql} PRAGMA application_id = ${APPLICATION_ID}; PRAGMA user_version = ${version + step + 1}; COMMIT`,
    )
  })
}
