/**
 * Checkpoint documents: how far a replication has come, as both of its ends remember it. Pure. There are two shapes,
 * CouchDB's and PouchDB's; both hold the sessions that wrote them, newest first. Sources: protocol.md 14.2;
 * Checkpointer of PouchDB 9; compare_replication_logs of CouchDB's couch_replicator.
 */
import { isJsonObject } from '../core/json.ts'
import { COUCH_ID_VERSION } from './replication-id.ts'

/** A position in the source's feed, as the source gave it. */
type Position = string | number

/** Where every feed begins. */
const BEGINNING: Position = 0

/** A session of PouchDB's. */
export interface PouchSession {
  readonly session_id: string
  readonly last_seq: Position
}

/** The members of PouchDB's document, beside `_id` and `_rev`. */
export interface PouchCheckpoint {
  readonly session_id: string
  readonly last_seq: Position
  readonly version: 1
  readonly replicator: string
  readonly history: readonly PouchSession[]
}

/** What a session of CouchDB's has counted (protocol.md 14.1). */
interface CouchStatistics {
  readonly missing_checked: number
  readonly missing_found: number
  readonly docs_read: number
  readonly docs_written: number
  readonly doc_write_failures: number
  readonly bulk_get_docs: number
  readonly bulk_get_attempts: number
}

/** A session of CouchDB's; older versions leave out some of the numbers, and nobody reads the times. */
interface CouchSession extends Partial<CouchStatistics> {
  readonly session_id: string
  /** How far the session had come for certain. */
  readonly recorded_seq: Position
  readonly start_last_seq?: Position
  readonly end_last_seq?: Position
  /** As in the Date header, RFC 1123. */
  readonly start_time?: string
  readonly end_time?: string
}

/** The members of CouchDB's document, beside `_id` and `_rev`. */
export interface CouchCheckpoint {
  readonly session_id: string
  readonly source_last_seq: Position
  readonly replication_id_version: number
  readonly history: readonly CouchSession[]
}

const POUCH_VERSION = 1
const POUCH_REPLICATOR = 'pouchdb'
const POUCH_SESSIONS = 5
const COUCH_SESSIONS = 50

/**
 * Reads a checkpoint document of PouchDB's.
 * @param doc anything: it comes from another's database
 * @returns null for what is none, also for the place-holder `{"last_seq":0}` that PouchDB writes to a source; the
 *   replication then begins at the beginning, which costs time but loses nothing. Sessions that make no sense are
 *   left out.
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
    history: history.filter(isPouchSession),
  }
}

/**
 * Reads a checkpoint document of CouchDB's; as {@link parsePouchCheckpoint}. Members of a session beyond those that
 * the resume rule needs are kept as they are.
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
    history: history.filter(isCouchSession),
  }
}

/**
 * What PouchDB writes when a session has come to a position.
 * @param before the end's own document, null where there is none yet
 * @returns the members of the new document, with at most 5 sessions; null when the position stands there already,
 *   so that nothing is to be written: idle syncs would otherwise write for ever (protocol.md 16.5)
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
 * What CouchDB writes when a session has come to a position; as {@link nextPouchCheckpoint}, with at most 50
 * sessions. The position is the session's `recorded_seq`.
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
 * Where a replication of PouchDB's goes on, from what its ends remember.
 * @returns the lower position of the newest session that both ends know, else the beginning
 */
export function pouchResume(source: PouchCheckpoint | null, target: PouchCheckpoint | null): Position {
  return source && target ? resume(pouchLog(source), pouchLog(target)) : BEGINNING
}

/** Where a replication of CouchDB's goes on; as {@link pouchResume}. */
export function couchResume(source: CouchCheckpoint | null, target: CouchCheckpoint | null): Position {
  return source && target ? resume(couchLog(source), couchLog(target)) : BEGINNING
}

/** A session and how far it had come. */
type Entry = readonly [session: string, position: Position]

/** What the two shapes have in common; the first entry is what the document's own members say. */
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
 * CouchDB and PouchDB take the position that one of the ends recorded. They differ where a session's last write
 * reached one end only, or one end was brought back from a copy while a long session ran: then only what both
 * have recorded is certain.
 */
function resume(source: Log, target: Log): Position {
  const session = newestCommon(source, target)
  const [atSource, atTarget] = [source, target].map((log) => log.find(([id]) => id === session)?.[1])
  return atSource === undefined || atTarget === undefined ? BEGINNING : lower(atSource, atTarget)
}

/** compare_rep_history: both histories are walked at the same pace, the source's entry is looked at first. */
function newestCommon(source: Log, target: Log): string | undefined {
  for (let step = 0; step < Math.min(source.length, target.length); step++) {
    const here = source[step]?.[0]
    if (target.slice(step).some(([id]) => id === here)) return here
    const there = target[step]?.[0]
    if (source.slice(step + 1).some(([id]) => id === there)) return there
  }
  return undefined
}

/** Tokens are compared by the number that they begin with (clients.md R2); where one has none, the source's counts. */
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
