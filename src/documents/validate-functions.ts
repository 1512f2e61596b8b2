/**
 * The `validate_doc_update` functions of a database: finds them, calls them and reads their results; protocol.md 9.2.
 */
import { asCouchError, CouchError, type ErrorName } from '../core/errors.ts'
import { Yielder } from '../core/event-loop.ts'
import type { SecurityObject, UserCtx } from '../core/types.ts'
import { formatRev } from '../revisions/rev.ts'
import type { Sandbox, UserFunction, ValidateCall, Verdict } from '../sandbox/messages.ts'
import type { AttachmentWrite, DatabaseStore, DocState, StoredAttachment } from '../storage/engine.ts'
import { kindRange } from './all-docs-query.ts'
import { spliceDocument } from './body.ts'
import { languageOf } from './design-docs.ts'
import { type NewRevision, namedRev, type OldRevision } from './incoming-document.ts'
import { ADMIN_ONLY } from './security.ts'

/** Maximum documents that a function checks in one call. If the call fails, each document is tried alone. */
const BATCH_CALLS = 100
const BATCH_CHARS = 4 * 1024 * 1024
/** How many documents of one batch may make a function exceed its time or memory before the rest of the batch fails. */
const MAX_RUNAWAYS = 3
/**
 * The number of ancestors of the old document that a function gets, as in CouchDB (`query_server_config/revs_limit`).
 */
const OLD_REVISIONS = 20

type Stub = Pick<AttachmentWrite | StoredAttachment, 'name' | 'type' | 'revpos' | 'digest' | 'length'>

/** The arguments that all calls of one attempt share, as JSON. */
export interface CallContext {
  readonly userCtx: string
  readonly security: string
}

/** @param database its name */
export function callContext(database: string, user: UserCtx, security: SecurityObject | null): CallContext {
  return {
    userCtx: JSON.stringify({ db: database, name: user.name, roles: user.roles }),
    security: JSON.stringify(security ?? ADMIN_ONLY),
  }
}

/**
 * The arguments of a validate function for a new revision. The document is as sent, so `_rev` is the parent of an
 * interactive edit, and the revision itself of a replicated edit.
 */
export function validateCall(id: string, candidate: NewRevision, context: CallContext): ValidateCall {
  const { doc, attachments } = candidate
  const old = candidate.old()
  const { body, deleted, path } = doc
  const named = namedRev(doc)
  const revisions = { start: path?.pos ?? 0, ids: path?.ids ?? [] }
  const newDoc = spliceDocument({
    id,
    rev: named === null ? null : formatRev(named.pos, named.id),
    body,
    deleted,
    extra: extraMembers(revisions, attachments),
  })
  return { newDoc, oldDoc: old === null ? 'null' : oldDocument(id, old), ...context }
}

function oldDocument(id: string, { pos, ids, body, deleted, attachments }: OldRevision): string {
  const revisions = { start: pos, ids: ids.slice(0, OLD_REVISIONS) }
  const rev = formatRev(pos, ids[0] as string)
  return spliceDocument({ id, rev, body, deleted, extra: extraMembers(revisions, attachments) })
}

function extraMembers(revisions: { readonly ids: readonly string[] }, attachments: readonly Stub[]): string {
  // A document without a revision has no history.
  const members = revisions.ids.length > 0 ? [`"_revisions":${JSON.stringify(revisions)}`] : []
  if (attachments.length > 0) {
    const stubs = attachments.map(({ name, type, revpos, digest, length }) => {
      const stub = { content_type: type, revpos, digest, length, stub: true }
      return `${JSON.stringify(name)}:${JSON.stringify(stub)}`
    })
    members.push(`"_attachments":{${stubs.join(',')}}`)
  }
  return members.join(',')
}

/**
 * Calls every function with every document. The first function that refuses a document decides its refusal.
 * @returns for each call the refusal of its document, or null; never rejects
 */
export async function runValidateFunctions(
  sandbox: Sandbox,
  functions: readonly UserFunction[],
  calls: readonly ValidateCall[],
): Promise<(CouchError | null)[]> {
  const refusals: (CouchError | null)[] = new Array(calls.length).fill(null)
  for (const fn of functions) {
    const open = [...calls.entries()].filter(([at]) => refusals[at] === null)
    for (const batch of batches(open)) {
      const found = await askBatch(
        sandbox,
        fn,
        batch.map(([, call]) => call),
      )
      for (const [index, [at]] of batch.entries()) refusals[at] = found[index] as CouchError | null
    }
  }
  return refusals
}

type Numbered = [at: number, call: ValidateCall]

function* batches(calls: readonly Numbered[]): Generator<Numbered[]> {
  let batch: Numbered[] = []
  let chars = 0
  for (const numbered of calls) {
    const [, { newDoc, oldDoc }] = numbered
    chars += newDoc.length + oldDoc.length
    if (batch.length === BATCH_CALLS || (batch.length > 0 && chars > BATCH_CHARS)) {
      yield batch
      batch = []
      chars = newDoc.length + oldDoc.length
    }
    batch.push(numbered)
  }
  if (batch.length > 0) yield batch
}

/** Only the document that makes a function exceed its time or memory is refused, not the batch. */
async function askBatch(
  sandbox: Sandbox,
  fn: UserFunction,
  calls: readonly ValidateCall[],
): Promise<(CouchError | null)[]> {
  try {
    return (await sandbox.validate(fn, calls)).map(refusalOf)
  } catch (error) {
    const failure = asCouchError(error)
    if (calls.length === 1 || !isRunaway(failure)) return calls.map(() => failure)
  }
  return askOneByOne(sandbox, fn, calls)
}

