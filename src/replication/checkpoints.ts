/**
 * The checkpoints of one replication at both ends, in CouchDB's form and in PouchDB's, so that either goes on where settee
 * has stopped, and settee where they have; protocol.md 14.2.
 */
import {
  BEGINNING,
  type CouchCheckpoint,
  type CouchSession,
  type CouchStatistics,
  couchResume,
  isBeginning,
  nextCouchCheckpoint,
  nextPouchCheckpoint,
  type PouchCheckpoint,
  parseCouchCheckpoint,
  parsePouchCheckpoint,
  pouchResume,
} from './checkpoint.ts'
import type { Peer, PeerInfo } from './peer.ts'
import { PeerError } from './peer-error.ts'
import { pouchCheckpointId } from './replication-id.ts'
import type { Position, ReplicationOptions } from './requests/replication-request.ts'

interface CheckpointsOptions {
  readonly source: Peer
  readonly target: Peer
  /** Of CouchDB's form, with `_local/`. */
  readonly checkpointId: string
  readonly options: ReplicationOptions
  readonly signal: AbortSignal
  readonly sourceInfo: PeerInfo
  readonly targetInfo: PeerInfo
  /** Nothing is written to the source, not even a checkpoint: the target's alone says where to go on. */
  readonly isSourceReadOnly: boolean
}

/** How long a write of a checkpoint may take, in ms. It also happens when a replication is stopped. */
const RECORD_MS = 10_000

/** A run of a replication. */
interface Session {
  readonly sessionId: string
  readonly startedAt: Date
  readonly stats: CouchStatistics
}

/** A checkpoint document of one end. */
interface Stored<Checkpoint> {
  checkpoint: Checkpoint | null
  rev: string | undefined
}

interface End {
  readonly peer: Peer
  readonly role: 'source' | 'target'
  couch: Stored<CouchCheckpoint>
  pouch: Stored<PouchCheckpoint>
  /** The end gets no checkpoints: it refuses them, or it must not be written to. */
  isReadOnly: boolean
}

export class Checkpoints {
  readonly #options: CheckpointsOptions
  readonly #source: End
  readonly #target: End
  #pouchId: string | null = null
  #start: Position = BEGINNING
  #recorded: Position = BEGINNING
  #wasReset = false
  #recording: Promise<void> = Promise.resolve()

  constructor(options: CheckpointsOptions) {
    this.#options = options
    this.#source = endOf(options.source, 'source', options.isSourceReadOnly)
    this.#target = endOf(options.target, 'target', false)
  }

  /** The sequence of the last checkpoint. */
  get recorded(): Position {
    return this.#recorded
  }

