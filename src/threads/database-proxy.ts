/** A database as the HTTP thread calls it: what it answers by itself, and the events of the database's thread. */
import { type ChangesRequest, plainPage } from '../changes/page.ts'
import type { Limits, SecurityObject } from '../core/types.ts'
import { bulkGet } from '../documents/bulk-get.ts'
import type { Body, DocumentReader, OpenOptions } from '../documents/database.ts'
import { openDocument } from '../documents/open.ts'
import { documentReader } from '../documents/partition-calls.ts'
import { missingRevsAnswer, revsDiff } from '../documents/revs-diff.ts'
import type { DatabaseEntry } from '../storage/catalog.ts'
import type { LiveReader } from '../storage/storage-engine.ts'
import { FOREIGN_EVENT_MS } from '../storage/store-events.ts'
import type { DatabaseEvent, DatabaseHandle, TextMethod } from './databases.ts'
import { ForwardedDatabase } from './forwarded-database.ts'
import { answerOf, type InPlaceReads } from './in-place-reads.ts'
import { shortBytesAsTexts } from './message-bytes.ts'
import { type Chunks, type SharedAnswers, SharedReader, sharedBodyText } from './shared-answers.ts'
import type { Thread } from './thread.ts'
import type { ServedDatabase } from './thread-protocol.ts'

type Args<M extends keyof ServedDatabase> = Parameters<ServedDatabase[M]>

type Listener = (event: DatabaseEvent) => void

/** What answers on this thread, for all databases. */
export interface AnswersHere {
  readonly answers: SharedAnswers
  readonly reads: InPlaceReads
  limits(): Limits
  /** Whether each member of a database may read each of its documents. */
  isPlain(name: string): boolean
}

/** The longest body of a request that is answered on this thread, in bytes: it names about 200 documents. */
const MAX_BODY_BYTES = 8 * 1024
/** The longest token of a feed, in characters: one of this server is shorter. */
const MAX_SINCE = 100
/** The longest answer of a `_bulk_get`, in bytes. */
const MAX_ANSWER_BYTES = 1024 * 1024

export class DatabaseProxy extends ForwardedDatabase implements DatabaseHandle {
  readonly #listeners = new Set<Listener>()
  #securityCopy: SecurityObject | null | Promise<SecurityObject | null> | undefined
  /** When the copy was asked for, in ms of `performance.now`. */
  #copiedAt = 0
  /** Where other nodes write: releases the store, which stays open while anybody listens. */
  #held: Promise<(() => void) | undefined> | undefined
  readonly #here: AnswersHere | null
  /** Counts changes, since an answer is shared only while nothing has changed. */
  #state = 0

  /**
   * @param owner the thread that owns the database at the time of a call
   * @param here null where other nodes write, whose commits are told later than they can be read
   */
  constructor(entry: DatabaseEntry, owner: () => Thread, here: AnswersHere | null) {
    super(entry, owner)
    this.#here = here
  }

