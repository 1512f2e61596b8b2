/** Copies the revisions of one batch of changes: compare, fetch, write; protocol.md 16.1. */
import type { Limiter } from '../core/concurrency.ts'
import { persistenceOf } from '../core/errors.ts'
import { Yielder } from '../core/event-loop.ts'
import { isJsonObject, quoted } from '../core/json.ts'
import type { CouchStatistics } from './checkpoint.ts'
import type { Intake } from './intake.ts'
import { jsonParts, memberIn, NULL, parsed, partsIn, TOO_LONG } from './json-parts.ts'
import type { Peer } from './peer.ts'
import { PeerError } from './peer-error.ts'
import { attachedBytes, withRevision } from './revision-fetch.ts'

/** A row of the source's feed. */
export interface ChangedDocument {
  readonly id: string
  readonly revs: readonly string[]
}

export type Statistics = { -readonly [Name in keyof CouchStatistics]: number }

export function noStatistics(): Statistics {
  return {
    missing_checked: 0,
    missing_found: 0,
    docs_read: 0,
    docs_written: 0,
    doc_write_failures: 0,
    bulk_get_docs: 0,
    bulk_get_attempts: 0,
  }
}

export interface TransferEnds {
  readonly source: Peer
  readonly target: Peer
  /** Whether the source has `_bulk_get`; cleared when it has not. */
  usesBulkGet: boolean
  /** The turns of large revisions of all batches; see {@link Peer.largeFetches}. */
  readonly largeFetches: Limiter
  readonly intake: Intake
  readonly signal: AbortSignal
  /** Reports a revision that was not copied, for the log. */
  onRefused(id: string, reason: string): void
}

/** One try to copy a batch. */
interface Attempt {
  readonly ends: TransferEnds
  readonly stats: Statistics
  readonly isLastTry: boolean
}

interface MissingRevision {
  readonly id: string
  readonly rev: string
  readonly ancestors: readonly string[]
  /** Whether it is known to have more attachments than {@link LARGE}. */
  readonly isLarge?: boolean
}

/** The most leaves that a source may have instead of one revision, which is their ancestor. */
const MAX_LEAVES = 10_000
/** Revisions in one `_bulk_get`. */
const FETCH_REVISIONS = 200
/** A write is sent at this size, in bytes or documents. */
const WRITE_BYTES = 1024 * 1024
const WRITE_DOCS = 500
/** Revisions that one batch fetches one by one at once. */
const SINGLE_FETCHES = 4
/** From this many bytes of attachments on, one stream fills a connection, and several only take memory. */
const LARGE = 8 * 1024 * 1024
const RESULTS = new Set(['results'])
const DOCS = new Set(['docs'])

/**
 * Copies what the target lacks of some changes. A document that an end refuses for good is counted, and does not stop the
 * others; one that it may accept later fails the batch.
 * @param isLastTry counts what may be the fault of a single document
 * @returns what was done
 * @throws PeerError when anything but a single document is refused; the batch can be repeated then
 */
export async function transfer(
  changes: readonly ChangedDocument[],
  ends: TransferEnds,
  isLastTry: boolean,
): Promise<Statistics> {
  const attempt: Attempt = { ends, stats: noStatistics(), isLastTry }
  const missing: MissingRevision[] = []
  await inParts(
    changes.filter(({ revs }) => revs.length > 0),
    attempt,
    async (part) => missing.push(...(await missingRevisions(part, attempt))),
    ({ id }, error) => refuse(attempt, id, error.message),
  )
  const writer = new Writer(attempt)
  const single: MissingRevision[] = []
  for (let at = 0; at < missing.length; at += FETCH_REVISIONS) {
    const wanted = missing.slice(at, at + FETCH_REVISIONS)
    single.push(...(ends.usesBulkGet ? await fetchMany(wanted, attempt, writer) : wanted))
  }
  const fetch = (each: MissingRevision) => fetchOne(each, attempt, writer)
  const small = single.filter(({ isLarge }) => !isLarge).values()
  const large = single.filter(({ isLarge }) => isLarge).values()
  const workers = Array.from({ length: SINGLE_FETCHES }, () => eachOf(small, ends.signal, fetch))
  workers.push(eachOf(large, ends.signal, (each) => ends.largeFetches.run(() => fetch(each))))
  const results = await Promise.allSettled(workers)
  for (const result of results) if (result.status === 'rejected') throw result.reason
  await writer.flush()
  return attempt.stats
}

