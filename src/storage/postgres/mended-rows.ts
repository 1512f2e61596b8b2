/**
 * Rows of documents that do not say what was written are made again. A document's text and ancestry are in the same row, with
 * checksums of their own that cover its id, its revision and whether it is a tombstone. So they prove these, and the
 * other leaves are counted. The document takes the next sequence number, since nothing else says which one it had.
 */
import { setImmediate as turn } from 'node:timers/promises'
import { decodeAncestry } from '../../revisions/branch.ts'
import { agrees, ancestryChecksum } from '../checksum.ts'
import type { Query } from './connections.ts'
import { readView } from './database-settings.ts'
import type { OpenDatabase } from './open-database.ts'
import { contentSum, docChecksumOf, docRowChecksum, docSum, listedAttachments } from './row-checksums.ts'
import { storedText, textOf } from './stored-text.ts'
import type { Attempt, Decided, PlannedWrite, WriteCommits } from './write-commits.ts'
import { firstValues, NOTE_WRITE, refusals } from './write-functions.ts'
import type { WriteContext } from './write-note.ts'

/** Rows that wait to be mended; others are noted when they are read again. */
const MAX_WAITING = 100
/** Rows that are known not to be proven, so that they are not read each time. */
const MAX_UNPROVEN = 1000
/** Stretches of the feed that are counted again, for each row. */
const MAX_STRETCHES = 100

const MEND_VALUES = 10

/** p_version: of the document as it was read; p_checksum: {@link docSum}. The stretches in which the document may have been are counted again. */
export const MEND_FUNCTIONS = `
CREATE OR REPLACE FUNCTION mend_doc(
  p_db bigint, p_settings bigint, p_opener text, p_token bigint, p_now bigint,
  p_id text, p_version bigint, p_rev text, p_deleted boolean, p_checksum bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  v_seq bigint;
  v_writes bigint;
  v_leaves bigint;
  v_old record;
  v_rest bigint;
BEGIN
  UPDATE database SET update_seq = update_seq + 1, writes = writes + 1
    WHERE db = p_db AND settings_version = p_settings AND timeline = timeline()
    RETURNING update_seq, writes INTO v_seq, v_writes;
  IF NOT FOUND THEN
    RETURN refusal(p_db, p_settings);
  END IF;
  SELECT seq, checksum INTO v_old FROM doc WHERE db = p_db AND id = p_id AND version = p_version;
  IF NOT FOUND THEN
    UPDATE database SET update_seq = update_seq - 1, writes = writes - 1 WHERE db = p_db;
    RETURN ${refusals.stale};
  END IF;
  SELECT count(*) + 1 INTO v_leaves FROM revision WHERE db = p_db AND id = p_id AND leaf;
  UPDATE doc SET seq = v_seq, version = v_writes, rev = p_rev, deleted = p_deleted, leaves = v_leaves,
    checksum = ${docChecksumOf('p_checksum + v_seq + v_leaves')}
    WHERE db = p_db AND id = p_id;
  -- Of the number that it had, the checksum of the row has the remainder.
  v_rest := (v_old.checksum + 32768 - (p_checksum + v_leaves) % 65521 + 65521) % 65521;
  INSERT INTO feed_count (db, stretch, rows) VALUES (p_db, v_seq >> 10, 0) ON CONFLICT DO NOTHING;
  UPDATE feed_count AS f SET rows = (
      SELECT count(*) FROM doc AS d WHERE d.db = p_db AND d.seq >= f.stretch << 10 AND d.seq < (f.stretch + 1) << 10
    ) WHERE f.db = p_db AND (f.stretch IN (v_seq >> 10, v_old.seq >> 10)
      OR f.stretch IN (SELECT s >> 10 FROM generate_series(v_rest, v_seq, 65521) AS s LIMIT ${MAX_STRETCHES}));
${NOTE_WRITE}
  RETURN v_seq;
END $$;
`

const READ_ROW = {
  name: 'read_damaged_row',
  text: `SELECT d.version, d.seq, d.rev, d.deleted, d.leaves::bigint, d.checksum::integer, d.attachments, d.body, d.content_checksum,
      d.ancestry, d.ancestry_checksum,
      (SELECT count(*) + 1 FROM revision r WHERE r.db = $1 AND r.id = $2 AND r.leaf)
    FROM doc d WHERE d.db = $1 AND d.id = $2`,
}
type DocRow = readonly [
  version: number,
  seq: number,
  rev: string,
  deleted: boolean,
  leaves: number,
  checksum: number | null,
  attachments: string | null,
  body: string,
  contentChecksum: number | null,
  ancestry: Buffer,
  ancestryChecksum: number | null,
  counted: number,
]

/** What a row says of its winner. */
interface Winner {
  readonly rev: string
  readonly deleted: boolean
}

/** Mends rows one after the other, while nobody waits. */
export class MendedRows {
  readonly #waiting = new Set<string>()
  readonly #unproven = new Set<string>()
  readonly #database: OpenDatabase
  readonly #commits: WriteCommits
  #work: Promise<void> | null = null
  #isClosed = false