  /** Whether other nodes write to the database. */
  get #isShared(): boolean {
    return this.#here === null
  }

  get name(): string {
    return this.entry.name
  }

  get incarnation(): number {
    return this.entry.incarnation
  }

  purge(...args: Args<'purge'>): ReturnType<DatabaseHandle['purge']> {
    return this.forward('purge', args).finally(() => {
      this.#state += 1
    })
  }

  open(...args: Args<'open'>): ReturnType<DatabaseHandle['open']> {
    const [user, id, options] = args
    const reader = isOfWinner(options) ? this.#reader() : null
    return this.#read('open', args, reader && openDocument(reader, user, id, options))
  }

  bulkGet(...args: Args<'bulkGet'>) {
    const [user, body, options] = args
    const here = this.#here
    const text = here === null || options.attachments ? null : sharedBodyText(body)
    if (here === null || text === null) return this.forwardStream('bulkGet', args)
    const ask = () => this.#bulkGet(here, args)
    const { name, roles } = user
    const key = [this.incarnation, this.#state, name, roles, options]
    return here.answers.read(JSON.stringify(key) + text, ask)
  }

  #bulkGet({ limits }: AnswersHere, args: Args<'bulkGet'>): Chunks {
    const stream = () => this.forwardStream('bulkGet', args)
    const [user, body, options] = args
    const reader = this.#reader()
    if (reader === null) return stream()
    const answer = answerOf(whole(bulkGet(reader, user, body, options, limits())))
    answer.catch(() => undefined)
    return new SharedReader(answer, stream)
  }

  revsDiff(...args: Args<'revsDiff'>): ReturnType<DatabaseHandle['revsDiff']> {
    const [user, body] = args
    const reader = isShort(body) ? this.#reader() : null
    return this.#read('revsDiff', args, reader && revsDiff(reader, user, body))
  }

  missingRevs(...args: Args<'missingRevs'>): ReturnType<DatabaseHandle['missingRevs']> {
    const [user, body] = args
    const reader = isShort(body) ? this.#reader() : null
    return this.#read('missingRevs', args, reader && missingRevsAnswer(reader, user, body))
  }

  async changes(...args: Args<'changes'>): ReturnType<DatabaseHandle['changes']> {
    const [user, request] = args
    const reader = isPlainFeed(request) ? this.#liveReader() : null
    const page = reader && (await answerOf(plainPage(reader, user, request)))
    return page ?? this.forward('changes', args)
  }

  /** The database on this thread; null: its own thread is asked. */
  #liveReader(): LiveReader | null {
    if (this.#here === null || this.isRetired || !this.#here.isPlain(this.name)) return null
    return this.#here.reads.readerOf(this.entry)
  }

  #reader(): DocumentReader | null {
    const reader = this.#liveReader()
    return reader && documentReader(reader)
  }

  /** @param reading an answer of this thread; null: there is none. The database's thread is asked for what it cannot read */
  async #read<M extends TextMethod>(
    method: M,
    args: Args<M>,
    reading: ReturnType<ServedDatabase[M]> | null,
  ): Promise<Awaited<ReturnType<DatabaseHandle[M]>>> {
    const answer = reading && (await answerOf<unknown>(reading))
    const given = answer === null ? await this.forward(method, args) : shortBytesAsTexts(answer)
    return given as Awaited<ReturnType<DatabaseHandle[M]>>
  }

  securityCopy(): SecurityObject | null | Promise<SecurityObject | null> {
    // A closed store tells nothing of other nodes.
    if (this.#isShared && performance.now() - this.#copiedAt > FOREIGN_EVENT_MS)
      this.#securityCopy = undefined
    if (this.#securityCopy !== undefined) return this.#securityCopy
    this.#copiedAt = performance.now()
    const reading = this.security()
    const note = (security: SecurityObject | null | undefined) => {
      if (this.#securityCopy === reading) this.#securityCopy = security
    }
    reading.then(note, () => note(undefined))
    this.#securityCopy = reading
    return reading
  }

  watch(listener: Listener): () => void {
    this.#listeners.add(listener)
    if (this.#isShared) this.#hold()
    return () => {
      this.#listeners.delete(listener)
      if (this.#listeners.size === 0) this.#endHold()
    }
  }

  /** Keeps the store open while anybody listens: it tells of other nodes' changes only then. */
  #hold(): void {
    if (this.#held !== undefined || this.isRetired) return
    const held = this.#askToHold().catch(() => {
      // The next call to the database reports the error.
      if (this.#held !== held) return undefined
      this.#held = undefined
      setTimeout(() => {
        if (this.#listeners.size > 0) this.#hold()
      }, FOREIGN_EVENT_MS).unref()
      return undefined
    })
    this.#held = held
  }

  async #askToHold(): Promise<() => void> {
    return this.thread().hold(this.entry)
  }

  #endHold(): void {
    void this.#held?.then((release) => release?.())
    this.#held = undefined
  }

  /** Sends an event to all listeners. A thread sends the event of a write before the write's answer. */
  emit(event: DatabaseEvent): void {
    this.#state += 1
    if (event.type === 'secured') this.#securityCopy = event.security
    // After a thread's death its last event may have been lost.
    if (event.type === 'closed') this.#securityCopy = undefined
    for (const listener of this.#listeners) listener(event)
    if (event.type !== 'closed' || !this.#isShared) return
    this.#endHold()
    if (this.#listeners.size > 0) this.#hold()
  }

  /** From now on, calls fail with no_database, because the database is removed. Emit `closed` as well. */
  retire(): void {
    this.isRetired = true
    this.#here?.reads.close(this.entry)
  }
}

/** Whether no other revision than the winner is read, and no content of an attachment. */
function isOfWinner({ rev, latest, revsInfo, attachments, attsSince }: OpenOptions): boolean {
  return rev === undefined && !latest && !revsInfo && !attachments && attsSince === undefined
}

/** Whether a page has each document's row, and no bodies: while many clients ask, reading those would hold up all others. */
function isPlainFeed({ since, options }: ChangesRequest): boolean {
  const { filter, docIds, includeDocs, descending } = options
  const isShort = typeof since === 'number' || since.length <= MAX_SINCE
  return isShort && filter === undefined && docIds === undefined && !includeDocs && !descending
}

function isShort(body: Body): boolean {
  return 'bytes' in body && body.bytes.length <= MAX_BODY_BYTES
}

/** All of an answer; null if it is long. */
async function whole(chunks: AsyncIterable<Uint8Array>): Promise<Uint8Array | null> {
  const read: Uint8Array[] = []
  let length = 0
  for await (const chunk of chunks) {
    length += chunk.length
    if (length > MAX_ANSWER_BYTES) return null
    read.push(chunk)
  }
  return read.length === 1 ? (read[0] as Uint8Array) : Buffer.concat(read)
}