async function askOneByOne(
  sandbox: Sandbox,
  fn: UserFunction,
  calls: readonly ValidateCall[],
): Promise<(CouchError | null)[]> {
  const refusals: (CouchError | null)[] = []
  let runaways = 0
  for (const call of calls) {
    const [refusal = null] = await askBatch(sandbox, fn, [call])
    refusals.push(refusal)
    if (refusal === null || !isRunaway(refusal)) continue
    runaways += 1
    if (runaways < MAX_RUNAWAYS) continue
    return [...refusals, ...calls.slice(refusals.length).map(() => refusal)]
  }
  return refusals
}

/** The errors that a function may name. Names of the server's own state would mislead the callers of a write. */
const NAMED: ReadonlySet<string> = new Set<ErrorName>([
  'forbidden',
  'unauthorized',
  'not_found',
  'conflict',
  'bad_request',
  'illegal_docid',
  'doc_validation',
])

function refusalOf(verdict: Verdict): CouchError | null {
  if (verdict === null) return null
  const { error, reason } = verdict
  // As in CouchDB, a conflict has one reason.
  if (error === 'conflict') return new CouchError('conflict')
  if (NAMED.has(error)) return new CouchError(error as ErrorName, reason)
  if (error === 'unknown_error') return new CouchError('function_error', reason)
  const text = typeof reason === 'string' ? reason : JSON.stringify(reason)
  return new CouchError('function_error', `${error}: ${text}`)
}

function isRunaway({ code }: CouchError): boolean {
  return code === 'function_timeout' || code === 'function_memory'
}

const MEMBER = 'validate_doc_update'
const PAGE_ROWS = 100
const PAGE_CHARS = 1024 * 1024
/** Attempts to read the list while design documents change. */
const ATTEMPTS = 5
/** Characters of design documents that are kept between requests; a longer list is read for each request. */
const MAX_KEPT = 2 * 1024 * 1024

/** The functions that a document must pass, in the order of their design documents' ids. */
export interface FunctionList {
  /** The store's version of the design documents that they were read from. */
  readonly designVersion: number
  /** The database's name; empty when there are no functions. */
  readonly database: string
  /** Identifies the functions: lists with the same key hold the same functions. */
  readonly key: string
  readonly functions: readonly UserFunction[]
}

export class ValidateFunctions {
  readonly #store: DatabaseStore
  readonly #incarnation: number
  readonly #mayRun: (id: string, body: string) => boolean
  #database: string | undefined
  /** The list as it was last read, perhaps outdated; null before the first read, and for a list too long to keep. */
  known: FunctionList | null = null
  #reading: Promise<FunctionList> | null = null

  /**
   * @param incarnation of the database whose documents `store` holds
   * @param mayRun whether the policy lets a design document's function run, by its id and stored text; constant
   */
  constructor(
    store: DatabaseStore,
    incarnation: number,
    mayRun: (id: string, body: string) => boolean = () => true,
  ) {
    this.#store = store
    this.#incarnation = incarnation
    this.#mayRun = mayRun
  }

  /**
   * Reads the list; concurrent calls share one read.
   * @throws contended if design documents change during each of 5 reads
   */
  read(): Promise<FunctionList> {
    this.#reading ??= this.#readList().finally(() => {
      this.#reading = null
    })
    return this.#reading
  }

  async #readList(): Promise<FunctionList> {
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      const list = await this.#readAtOneVersion()
      if (list === null) continue
      const chars = list.functions.reduce((sum, { source }) => sum + source.length, 0)
      this.known = chars <= MAX_KEPT ? list : null
      return list
    }
    throw new CouchError('contended')
  }

  /** @returns null if the design documents changed between two pages */
  async #readAtOneVersion(): Promise<FunctionList | null> {
    const functions: UserFunction[] = []
    const yielder = new Yielder()
    let range = kindRange('design')
    let designVersion: number | null = null
    for (;;) {
      await yielder.yieldIfDue()
      const paging = { limit: PAGE_ROWS, chars: PAGE_CHARS, readSet: { body: true } }
      const { rows, more, view } = await this.#store.readRange(range, paging, (doc) => ({
        id: doc.id,
        found: this.#functionOf(doc),
      }))
      designVersion ??= view.designVersion
      if (view.designVersion !== designVersion) return null
      for (const { found } of rows) if (found !== null) functions.push(found)
      const last = rows.at(-1)
      if (!more || last === undefined) break
      range = { ...range, start: { id: last.id, inclusive: false } }
    }
    const key = JSON.stringify(functions.map(({ ddoc, rev }) => [ddoc, rev]))
    const database = functions.length === 0 ? '' : await this.#name()
    return { designVersion, database, key, functions }
  }

  async #name(): Promise<string> {
    this.#database ??= (await this.#store.info()).name
    return this.#database
  }

  #functionOf(doc: DocState): UserFunction | null {
    const body = doc.body(doc.rev) ?? '{}'
    if (!this.#mayRun(doc.id, body)) return null
    // The text contains the member's name unchanged unless it is escaped; most documents have no such member.
    if (!body.includes(`"${MEMBER}"`) && !body.includes('\\u')) return null
    const members = JSON.parse(body) as Record<string, unknown>
    if (typeof members[MEMBER] !== 'string' || languageOf(members) !== 'javascript') return null
    const source = spliceDocument({ id: doc.id, rev: doc.rev, body })
    return { database: this.#incarnation, ddoc: doc.id, rev: doc.rev, path: [MEMBER], source }
  }
}
