/** What validate functions are asked, and what comes of their answers; protocol.md 9.2. */
import { asCouchError, CouchError, type ErrorName } from '../core/errors.ts'
import type { SecurityObject, UserCtx } from '../core/types.ts'
import { formatRev } from '../revisions/rev.ts'
import type { Sandbox, UserFunction, ValidateCall, Verdict } from '../sandbox/sandbox.ts'
import type { AttachmentWrite, StoredAttachment } from '../storage/engine.ts'
import { spliceDocument } from './body.ts'
import type { Candidate, OldRevision } from './draft.ts'
import { namedRev } from './incoming.ts'

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
export function validateCall(id: string, candidate: Candidate, context: CallContext): ValidateCall {
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
export async function judge(
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
    const failure = refusalFrom(error)
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
export function refusalFrom(error: unknown): CouchError {
  const failure = asCouchError(error)
  return failure.code === 'not_found' ? new CouchError('function_error', failure.reason) : failure
}

function isRunaway({ code }: CouchError): boolean {
  return code === 'function_timeout' || code === 'function_memory'
}
