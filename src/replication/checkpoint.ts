/**
 * Checkpoint documents: the progress of a replication, stored at both of its ends. Pure. CouchDB and PouchDB each have a
 * format; both list the sessions that wrote them, newest first. Sources: protocol.md 14.2;
 * Checkpointer of PouchDB 9; compare_replication_logs of CouchDB's couch_replicator.
 */
import { isJsonObject } from '../core/json.ts'
import { COUCH_ID_VERSION } from './replication-id.ts'
import type { Position } from './requests/replication-request.ts'

/** The start of every feed. */
export const BEGINNING: Position = 0

/** Whether a position, maybe one that a user has named, is the start of a feed. */
export function isBeginning(position: Position): boolean {
  return position === BEGINNING || position === '0'
}

/** A PouchDB session. */
export interface PouchSession {
  readonly session_id: string
  readonly last_seq: Position
}

/** The members of PouchDB's document, without `_id` and `_rev`. */
export interface PouchCheckpoint {
  readonly session_id: string
  readonly last_seq: Position
  readonly version: 1
  readonly replicator: string
  readonly history: readonly PouchSession[]
}

/** The statistics of a CouchDB session (protocol.md 14.1). */
export interface CouchStatistics {
  readonly missing_checked: number
  readonly missing_found: number
  readonly docs_read: number
  readonly docs_written: number
  readonly doc_write_failures: number
  readonly bulk_get_docs: number
  readonly bulk_get_attempts: number
}

/** A CouchDB session. Older versions omit some of the numbers; nothing reads the times. */
export interface CouchSession extends Partial<CouchStatistics> {
  readonly session_id: string
  /** The sequence that the session has certainly reached. */
  readonly recorded_seq: Position
  readonly start_last_seq?: Position
  readonly end_last_seq?: Position
  /** As in the Date header, RFC 1123. */
  readonly start_time?: string
  readonly end_time?: string
}

/** The members of CouchDB's document, without `_id` and `_rev`. */
export interface CouchCheckpoint {
  readonly session_id: string
  readonly source_last_seq: Position
  readonly replication_id_version: number
  readonly history: readonly CouchSession[]
}

const POUCH_VERSION = 1
const POUCH_REPLICATOR = 'pouchdb'
const POUCH_SESSIONS = 5
/** Nobody writes more. Histories are compared entry by entry, so that of a longer one only the newest count. */
const COUCH_SESSIONS = 50

/**
 * Parses a checkpoint document of PouchDB.
 * @param doc any JSON, since it comes from another database
 * @returns the checkpoint without invalid sessions; null for anything else, also for the placeholder `{"last_seq":0}`
 *   that PouchDB writes to a source. Without a checkpoint a replication starts from 0, which takes time but loses
 *   nothing.
 */
export function parsePouchCheckpoint(doc: unknown): PouchCheckpoint | null {
  if (!isJsonObject(doc) || doc.version !== POUCH_VERSION) return null
  const { session_id, last_seq, replicator, history } = doc
  if (!isText(session_id) || !isPosition(last_seq) || !Array.isArray(history)) return null
  return {
    session_id,
    last_seq,
    version: POUCH_VERSION,
    replicator: isText(replicator) ? replicator : POUCH_REPLICATOR,
    history: history.slice(0, COUCH_SESSIONS).filter(isPouchSession),
  }
}

/**
 * Parses a checkpoint document of CouchDB; see {@link parsePouchCheckpoint}. Members of a session that the resume rule
 * does not need are kept unchanged.
 */
export function parseCouchCheckpoint(doc: unknown): CouchCheckpoint | null {
  if (!isJsonObject(doc)) return null
  const { session_id, source_last_seq, replication_id_version, history } = doc
  if (!isText(session_id) || !isPosition(source_last_seq) || !Array.isArray(history)) return null
  return {
    session_id,
    source_last_seq,
    replication_id_version:
      typeof replication_id_version === 'number' ? replication_id_version : COUCH_ID_VERSION,
    history: history.slice(0, COUCH_SESSIONS).filter(isCouchSession),
  }
}

/**
 * The checkpoint that PouchDB writes when a session reaches a sequence.
 * @param before the current document of the same end; null if there is none
 * @returns the members of the new document, with at most 5 sessions; null if it already has this sequence. Otherwise
 *   idle syncs would write for ever (protocol.md 16.5).
 */
export function nextPouchCheckpoint(
  before: PouchCheckpoint | null,
  session: PouchSession,
): PouchCheckpoint | null {
  if (before?.last_seq === session.last_seq) return null
  return {
    session_id: session.session_id,
    last_seq: session.last_seq,
    version: POUCH_VERSION,
    replicator: POUCH_REPLICATOR,
    history: withSession(before?.history ?? [], session, POUCH_SESSIONS),
  }
}

