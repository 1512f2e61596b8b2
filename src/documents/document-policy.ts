/**
 * What a server's {@link DocumentPolicy} refuses: design documents, since they are programs, and attachments. Their
 * tombstones too, so that a data folder keeps what it had before the policy. settee's own design document of `_users`
 * passes, and its functions run.
 */
import { CouchError } from '../core/errors.ts'
import { isDesignId, USERS_DATABASE } from '../core/ids.ts'
import type { DocumentPolicy } from '../core/types.ts'
import type { Sandbox, UserFunction } from '../sandbox/messages.ts'
import type { DatabaseStore } from '../storage/engine.ts'
import { kindRange } from './all-docs-query.ts'
import { AUTH_DESIGN_BODY, AUTH_DESIGN_ID } from './auth-design.ts'
import { spliceDocument } from './body.ts'
import type { DisallowedContent } from './database.ts'
import type { IncomingDoc } from './incoming-document.ts'

/** The part of an edit that the policy depends on. */
interface PolicyEdit {
  readonly id: string
  readonly doc: Pick<IncomingDoc, 'deleted' | 'body' | 'attachments'>
  /** The edit is of this attachment only; it may remove it. */
  readonly attachment?: string
}

/**
 * The refusals of a request's edits, whoever sends them and whatever is stored. Pure.
 * @param database its name
 * @returns a refusal or null for each edit, in their order; null: all may be written
 */
export function policyRefusals(
  policy: DocumentPolicy,
  database: string,
  edits: readonly PolicyEdit[],
): readonly (CouchError | null)[] | null {
  if (policy.designDocs && policy.attachments) return null
  const refusals = edits.map((edit) => refusalOf(policy, database, edit))
  return refusals.some((refusal) => refusal !== null) ? refusals : null
}

function refusalOf(policy: DocumentPolicy, database: string, edit: PolicyEdit): CouchError | null {
  const { id, doc, attachment } = edit
  if (!policy.attachments && attachment !== undefined) return new CouchError('hosted_attachment')
  const isBuiltIn = !doc.deleted && isBuiltInDesign(database, id, doc.body)
  if (!policy.designDocs && isDesignId(id) && !isBuiltIn) return new CouchError('hosted_design')
  return !policy.attachments && doc.attachments.length > 0 ? new CouchError('hosted_attachment') : null
}

/**
 * Whether a document is settee's own `_design/_auth`.
 * @param body its text as it is stored
 */
export function isBuiltInDesign(database: string, id: string, body: string): boolean {
  return mayBeBuiltInDesign(database, id) && body === AUTH_DESIGN_BODY
}

/** The same as far as the address shows it, before the body is read. */
export function mayBeBuiltInDesign(database: string, id: string): boolean {
  return database === USERS_DATABASE && id === AUTH_DESIGN_ID
}

/** The limit of {@link countDisallowed} for attachments; counting them takes 1 or 2 ms. */
export const MAX_COUNTED = 10_000

/**
 * Counts the documents and attachments that a policy without them would refuse.
 * @param database its name
 * @returns live design documents, and attachments up to {@link MAX_COUNTED}
 */
export async function countDisallowed(store: DatabaseStore, database: string): Promise<DisallowedContent> {
  const [designDocs, [builtIn], attachments] = await Promise.all([
    store.countRange(kindRange('design')),
    store.readDocs(
      [AUTH_DESIGN_ID],
      (doc, id) =>
        doc !== null && !doc.deleted && isBuiltInDesign(database, id, doc.body(doc.rev) ?? '') ? 1 : 0,
      { body: true },
    ),
    store.countAttachments(MAX_COUNTED),
  ])
  return { designDocs: designDocs - (builtIn ?? 0), attachments }
}

/**
 * The sandbox that a policy allows. Without users' design documents it refuses their functions before it asks for a
 * thread, so that a new caller of the sandbox cannot forget the rule.
 * @param database the name of the database whose functions run
 * @returns a sandbox; it rejects with hosted_function where the policy says so
 */
export function policySandbox(policy: DocumentPolicy, sandbox: Sandbox, database: string): Sandbox {
  if (policy.designDocs) return sandbox
  const check = (fn: UserFunction): void => {
    if (!isBuiltInFunction(fn, database)) throw new CouchError('hosted_function')
  }
  return {
    compile: async (fn) => {
      check(fn)
      return sandbox.compile(fn)
    },
    filter: async (fn, docs, req) => {
      check(fn)
      return sandbox.filter(fn, docs, req)
    },
    map: async (fn, docs) => {
      check(fn)
      return sandbox.map(fn, docs)
    },
    reduce: async (fn, calls) => {
      check(fn)
      return sandbox.reduce(fn, calls)
    },
    validate: async (fn, calls) => {
      check(fn)
      return sandbox.validate(fn, calls)
    },
  }
}

function isBuiltInFunction({ ddoc, rev, source }: UserFunction, database: string): boolean {
  if (!mayBeBuiltInDesign(database, ddoc)) return false
  return source === spliceDocument({ id: AUTH_DESIGN_ID, rev, body: AUTH_DESIGN_BODY })
}
