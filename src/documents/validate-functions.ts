/** What validate functions are asked, and what comes of their answers; protocol.md 9.2. */
import { asCouchError, CouchError, type ErrorName } from '../core/errors.ts'
import type { SecurityObject, UserCtx } from '../core/types.ts'
import { Yielder } from '../core/yielder.ts'
import { formatRev } from '../revisions/rev.ts'
import type { Sandbox, UserFunction, ValidateCall, Verdict } from '../sandbox/messages.ts'
import type { AttachmentWrite, DatabaseStore, DocState, StoredAttachment } from '../storage/engine.ts'
import { kindRange } from './all-docs-query.ts'
import { spliceDocument } from './body.ts'
import { languageOf } from './design-docs.ts'
import type { NewRevision, OldRevision } from './edited-document.ts'
import { namedRev } from './incoming-document.ts'

/** Documents handed to a function at once: what one of them spoils is tried again one by one. */
const BATCH_CALLS = 100
const BATCH_CHARS = 4 * 1024 * 1024
/** Documents of one batch on which a function may run away before the rest of them are given up with it. */
const MAX_RUNAWAYS = 3
/** Ancestors of the old document that a function is shown, as in CouchDB (`query_server_config/revs_limit`). */
const OLD_REVISIONS = 20

type Stub = Pick<AttachmentWrite | StoredAttachment, 'name' | 'type' | 'revpos' | 'digest' | 'length'>

/** Who writes, and where: what all calls of one look at a database have in common. */
export interface CallContext {
  readonly userCtx: string
  readonly security: string
}

/** @param database its name */
export function callContext(database: string, user: UserCtx, security: SecurityObject | null): CallContext {
  return {
    userCtx: JSON.stringify({ db: database, name: user.name, roles: user.roles }),
    security: JSON.stringify(security ?? {}),
  }
}

/**
 * What a validate function is asked about a revision: the document as it was sent, so that `_rev` is the parent
 * of an edit made here and the revision itself of a replicated one.
 */
export function validateCall(id: string, candidate: NewRevision, context: CallContext): ValidateCall {
  const { doc, attachments, old } = candidate
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

function extraMembers(revisions: object, attachments: readonly Stub[]): string {
  const members = [`"_revisions":${JSON.stringify(revisions)}`]
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
 * Asks every function about every document; the first that refuses one, in their order, is its refusal.
 * @returns for each call what its document is refused with, or null; never rejects
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

/** One document on which a function runs away spoils the batch; only that document is to bear it. */
async function askBatch(
  sandbox: Sandbox,
  fn: UserFunction,
  calls: readonly ValidateCall[],
): Promise<(CouchError | null)[]> {
  try {
    return (await sandbox.validate(fn, calls)).map(refusalOf)
  } catch (error) {
    const failure = functionFailure(error)
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

const VERDICT_ERRORS: Readonly<Record<NonNullable<Verdict>['error'], ErrorName>> = {
  forbidden: 'forbidden',
  unauthorized: 'unauthorized',
  unknown_error: 'function_error',
}

function refusalOf(verdict: Verdict): CouchError | null {
  return verdict === null ? null : new CouchError(VERDICT_ERRORS[verdict.error], verdict.reason)
}

/**
 * A refusal for what a function failed with. One that is not there is a fault of its design document, not of the
 * address that is written to.
 */
export function functionFailure(error: unknown): CouchError {
  const failure = asCouchError(error)
  return failure.code === 'not_found' ? new CouchError('function_error', failure.reason) : failure
}

function isRunaway({ code }: CouchError): boolean {
  return code === 'function_timeout' || code === 'function_memory'
}

// The `validate_doc_update` functions of a database, kept while its design documents stay as they are.

const MEMBER = 'validate_doc_update'
const PAGE_ROWS = 100
/** How often the list is read before it is given up because design documents change in the middle of it. */
const ATTEMPTS = 5
/** Characters of design documents that are kept between requests; a longer list is read for each. */
const MAX_KEPT = 2 * 1024 * 1024

/** The functions that a document must pass, in the order of their design documents' ids. */
export interface FunctionList {
  /** The store's version of the design documents that they were read from. */
  readonly designVersion: number
  /** The database's name; empty when there are no functions. */
  readonly database: string
  /** Names the functions: two lists with the same key hold the same. */
  readonly key: string
  readonly functions: readonly UserFunction[]
}

export class ValidateFunctions {
  readonly #store: DatabaseStore
  readonly #incarnation: number
  readonly #mayRun: (id: string, body: string) => boolean
  #database: string | undefined
  #known: FunctionList | null = null
  #reading: Promise<FunctionList> | null = null

  /**
   * @param incarnation of the database whose documents `store` holds
   * @param mayRun whether the function of a design document, by its id and stored text, has a say; always the same
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

  /** The list as it was last read, which may be outdated; null when there is none. */
  get known(): FunctionList | null {
    return this.#known
  }

  /**
   * Reads the list; calls while it is read share the answer.
   * @throws contended when the design documents do not stand still
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
      this.#known = chars <= MAX_KEPT ? list : null
      return list
    }
    throw new CouchError('contended')
  }

  /** null when the design documents changed between two pages. */
  async #readAtOneVersion(): Promise<FunctionList | null> {
    const functions: UserFunction[] = []
    const yielder = new Yielder()
    let range = kindRange('design')
    let designVersion: number | null = null
    for (;;) {
      await yielder.yieldIfDue()
      const paging = { limit: PAGE_ROWS, touches: { body: true }, enough: () => yielder.isDue }
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
    // A member's name stands in the text as it is unless something in it is escaped; most have no such member.
    if (!body.includes(`"${MEMBER}"`) && !body.includes('\\u')) return null
    const members = JSON.parse(body) as Record<string, unknown>
    if (typeof members[MEMBER] !== 'string' || languageOf(members) !== 'javascript') return null
    const source = spliceDocument({ id: doc.id, rev: doc.rev, body })
    return { database: this.#incarnation, ddoc: doc.id, rev: doc.rev, path: [MEMBER], source }
  }
}