/** Sends items together, and those in halves that an end refuses together, so that one of them does not stop the others. */
async function inParts<Item>(
  items: readonly Item[],
  attempt: Attempt,
  send: (items: readonly Item[]) => Promise<unknown>,
  refused: (item: Item, error: PeerError) => void | Promise<void>,
): Promise<void> {
  const [first] = items
  if (first === undefined) return
  try {
    await send(items)
  } catch (error) {
    if (!(error instanceof PeerError && error.isAboutContent(attempt.isLastTry))) throw error
    if (items.length === 1) return refused(first, error)
    const half = items.length >> 1
    await inParts(items.slice(0, half), attempt, send, refused)
    await inParts(items.slice(half), attempt, send, refused)
  }
}

/** Counts a revision that is not copied. */
function refuse({ ends, stats }: Attempt, id: string, reason: string): void {
  stats.doc_write_failures += 1
  ends.onRefused(id, reason)
}

/** One of the workers that share a list. @throws what the work throws; what `signal` is aborted with */
async function eachOf<T>(
  shared: IterableIterator<T>,
  signal: AbortSignal,
  work: (each: T) => Promise<void>,
): Promise<void> {
  for (let next = shared.next(); !next.done; next = shared.next()) {
    signal.throwIfAborted()
    await work(next.value)
  }
}

async function missingRevisions(
  changes: readonly ChangedDocument[],
  { ends: { target, signal }, stats }: Attempt,
): Promise<MissingRevision[]> {
  const members = changes.map(({ id, revs }) => `${quoted(id)}:[${revs.map(quoted).join()}]`)
  const asked = changes.reduce((sum, { revs }) => sum + revs.length, 0)
  const missing: MissingRevision[] = []
  for await (const part of jsonParts(target.revsDiff(Buffer.from(`{${members.join()}}`), signal))) {
    const { member: id, bytes } = part
    if (id === null)
      throw new PeerError('invalid_answer', `${target.address}: _revs_diff answers with a list`)
    const found = parsed<unknown>(bytes)
    const { missing: revs, possible_ancestors } = isJsonObject(found) ? found : {}
    const ancestors = textsIn(possible_ancestors)
    for (const rev of textsIn(revs)) missing.push({ id, rev, ancestors })
    if (missing.length > asked)
      throw new PeerError('invalid_answer', `${target.address}: _revs_diff lacks more than was asked for`)
  }
  stats.missing_checked += asked
  stats.missing_found += missing.length
  return missing
}

function textsIn(list: unknown): readonly string[] {
  return Array.isArray(list) ? list.filter((each) => typeof each === 'string') : []
}

/** @returns the revisions that must be fetched one by one: those with attachments, and those that were not sent */
async function fetchMany(
  wanted: readonly MissingRevision[],
  { ends, stats }: Attempt,
  writer: Writer,
): Promise<readonly MissingRevision[]> {
  const rows = wanted.map(({ id, rev }) => `{"id":${quoted(id)},"rev":${quoted(rev)}}`)
  const answer = ends.source.bulkGet(Buffer.from(`{"docs":[${rows.join()}]}`), ends.signal)
  const open = new Map(wanted.map((each) => [keyOf(each.id, each.rev), each]))
  const single: MissingRevision[] = []
  let at = 0
  let read = 0
  try {
    const { maxDocument, maxRevision } = ends.intake
    const options = { lists: RESULTS, skipsAbove: maxDocument, maxPart: maxRevision }
    for await (const { member, bytes } of jsonParts(answer, options)) {
      if (member !== 'results') continue
      // Results come in the order of the request.
      const asked = wanted[at++]
      if (asked === undefined) break
      // Alone, each of its revisions may be short enough.
      if (bytes === TOO_LONG) continue
      const found = await revisionsIn(bytes)
      const key = keyOf(asked.id, asked.rev)
      const attached = found.map((doc) => doc.attached).filter((bytes) => bytes !== null)
      if (attached.some((bytes) => bytes > LARGE)) open.set(key, { ...asked, isLarge: true })
      if (found.length === 0 || attached.length > 0) continue
      open.delete(key)
      for (const doc of found) await writer.add(doc.json)
      read += 1
    }
  } catch (error) {
    if (!(error instanceof PeerError && error.fault === 'not_supported')) throw error
    ends.usesBulkGet = false
    return wanted
  }
  stats.bulk_get_attempts += wanted.length
  stats.bulk_get_docs += read
  stats.docs_read += read
  single.push(...open.values())
  return single
}

interface FoundRevision {
  readonly json: Uint8Array
  /** See {@link attachedBytes}. */
  readonly attached: number | null
}