/**
 * The checkpoint that CouchDB writes when a session reaches a sequence, its `recorded_seq`; see
 * {@link nextPouchCheckpoint}. It has at most 50 sessions.
 */
export function nextCouchCheckpoint(
  before: CouchCheckpoint | null,
  session: CouchSession,
): CouchCheckpoint | null {
  if (before?.source_last_seq === session.recorded_seq) return null
  return {
    session_id: session.session_id,
    source_last_seq: session.recorded_seq,
    replication_id_version: COUCH_ID_VERSION,
    history: withSession(before?.history ?? [], session, COUCH_SESSIONS),
  }
}

function withSession<S extends { readonly session_id: string }>(
  history: readonly S[],
  session: S,
  most: number,
): S[] {
  const others = history.filter(({ session_id }) => session_id !== session.session_id)
  return [session, ...others].slice(0, most)
}

/**
 * The sequence from which PouchDB resumes a replication.
 * @returns the lower sequence of the newest session that both ends have; the start of the feed if there is none
 */
export function pouchResume(source: PouchCheckpoint | null, target: PouchCheckpoint | null): Position {
  return source && target ? resume(pouchLog(source), pouchLog(target)) : BEGINNING
}

/** The sequence from which CouchDB resumes a replication; see {@link pouchResume}. */
export function couchResume(source: CouchCheckpoint | null, target: CouchCheckpoint | null): Position {
  return source && target ? resume(couchLog(source), couchLog(target)) : BEGINNING
}

/** A session and the sequence that it reached. */
type Entry = readonly [session: string, position: Position]

/** The common form of both formats; the first entry is from the members of the document itself. */
type Log = readonly Entry[]

function pouchLog({ session_id, last_seq, history }: PouchCheckpoint): Log {
  return [[session_id, last_seq], ...history.map((past): Entry => [past.session_id, past.last_seq])]
}

function couchLog({ session_id, source_last_seq, history }: CouchCheckpoint): Log {
  return [
    [session_id, source_last_seq],
    ...history.map((past): Entry => [past.session_id, past.recorded_seq]),
  ]
}

/**
 * CouchDB and PouchDB use the sequence of one end. The two ends differ if the last write of a session reached only one of
 * them, or if one was restored from a copy during a long session. Then only the lower sequence is certain.
 */
function resume(source: Log, target: Log): Position {
  const session = newestCommon(source, target)
  const [atSource, atTarget] = [source, target].map((log) => log.find(([id]) => id === session)?.[1])
  return atSource === undefined || atTarget === undefined ? BEGINNING : lower(atSource, atTarget)
}

/** compare_rep_history: walks both histories in step, the source's entry first. */
function newestCommon(source: Log, target: Log): string | undefined {
  for (let step = 0; step < Math.min(source.length, target.length); step++) {
    const here = source[step]?.[0]
    if (target.slice(step).some(([id]) => id === here)) return here
    const there = target[step]?.[0]
    if (source.slice(step + 1).some(([id]) => id === there)) return there
  }
  return undefined
}

/** Compares tokens by their leading number (clients.md R2). If one has no number, the source's is used. */
function lower(atSource: Position, atTarget: Position): Position {
  const [ours, theirs] = [atSource, atTarget].map((position) => Number.parseInt(String(position), 10))
  return (theirs ?? Number.NaN) < (ours ?? Number.NaN) ? atTarget : atSource
}

function isText(value: unknown): value is string {
  return typeof value === 'string' && value !== ''
}

function isPosition(value: unknown): value is Position {
  return typeof value === 'number' ? Number.isSafeInteger(value) && value >= 0 : isText(value)
}

function isPouchSession(value: unknown): value is PouchSession {
  return isJsonObject(value) && isText(value.session_id) && isPosition(value.last_seq)
}

function isCouchSession(value: unknown): value is CouchSession {
  return isJsonObject(value) && isText(value.session_id) && isPosition(value.recorded_seq)
}

/** The most characters of a sequence. CouchDB's grow with its shards: 256 of them take about 10,000. */
const MAX_POSITION = 16 * 1024

/**
 * Reads a sequence from an answer.
 * @param value any JSON; BigCouch's sequences are arrays
 * @returns null if there is none, or one that is too long
 */
export function positionOf(value: unknown): Position | null {
  if (value === null || value === undefined) return null
  if (typeof value === 'number') return value
  const text = typeof value === 'string' ? value : JSON.stringify(value)
  return text.length <= MAX_POSITION ? text : null
}

/** The part of a sequence that grows, in every server's form; 0 if it has none. */
export function leadingNumber(position: Position): number {
  const number = Number.parseInt(String(position), 10)
  return Number.isNaN(number) ? 0 : number
}
