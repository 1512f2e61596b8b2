/**
 * The replications that documents of `_replicator` ask for; protocol.md 14.3. A document starts a job, a change of it ends
 * the job and starts another, and the end of a job is written into the document (couch_replicator_doc_processor).
 */
import { Limiter } from '../../core/concurrency.ts'
import { CouchError } from '../../core/errors.ts'
import { Yielder } from '../../core/event-loop.ts'
import { holdsReplications } from '../../core/ids.ts'
import type { ReplicatorDocument } from '../jobs/job.ts'
import { ownerOfDocument, type RightsSources } from '../jobs/job-rights.ts'
import type { Jobs, JobsOptions } from '../jobs/jobs.ts'
import { type DocumentRequest, readDocumentRequest, stateOf } from '../requests/replication-document.ts'
import { type ReplicationEndpoint, replicationDefaults } from '../requests/replication-request.ts'
import { DocumentReplication } from './document-replication.ts'
import { type WrittenState, writeState } from './document-states.ts'
import { type DocumentMembers, ReplicatorFeed } from './replicator-feed.ts'
import type { SealingKey } from './sealing-key.ts'

export interface DocumentReplicationsOptions extends JobsOptions, RightsSources {
  /** Of the credentials in documents. */
  readonly sealingKey: Pick<SealingKey, 'value'>
}

/** Documents that have not ended. The others wait until some of these have. */
const MAX_LIVE = 10_000
/** Documents that start at once: those that ask their sources for a filter, and others. */
const ASKING_STARTS = 8
const QUICK_STARTS = 16

