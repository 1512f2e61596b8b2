/**
 * `_bulk_docs`, protocol.md 4.1. The whole body is checked before the first write: a malformed document anywhere
 * changes nothing. The body is read document by document. Documents of a body in a file are read twice, so that
 * memory is bounded.
 */
import { CouchError, isFunctionFault, isMomentary } from '../core/errors.ts'
import { Yielder } from '../core/event-loop.ts'
import { checkDocId, type IdRules, isLocalId } from '../core/ids.ts'
import type { Settings, UserCtx } from '../core/types.ts'
import { formatRev } from '../revisions/rev.ts'
import type { DatabaseStore } from '../storage/engine.ts'
import type { Body, DocumentRules, RuledWrite } from './database.ts'
import { remeasured } from './document-policy.ts'
import { decideEdits, replicatedPath } from './edit.ts'
import { readSetOfEdits } from './edit-read-set.ts'
import { checkNewAttachmentNames } from './incoming-attachments.ts'
import { type IncomingDoc, namedRev, readSplit } from './incoming-document.ts'
import { checkLocal } from './local-docs.ts'
import { type BulkBody, readBulkBody } from './request-body.ts'
import { requireMember } from './security.ts'
import { writeEdits } from './write.ts'
import type { WriteChecks } from './write-checks.ts'

/** Limits of one group of documents, which is about the size of one transaction. */
const GROUP_DOCS = 256
const GROUP_BYTES = 1024 * 1024
const MAX_REFUSALS = 10_000

interface BulkRow {
  readonly id: string
  readonly doc: IncomingDoc
}

type RowResult = { readonly rev: string } | CouchError

/**
 * The answer's JSON array in chunks; the first comes after the whole request has been checked. A replicator, such as
 * CouchDB's, may skip a document for good because of an error in its row. So if a document met a temporary error,
 * such as a full disk, the whole request fails, and the replicator sends it again.
 * @param newId makes an id for a document without one
 */
export async function* bulkDocs(
  store: DatabaseStore,
  user: UserCtx,
  body: Body,
  settings: Settings,
  checks: WriteChecks,
  newId: () => string,
): AsyncGenerator<Uint8Array> {
  const { security } = await store.view()
  requireMember(user, security)
  const read = await readBulkBody(body, settings.limits)
  const { documentRules: rules } = checks
  const ruled = (id: string): RuledWrite => {
    return { id, user, security, kind: read.newEdits ? 'edit' : 'replica', isAttachment: false }
  }
  const bulk = new Bulk(read, settings, store.partitioned, newId, ({ id, doc }) => {
    rules?.checkWriter(user, id, security, false)
    rules?.checkDocument(doc, ruled(id))
  })
  await bulk.check(store)
  if (read.allOrNothing) throw new CouchError('all_or_nothing', await bulk.refusals())
  // Not sent yet: the last rows are sent together with the end of the list.
  let text = '['
  let isAnswered = false
  let failure: CouchError | undefined
  for await (const unprepared of bulk.groups()) {
    const writer = isAnswered ? await remeasured(checks.measure, user) : user
    const group = rules === undefined ? unprepared : await prepared(unprepared, rules, ruled)
    const edits = group.map(({ id, doc }) => ({ id, doc, newEdits: bulk.newEdits }))
    const results = await writeEdits(store, writer, edits, checks)
    if (!isAnswered) refuseIfBroken(results)
    isAnswered = true
    if (!bulk.newEdits) failure ??= results.find(isTemporary)
    // Thrown at the end, so that all other documents are stored.
    if (failure !== undefined) continue
    const lines = group.map((row, at) => answerRow(row, results[at] as RowResult, bulk.newEdits))
    const rows = lines.filter((line) => line !== null).join(',')
    if (rows === '') continue
    if (text === '[') {
      text += rows
      continue
    }
    yield Buffer.from(text)
    text = `,${rows}`
  }
  if (failure !== undefined) throw failure
  yield Buffer.from(`${text}]\n`)
}

/** Fails the request if the server has failed every document so far, so nothing is stored. */
function refuseIfBroken(results: readonly RowResult[]): void {
  const [first] = results
  if (results.every(isBroken)) throw first
}

function isBroken(result: RowResult): result is CouchError {
  return result instanceof CouchError && result.status >= 500 && !isFunctionFault(result.code)
}

function isTemporary(result: RowResult): result is CouchError {
  return result instanceof CouchError && isMomentary(result.code)
}

/** A request's documents. */
class Bulk {
  readonly #body: BulkBody
  readonly #settings: Settings
  readonly #ids: IdRules
  readonly #newId: () => string
  readonly #admit: (row: BulkRow) => void
  /** The checked documents, if the body is small enough to keep them. */
  readonly #kept: BulkRow[] = []