  /** The target's checkpoint, as the answer of a finished replication. */
  get result(): object {
    const { checkpoint } = this.#target.couch
    const isNew = this.#wasReset || this.#recorded !== this.#start
    const [session] = checkpoint?.history ?? []
    return {
      ...(isNew
        ? (checkpoint ?? { source_last_seq: this.#recorded, history: [] })
        : { no_changes: true, ...checkpoint }),
      ...(this.#options.options.filter.docIds !== undefined && session && namedDocsResult(session)),
    }
  }

  /** Notes where the run begins. */
  begin(start: Position): void {
    this.#start = start
    this.#recorded = start
  }

  /** Reads both ends. @returns where to go on @throws PeerError */
  async read(): Promise<Position> {
    const { checkpointId, signal, target } = this.#options
    if (this.#source.isReadOnly) {
      this.#target.couch = storedOf(await target.readDocument(checkpointId, signal), parseCouchCheckpoint)
      return this.#target.couch.checkpoint?.source_last_seq ?? BEGINNING
    }
    this.#pouchId = await this.#readPouchId()
    for (const end of [this.#source, this.#target]) {
      end.couch = storedOf(await end.peer.readDocument(checkpointId, signal), parseCouchCheckpoint)
      if (this.#pouchId === null) continue
      end.pouch = storedOf(await end.peer.readDocument(this.#pouchId, signal), parsePouchCheckpoint)
    }
    const [from, to] = [this.#source, this.#target]
    const couch = couchResume(from.couch.checkpoint, to.couch.checkpoint)
    const pouch = pouchResume(from.pouch.checkpoint, to.pouch.checkpoint)
    // Both are certain, so the later one counts.
    return higher(couch, pouch)
  }

  /** @returns null: the replication has no checkpoints of PouchDB @throws PeerError */
  async #readPouchId(): Promise<string | null> {
    const { source, target, options, signal } = this.#options
    // PouchDB's id says nothing about this option, so PouchDB would take the conflicts for copied.
    if (options.isWinningRevsOnly) return null
    try {
      const ids = await Promise.all([source.pouchId(signal), target.pouchId(signal)])
      return pouchIdOf(ids, options)
    } catch (error) {
      // Not every proxy lets the root of a server through.
      if (error instanceof PeerError && !error.isTemporary) return null
      throw error
    }
  }

  /**
   * Writes checkpoints, unless the sequence has one. One at a time.
   * @throws PeerError, also if a database was deleted and made again
   */
  record(seq: Position, session: Session): Promise<void> {
    return this.#inOrder(async () => {
      // What only PouchDB has recorded gets a checkpoint of CouchDB's form, too, which is the answer.
      const isAnswer = isBeginning(seq) || this.#target.couch.checkpoint !== null
      if (seq === this.#recorded && isAnswer) return
      await this.#commit()
      await this.#recordAtBoth(seq, session)
    })
  }

  /**
   * Records that the replication begins again, so that no later run relies on the sequences so far. Earlier sessions are
   * dropped: if only one end has received the record, the ends have no session in common.
   * @throws PeerError
   */
  reset(session: Session): Promise<void> {
    return this.#inOrder(async () => {
      this.#wasReset = true
      this.#start = BEGINNING
      for (const end of [this.#source, this.#target]) {
        end.couch.checkpoint = null
        end.pouch.checkpoint = null
      }
      await this.#recordAtBoth(BEGINNING, session)
    })
  }

  #inOrder(work: () => Promise<void>): Promise<void> {
    this.#recording = this.#recording.catch(() => undefined).then(work)
    return this.#recording
  }

  async #recordAtBoth(seq: Position, session: Session): Promise<void> {
    for (const end of [this.#source, this.#target]) {
      if (end.isReadOnly) continue
      try {
        await this.#recordAt(end, seq, session)
      } catch (error) {
        // PouchDB too goes on with a source that it may only read.
        if (!isRefusal(error) || end.role === 'target') throw error
        end.isReadOnly = true
      }
    }
    this.#recorded = seq
  }

  /** Makes everything durable, and checks that the databases are still the same. */
  async #commit(): Promise<void> {
    const { sourceInfo, targetInfo } = this.#options
    const ends = [
      [this.#source, sourceInfo],
      [this.#target, targetInfo],
    ] as const
    for (const [{ peer, role, isReadOnly }, { instanceStartTime }] of ends) {
      const signal = AbortSignal.timeout(RECORD_MS)
      const now = isReadOnly ? (await peer.info(signal)).instanceStartTime : await peer.commit(signal)
      // CouchDB before 3.3 always says 0.
      if (now === instanceStartTime || now === '0' || instanceStartTime === '0') continue
      const reason = `instance_start_time on ${role} database has changed since last checkpoint.`
      throw new PeerError('changed_database', reason)
    }
  }

  async #recordAt(end: End, seq: Position, { sessionId, startedAt, stats }: Session): Promise<void> {
    const couch = nextCouchCheckpoint(end.couch.checkpoint, {
      session_id: sessionId,
      start_time: startedAt.toUTCString(),
      end_time: new Date().toUTCString(),
      start_last_seq: this.#start,
      end_last_seq: seq,
      recorded_seq: seq,
      ...stats,
    })
    if (couch !== null) end.couch = await this.#write(end, this.#options.checkpointId, couch, end.couch.rev)
    const pouch = nextPouchCheckpoint(end.pouch.checkpoint, { session_id: sessionId, last_seq: seq })
    if (this.#pouchId === null || pouch === null) return
    end.pouch = await this.#write(end, this.#pouchId, pouch, end.pouch.rev)
  }

  async #write<Checkpoint extends object>(
    { peer }: End,
    id: string,
    checkpoint: Checkpoint,
    rev: string | undefined,
  ): Promise<Stored<Checkpoint>> {
    const signal = AbortSignal.timeout(RECORD_MS)
    const doc = { _id: id, ...(rev !== undefined && { _rev: rev }), ...checkpoint }
    try {
      return { checkpoint, rev: await peer.writeLocal(id, doc, signal) }
    } catch (error) {
      if (!(error instanceof PeerError && error.fault === 'conflict')) throw error
      // An earlier try may have succeeded without an answer, or another replicator has the same id.
      const { rev: current } = storedOf(await peer.readDocument(id, signal), () => null)
      const again = { ...doc, ...(current !== undefined && { _rev: current }) }
      return { checkpoint, rev: await peer.writeLocal(id, again, signal) }
    }
  }
}

/** Compares tokens by their leading number (clients.md R2). */
function higher(a: Position, b: Position): Position {
  return Number.parseInt(String(b), 10) > Number.parseInt(String(a), 10) ? b : a
}

function endOf(peer: Peer, role: End['role'], isReadOnly: boolean): End {
  const none = { checkpoint: null, rev: undefined }
  return { peer, role, couch: { ...none }, pouch: { ...none }, isReadOnly }
}

function isRefusal(error: unknown): boolean {
  return error instanceof PeerError && (error.fault === 'forbidden' || error.fault === 'unauthorized')
}

function storedOf<Checkpoint>(doc: unknown, parse: (doc: unknown) => Checkpoint | null): Stored<Checkpoint> {
  const rev = (doc as { _rev?: unknown } | null)?._rev
  return { checkpoint: parse(doc), rev: typeof rev === 'string' ? rev : undefined }
}

function pouchIdOf([sourceId, targetId]: readonly [string, string], options: ReplicationOptions): string {
  const { docIds, selector, filter, queryParams } = options.filter
  return pouchCheckpointId({
    sourceId,
    targetId,
    ...(docIds && { docIds }),
    ...(selector && { selector }),
    ...(filter !== undefined && { filter, queryParams: queryParams ?? {} }),
    ...(typeof queryParams?.view === 'string' && { view: queryParams.view }),
  })
}

/** What CouchDB repeats of the newest session for a replication of named documents (couch_replicator_scheduler_job). */
function namedDocsResult(session: CouchSession): object {
  const { start_time, end_time, docs_read, docs_written, doc_write_failures } = session
  return { start_time, end_time, docs_read, docs_written, doc_write_failures }
}