export class DocumentReplications {
  readonly #options: DocumentReplicationsOptions
  readonly #jobs: Jobs
  readonly #feed: ReplicatorFeed
  readonly #live = new Map<string, Map<string, DocumentReplication>>()
  readonly #starts = {
    asking: new Limiter(ASKING_STARTS, MAX_LIVE),
    quick: new Limiter(QUICK_STARTS, MAX_LIVE),
  }
  readonly #yielder = new Yielder()
  /** Resolves when those of databases that are gone are dropped; in steps, since there may be thousands. */
  #dropping: Promise<void> = Promise.resolve()
  #count = 0
  #isOverfull = false

  constructor(jobs: Jobs, options: DocumentReplicationsOptions) {
    this.#jobs = jobs
    this.#options = options
    const { databases, logger } = options
    this.#feed = new ReplicatorFeed({
      databases,
      onDocument: (database, id, doc) => this.#onDocument({ database, id }, doc),
      onGone: (database) => this.#onGone(database),
      onFault: (database, fault) =>
        logger.error({ err: fault, database }, 'could not read replications; it will be tried again'),
    })
  }

  /** The address of an endpoint for people, without credentials. */
  shownEndpoint(endpoint: ReplicationEndpoint): string {
    return this.#jobs.peers.shown(endpoint)
  }

  /** Starts all documents that have not ended. Idempotent. */
  start(): void {
    this.#feed.start()
  }

  /** Stops all of them, until the next {@link start}. Idempotent. */
  stop(): void {
    this.#feed.stop()
    for (const database of this.#live.keys()) this.#onGone(database)
  }

  /** The databases of such documents, in byte order. */
  async databases(): Promise<readonly string[]> {
    const found: string[] = []
    for await (const name of this.#options.databases.allNames()) if (holdsReplications(name)) found.push(name)
    return found
  }

  /** @returns undefined for a document that has ended, or asks for nothing */
  find({ database, id }: ReplicatorDocument): DocumentReplication | undefined {
    return this.#live.get(database)?.get(id)
  }

  async close(): Promise<void> {
    this.stop()
    await this.#dropping
    await this.#feed.close()
  }

  /** @returns when the document says so, if it is not started. Never rejects */
  async #onDocument(place: ReplicatorDocument, doc: DocumentMembers | null): Promise<void> {
    const known = this.find(place)
    const state = doc === null ? 'completed' : stateOf(doc)
    if (doc === null || state === 'completed' || state === 'failed') {
      this.#forget(place, known)
      return
    }
    const wanted = this.#read(doc)
    if (wanted instanceof CouchError) {
      this.#forget(place, known)
      const { _rev: rev } = doc
      const failed = { state: 'failed', reason: wanted.message } as const
      return this.#tryToWrite(place, failed, (now) => now._rev === rev)
    }
    if (known?.wanted.fingerprint === wanted.fingerprint) return
    this.#forget(place, known)
    this.#add(place, wanted)
    if (state !== null && !this.#writesAll) {
      const isSame = this.#isSame(wanted)
      // Its end may have been written meanwhile.
      await this.#tryToWrite(place, { state: null }, (now) => stateOf(now) === state && isSame(now))
    }
  }

  #read(doc: DocumentMembers): DocumentRequest | CouchError {
    const { config, sealingKey } = this.#options
    try {
      return readDocumentRequest(doc, sealingKey.value, replicationDefaults(config))
    } catch (error) {
      if (error instanceof CouchError) return error
      throw error
    }
  }

  #isSame(wanted: DocumentRequest): (doc: DocumentMembers) => boolean {
    return (doc) => {
      const found = this.#read(doc)
      return !(found instanceof CouchError) && found.fingerprint === wanted.fingerprint
    }
  }

  #add(place: ReplicatorDocument, wanted: DocumentRequest): void {
    if (this.#count >= MAX_LIVE) {
      if (!this.#isOverfull)
        this.#options.logger.warn({ most: MAX_LIVE }, 'too many replications: the rest waits')
      this.#isOverfull = true
      return
    }
    const entry: DocumentReplication = new DocumentReplication({
      place,
      wanted,
      owner: ownerOfDocument(this.#options, wanted.owner, wanted.userCtx),
      jobs: this.#jobs,
      writesAll: () => this.#writesAll,
      inTurn: (kind, work) =>
        this.#starts[kind].run(async () => {
          await this.#yielder.yieldIfDue()
          return work()
        }, wanted.owner ?? ''),
      write: (state) => this.#write(place, state, this.#isSame(wanted)),
      onOver: () => {
        if (this.find(place) === entry) this.#remove(place)
      },
      onFault: (fault) => this.#onFault(place, fault),
    })
    const entries = this.#live.get(place.database) ?? new Map<string, DocumentReplication>()
    this.#live.set(place.database, entries.set(place.id, entry))
    this.#count += 1
  }

  #forget(place: ReplicatorDocument, entry: DocumentReplication | undefined): void {
    if (entry === undefined) return
    entry.drop()
    this.#remove(place)
  }

  #remove({ database, id }: ReplicatorDocument): void {
    if (!this.#live.get(database)?.delete(id)) return
    this.#count -= 1
    if (!this.#isOverfull || this.#count > MAX_LIVE * 0.9) return
    this.#isOverfull = false
    this.#feed.again()
  }

  #onGone(database: string): void {
    const entries = this.#live.get(database)
    this.#live.delete(database)
    this.#count -= entries?.size ?? 0
    if (entries !== undefined) this.#dropping = this.#dropping.then(() => dropAll(entries.values()))
  }

  get #writesAll(): boolean {
    return this.#options.config.boolean('replicator', 'update_docs')
  }

  #write(
    place: ReplicatorDocument,
    state: WrittenState,
    isSame: (doc: DocumentMembers) => boolean,
  ): Promise<void> {
    return writeState(this.#options.databases, place, state, isSame)
  }

  async #tryToWrite(
    place: ReplicatorDocument,
    state: WrittenState,
    isSame: (doc: DocumentMembers) => boolean,
  ): Promise<void> {
    await this.#write(place, state, isSame).catch((fault: unknown) => this.#onFault(place, fault))
  }

  #onFault({ database, id }: ReplicatorDocument, fault: unknown): void {
    this.#options.logger.warn(
      { err: fault, database, document: id },
      'a replication document could not be started or written',
    )
  }
}

async function dropAll(entries: Iterable<DocumentReplication>): Promise<void> {
  const yielder = new Yielder()
  for (const entry of entries) {
    entry.drop()
    await yielder.yieldIfDue()
  }
}