  /** @param admit throws to refuse the request because of a document */
  constructor(
    body: BulkBody,
    settings: Settings,
    partitioned: boolean,
    newId: () => string,
    admit: (row: BulkRow) => void,
  ) {
    this.#body = body
    this.#settings = settings
    this.#ids = { maxBytes: settings.limits.maxDocumentIdLength, partitioned }
    this.#newId = newId
    this.#admit = admit
  }

  get newEdits(): boolean {
    return this.#body.newEdits
  }

  /** Reads every document once. @throws the first error in any of them */
  async check(store: DatabaseStore): Promise<void> {
    const yielder = new Yielder()
    const ids = new Set<string>()
    const { attachments } = this.#settings.rules.policy
    for (let at = 0; at < this.#body.count; at++) {
      const read = this.#read(at)
      const row = read instanceof Promise ? await read : read
      this.#admit(row)
      // A document's second edit sees the result of its first edit, which is known only during the write. If the policy
      // excludes attachments, it refuses just this document for its stubs.
      if (attachments && hasStubs(row.doc) && !ids.has(row.id)) await checkStubs(store, row, this.newEdits)
      ids.add(row.id)
      if (this.#body.isInMemory) this.#kept.push(row)
      if (yielder.isDue) await yielder.yieldIfDue()
    }
  }

  /** Synchronous unless the document is long or has attachments. */
  #read(at: number): BulkRow | Promise<BulkRow> {
    const doc = readSplit(this.#body.split(at), this.#settings)
    return doc instanceof Promise ? doc.then((read) => this.#checked(read)) : this.#checked(doc)
  }

  #checked(doc: IncomingDoc): BulkRow {
    const id = checkDocId(doc.id === undefined ? this.#newId() : doc.id, this.#ids)
    if (isLocalId(id)) checkLocal(doc)
    else if (this.newEdits) checkNewAttachmentNames(doc)
    else replicatedPath(doc)
    return { id, doc }
  }

  /**
   * Returns one row per document, which says that it was not stored (protocol.md 4.1). A huge request gets only the
   * first rows.
   */
  async refusals(): Promise<unknown[]> {
    const rows: unknown[] = []
    for await (const group of this.groups()) {
      for (const { id } of group) {
        rows.push({ id, rev: '0-', error: 'not_implemented', reason: 'all_or_nothing is not supported' })
      }
      if (rows.length >= MAX_REFUSALS) break
    }
    return rows
  }

  /** The documents in order, in groups for one transaction each. */
  async *groups(): AsyncGenerator<BulkRow[]> {
    const yielder = new Yielder()
    let group: BulkRow[] = []
    let bytes = 0
    for (let at = 0; at < this.#body.count; at++) {
      if (yielder.isDue) await yielder.yieldIfDue()
      const row = this.#kept[at] ?? (await this.#read(at))
      const size = this.#body.size(at)
      if (group.length > 0 && (group.length === GROUP_DOCS || bytes + size > GROUP_BYTES)) {
        yield group
        group = []
        bytes = 0
      }
      group.push(row)
      bytes += size
    }
    if (group.length > 0) yield group
  }
}

function hasStubs(doc: IncomingDoc): boolean {
  return doc.attachments.some(({ content }) => content === null)
}

/**
 * A stub without a stored attachment fails the whole request (protocol.md 4.1). The check decides as the write will: a
 * document in conflict, or a known revision, is not refused here.
 */
async function checkStubs(store: DatabaseStore, { id, doc }: BulkRow, newEdits: boolean): Promise<void> {
  const edits = [{ doc, newEdits }]
  await store.readDocs(
    [id],
    (state, _id, view) => {
      const [result] = decideEdits(id, state, view.revsLimit, edits).result
      if (result instanceof CouchError && result.code === 'missing_stub') throw result
    },
    readSetOfEdits(edits, false),
  )
}

/** Prepares the rows for the write, one after the other, since each may wait. */
async function prepared(
  group: readonly BulkRow[],
  rules: DocumentRules,
  ruled: (id: string) => RuledWrite,
): Promise<BulkRow[]> {
  const rows: BulkRow[] = []
  for (const { id, doc } of group) rows.push({ id, doc: await rules.prepare(doc, ruled(id)) })
  return rows
}

/** One row of the answer; null for a document that a replication stored, which gets no row. */
function answerRow({ id, doc }: BulkRow, result: RowResult, newEdits: boolean): string | null {
  if (!(result instanceof CouchError))
    return newEdits ? JSON.stringify({ ok: true, id, rev: result.rev }) : null
  if (newEdits) return JSON.stringify({ id, ...result.toBody() })
  const named = namedRev(doc)
  return JSON.stringify({
    id,
    rev: named === null ? null : formatRev(named.pos, named.id),
    ...result.toBody(),
  })
}