/** The revisions in a result of `_bulk_get`. @throws PeerError */
async function revisionsIn(result: Buffer): Promise<readonly FoundRevision[]> {
  const found: FoundRevision[] = []
  let docs = 0
  for await (const { member, bytes } of partsIn(result, { lists: DOCS })) {
    if (member !== 'docs') continue
    docs += 1
    if (docs > MAX_LEAVES)
      throw new PeerError('invalid_answer', 'a result of _bulk_get has too many documents')
    for await (const { member, bytes: json } of partsIn(bytes)) {
      if (member === 'ok') found.push({ json, attached: await attachedBytes(json) })
    }
  }
  return found
}

function keyOf(id: string, rev: string): string {
  return `${rev} ${id}`
}

async function fetchOne(wanted: MissingRevision, attempt: Attempt, writer: Writer): Promise<void> {
  const { ends, stats, isLastTry } = attempt
  const { source, target, intake, signal } = ends
  const refused = (reason: string) => refuse(attempt, wanted.id, reason)
  try {
    await withRevision(source, wanted, intake, signal, async (found) => {
      if (found.type === 'missing') return refused('the source lists the revision, but does not have it')
      stats.docs_read += 1
      if (found.type === 'json') return writer.add(found.json)
      await target.putRevision(wanted.id, found.revision, signal)
      stats.docs_written += 1
    })
  } catch (error) {
    if (!(error instanceof PeerError)) throw error
    // The target's own attachments differ from those of the ancestor, so it needs all of them.
    if (error.fault === 'conflict' && wanted.ancestors.length > 0) {
      return fetchOne({ ...wanted, ancestors: [] }, attempt, writer)
    }
    const isFinal = !error.isTemporary || error.isAboutContent(isLastTry)
    if (!isFinal || error.fault === 'db_not_found') throw error
    refused(error.message)
  }
}

/** Collects documents and writes them in groups. One group is written while the next is collected. */
class Writer {
  readonly #attempt: Attempt
  #docs: Uint8Array[] = []
  #bytes = 0
  #writing: Promise<void> = Promise.resolve()

  constructor(attempt: Attempt) {
    this.#attempt = attempt
  }

  async add(doc: Uint8Array): Promise<void> {
    this.#docs.push(doc)
    this.#bytes += doc.length
    if (this.#bytes < WRITE_BYTES && this.#docs.length < WRITE_DOCS) return
    await this.#writing
    this.#begin()
  }

  /** Writes the rest. @throws PeerError */
  async flush(): Promise<void> {
    await this.#writing
    this.#begin()
    await this.#writing
  }

  #begin(): void {
    const docs = this.#docs
    this.#docs = []
    this.#bytes = 0
    this.#writing = inParts(
      docs,
      this.#attempt,
      (part) => this.#write(part),
      async (doc, error) => refuse(this.#attempt, await idOf(doc), error.message),
    )
    // The next call rejects with it.
    this.#writing.catch(() => undefined)
  }

  async #write(docs: readonly Uint8Array[]): Promise<void> {
    const { ends, stats, isLastTry } = this.#attempt
    const { target, signal } = ends
    const refused: { readonly id: string; readonly reason: string }[] = []
    const yielder = new Yielder()
    for await (const { bytes } of jsonParts(target.bulkDocs(bulkBody(docs), signal))) {
      const { id, error, reason } = refusalIn(parsed(bytes))
      if (error === null) continue
      const persistence = persistenceOf(error)
      if (persistence === 'momentary' || (persistence === 'uncertain' && !isLastTry)) {
        throw new PeerError('server_error', `${target.address}: ${error}: ${reason}`)
      }
      refused.push({ id, reason: `${error}: ${reason}` })
      await yielder.yieldIfDue()
    }
    for (const { id, reason } of refused) refuse(this.#attempt, id, reason)
    stats.docs_written += docs.length - refused.length
  }
}

/** A row of `_bulk_docs`. @returns `error` null: the document is stored */
function refusalIn(row: unknown): {
  readonly id: string
  readonly error: string | null
  readonly reason: string
} {
  const { id, error, reason } = isJsonObject(row) ? row : {}
  const text = (value: unknown) => (typeof value === 'string' ? value : '')
  return { id: text(id), error: error === undefined ? null : text(error), reason: text(reason) }
}

async function idOf(doc: Uint8Array): Promise<string> {
  const text = Buffer.from(doc.buffer, doc.byteOffset, doc.byteLength)
  const id: unknown = parsed((await memberIn(text, '_id')) ?? NULL)
  return typeof id === 'string' ? id : ''
}

function bulkBody(docs: readonly Uint8Array[]): Uint8Array {
  const pieces: Uint8Array[] = [Buffer.from('{"new_edits":false,"docs":[')]
  docs.forEach((doc, at) => {
    pieces.push(at === 0 ? doc : Buffer.from(','), ...(at === 0 ? [] : [doc]))
  })
  return Buffer.concat([...pieces, Buffer.from(']}')])
}
