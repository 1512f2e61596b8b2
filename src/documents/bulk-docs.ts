/**
 * `_bulk_docs`, protocol.md 4.1. The whole body is checked before the first write: what is malformed anywhere
 * changes nothing. It is read in slices, document by document; of a body that is spooled to a file each document
 * is read twice, so that what is held at a time is bounded.
 */
import { CouchError, type ErrorName } from '../core/errors.ts'
import { checkDocId, isLocalId } from '../core/ids.ts'
import type { Settings, UserCtx } from '../core/types.ts'
import { Yielder } from '../core/yielder.ts'
import { formatRev } from '../revisions/rev.ts'
import type { DatabaseStore } from '../storage/engine.ts'
import { remeasured } from './allowance.ts'
import type { Body, DocumentRules } from './database.ts'
import { decideEdits, replicatedPath } from './edit.ts'
import { checkNewAttachmentNames } from './incoming-attachments.ts'
import { type IncomingDoc, namedRev, readSplit } from './incoming-document.ts'
import { checkLocal } from './local-docs.ts'
import { type BulkBody, readBulkBody } from './request-body.ts'
import { requireMember } from './security.ts'
import { writeEdits } from './write.ts'
import type { WriteChecks } from './write-checks.ts'

/** One group of documents: about what one transaction takes. */
const GROUP_DOCS = 256
const GROUP_BYTES = 1024 * 1024
const MAX_REFUSALS = 10_000

interface BulkRow {
  readonly id: string
  readonly doc: IncomingDoc
}

type RowResult = { readonly rev: string } | CouchError

/**
 * The answer's JSON array in chunks; the first comes when the whole request has been found good. A replicator may take a
 * row for the last word and pass the document over for ever, as CouchDB's does; so where one of its documents met what
 * passes, such as a full disk, the request fails, which it sends again.
 * @param newId makes an id for a document that brings none
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
  const read = await readBulkBody(body, settings.limits.maxBulkDocs)
  const { documentRules: rules } = checks
  const bulk = new Bulk(read, settings, newId, ({ id, doc }) => {
    rules?.checkWriter(user, id, security, false)
    rules?.checkDocument(doc)
  })
  await bulk.check(store)
  if (read.allOrNothing) throw new CouchError('all_or_nothing', await bulk.refusals())
  let before = '['
  let isAnswered = false
  let failure: CouchError | undefined
  for await (const asked of bulk.groups()) {
    const writer = isAnswered ? await remeasured(store, user) : user
    const group = rules === undefined ? asked : await prepared(asked, rules)
    const edits = group.map(({ id, doc }) => ({ id, doc, newEdits: bulk.newEdits }))
    const results = await writeEdits(store, writer, edits, checks)
    if (!isAnswered) refuseIfBroken(results)
    isAnswered = true
    if (!bulk.newEdits) failure ??= results.find(isPassing)
    // Said at the end, so that what can be stored is.
    if (failure !== undefined) continue
    const lines = group.map((row, at) => answerRow(row, results[at] as RowResult, bulk.newEdits))
    const text = lines.filter((line) => line !== null).join(',')
    if (text === '') continue
    yield Buffer.from(before + text)
    before = ','
  }
  if (failure !== undefined) throw failure
  yield Buffer.from(before === '[' ? '[]\n' : ']\n')
}

/** What fails a document for a function of a design document: its row says so, as with any other refusal. */
const FUNCTION_FAILURES: ReadonlySet<ErrorName> = new Set([
  'function_error',
  'function_timeout',
  'function_memory',
])

/** Where the server itself has failed every document so far, the request fails: nothing of it is stored. */
function refuseIfBroken(results: readonly RowResult[]): void {
  const [first] = results
  if (results.every(isBroken)) throw first
}

function isBroken(result: RowResult): result is CouchError {
  return result instanceof CouchError && result.status >= 500 && !FUNCTION_FAILURES.has(result.code)
}

/** Whether the document may be stored when it is sent again. */
function isPassing(result: RowResult): result is CouchError {
  if (!(result instanceof CouchError)) return false
  return result.status === 503 || result.status === 507 || result.code === 'disk_fault'
}

/** A request's documents. */
class Bulk {
  readonly #body: BulkBody
  readonly #settings: Settings
  readonly #newId: () => string
  readonly #admit: (row: BulkRow) => void
  /** The documents as checked, where the body is small enough to be held in memory. */
  readonly #kept: BulkRow[] = []

  /** @param admit refuses the request for a document, by what it throws */
  constructor(body: BulkBody, settings: Settings, newId: () => string, admit: (row: BulkRow) => void) {
    this.#body = body
    this.#settings = settings
    this.#newId = newId
    this.#admit = admit
  }

  get newEdits(): boolean {
    return this.#body.newEdits
  }

  /** Reads every document once. @throws whatever is wrong with any of them */
  async check(store: DatabaseStore): Promise<void> {
    const yielder = new Yielder()
    const ids = new Set<string>()
    const { attachments } = this.#settings.rules.policy
    for (let at = 0; at < this.#body.count; at++) {
      const read = this.#read(at)
      const row = read instanceof Promise ? await read : read
      this.#admit(row)
      // What a document's second edit finds, its first one has made: only the writing can tell. Without
      // attachments the policy refuses the document for its stubs, and no other with it.
      if (attachments && hasStubs(row.doc) && !ids.has(row.id)) await checkStubs(store, row, this.newEdits)
      ids.add(row.id)
      if (this.#body.isInMemory) this.#kept.push(row)
      if (yielder.isDue) await yielder.yieldIfDue()
    }
  }

  /** At once, unless the document is long or brings attachments. */
  #read(at: number): BulkRow | Promise<BulkRow> {
    const doc = readSplit(this.#body.split(at), this.#settings)
    return doc instanceof Promise ? doc.then((read) => this.#checked(read)) : this.#checked(doc)
  }

  #checked(doc: IncomingDoc): BulkRow {
    const id =
      doc.id === undefined ? this.#newId() : checkDocId(doc.id, this.#settings.limits.maxDocumentIdLength)
    if (isLocalId(id)) checkLocal(doc)
    else if (this.newEdits) checkNewAttachmentNames(doc)
    else replicatedPath(doc)
    return { id, doc }
  }

  /** A row a document, which says that it was not stored: protocol.md 4.1. Of a huge request the first rows. */
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

  /** The documents in order, in groups of about one transaction. */
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
 * A stub that stands for nothing stored fails the request as a whole (protocol.md 4.1). Decided as the write will
 * be: a document in conflict, or one that is known already, is none of this call's business.
 */
async function checkStubs(store: DatabaseStore, { id, doc }: BulkRow, newEdits: boolean): Promise<void> {
  await store.readDocs(
    [id],
    (state, _id, view) => {
      const [result] = decideEdits(id, state, view.revsLimit, [{ doc, newEdits }]).result
      if (result instanceof CouchError && result.code === 'missing_stub') throw result
    },
    { branches: true },
  )
}

/** The same rows as they are written; one after the other, since each may wait for its turn. */
async function prepared(group: readonly BulkRow[], rules: DocumentRules): Promise<BulkRow[]> {
  const rows: BulkRow[] = []
  for (const { id, doc } of group) rows.push({ id, doc: await rules.prepare(doc) })
  return rows
}

/** One row of the answer; null where replication leaves it out because all is well. */
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