  constructor(database: OpenDatabase, commits: WriteCommits) {
    this.#database = database
    this.#commits = commits
  }

  /** Notes a document whose row does not say what was written. @param version of the row */
  note(id: string, version: number): void {
    const isKnown = this.#unproven.has(JSON.stringify([id, version]))
    if (this.#isClosed || isKnown || this.#waiting.size >= MAX_WAITING) return
    this.#waiting.add(id)
    // What cannot be stored now is noted again when it is read again.
    this.#work ??= this.#run()
      .catch(() => this.#waiting.clear())
      .finally(() => {
        this.#work = null
      })
  }

  /** No row is mended from now on. Resolves when the one under way is stored. */
  async drained(): Promise<void> {
    this.#isClosed = true
    this.#waiting.clear()
    await this.#work
  }

  async #run(): Promise<void> {
    for (;;) {
      // Whoever has read it goes on first.
      await turn()
      const [id] = this.#waiting
      if (id === undefined) return
      await this.#commits.commit((attempt) => this.#decide(id, attempt))
      this.#waiting.delete(id)
    }
  }

  async #decide(id: string, { run }: Attempt): Promise<Decided> {
    const database = this.#database
    const { settingsVersion } = await readView(database, run)
    const query: Query = { ...READ_ROW, values: [database.db, storedText(id)] }
    const [row] = await (run ?? ((read) => database.connections.read(read)))<[...DocRow]>(query)
    if (row === undefined) return { settingsVersion, write: null }
    const [version] = row
    const winner = provenWinner(id, row)
    if (winner !== null) return { settingsVersion, write: new MendedRow(id, version, winner) }
    if (this.#unproven.size >= MAX_UNPROVEN) this.#unproven.clear()
    this.#unproven.add(JSON.stringify([id, version]))
    return { settingsVersion, write: null }
  }
}

/** The winner that a damaged row had; null if the row is sound, or nothing proves it. */
function provenWinner(id: string, row: DocRow): Winner | null {
  const [, seq, , , leaves, checksum, attachments, body, content, , , counted] = row
  const isChecksum = ({ rev, deleted }: Winner, of: number) =>
    agrees(checksum, docRowChecksum(docSum(id, rev, deleted) + seq + of), true)
  const stored: Winner = { rev: textOf(row[2]), deleted: row[3] }
  if (content === null || isChecksum(stored, leaves)) return null
  const text = { body: textOf(body), attachments: countOf(attachments) }
  for (const winner of candidates(stored, row)) {
    // A leaf whose row is missing as well is not to be forgotten.
    const areCounted = leaves === counted || isChecksum(winner, counted)
    if (areCounted && contentSum(id, winner.rev, winner.deleted, text) === content) return winner
  }
  return null
}

/** NaN for a list that cannot be read. */
function countOf(attachments: string | null): number {
  try {
    return listedAttachments(attachments ?? '').length
  } catch {
    return Number.NaN
  }
}

/** What the row may have said: its ancestry, which is compared first, has the id of the revision, and may have its generation. */
function candidates(stored: Winner, row: DocRow): Winner[] {
  const ancestry = row[9]
  const both = (revs: readonly string[]) =>
    revs.flatMap((rev) => [stored.deleted, !stored.deleted].map((deleted) => ({ rev, deleted })))
  const found = both(revsOf(stored.rev, ancestry)).filter(
    ({ rev, deleted }) => ancestryChecksum(ancestry, rev, deleted) === row[10],
  )
  return found.length === 0 ? both([stored.rev]) : found
}

function revsOf(rev: string, ancestry: Uint8Array): string[] {
  const generation = /^[^-]{0,15}/.exec(rev)?.[0] ?? ''
  try {
    const ids = decodeAncestry(ancestry)
    return [rev, ...[generation, ids.length, ...neighbors(generation)].map((pos) => `${pos}-${ids[0]}`)]
  } catch {
    return [rev]
  }
}

/** A number with each of its digits replaced by each other one. */
function neighbors(digits: string): string[] {
  return [...digits].flatMap((_, at) =>
    [...'0123456789'].map((digit) => `${digits.slice(0, at)}${digit}${digits.slice(at + 1)}`),
  )
}

/** The statement that makes a row again. */
class MendedRow implements PlannedWrite {
  readonly writes = 1
  readonly updates = 1
  readonly settingsChanges = 0
  readonly #id: string
  readonly #version: number
  readonly #winner: Winner

  constructor(id: string, version: number, winner: Winner) {
    this.#id = id
    this.#version = version
    this.#winner = winner
  }

  query({ db, settingsVersion, opener, token, now }: WriteContext): Query {
    const { rev, deleted } = this.#winner
    return {
      name: 'mend_doc',
      text: `SELECT mend_doc(${firstValues(MEND_VALUES)})`,
      values: [
        db,
        settingsVersion,
        opener,
        token,
        now,
        storedText(this.#id),
        this.#version,
        storedText(rev),
        deleted,
        docSum(this.#id, rev, deleted),
      ],
    }
  }
}
