/**
 * Refuses documents of valid requests: those that the server's {@link DocumentPolicy} excludes, those beyond the quota
 * of the database's owner, and those for which a full disk has no space.
 */
import { CouchError } from '../core/errors.ts'
import { isDesignId, USERS_DATABASE } from '../core/ids.ts'
import { type Allowance, type DocumentPolicy, isShort, type Space, type UserCtx } from '../core/types.ts'
import { idBytes } from '../revisions/branch.ts'
import type { Sandbox, UserFunction } from '../sandbox/messages.ts'
import type { DatabaseStore, DocState, StoreView } from '../storage/engine.ts'
import { kindRange } from './all-docs-query.ts'
import { AUTH_DESIGN_BODY, AUTH_DESIGN_ID } from './auth-design.ts'
import { spliceDocument } from './body.ts'
import type { DisallowedContent } from './database.ts'
import type { Edit } from './edit.ts'
import type { EditBounds, IncomingDoc, NewRevision, RevisionCheck } from './incoming-document.ts'

/** The part of an edit that the policy depends on. */
interface PolicyEdit {
  readonly id: string
  readonly doc: Pick<IncomingDoc, 'deleted' | 'body' | 'attachments'>
  /** The edit adds or removes only this attachment. */
  readonly attachment?: string
  /** The edit is made by `_index`. */
  readonly isIndex?: boolean
}

/**
 * Applies the policy to a request's edits, for every user and regardless of what is stored. The policy excludes
 * attachments, and design documents, since they are programs. It also excludes tombstones of design documents, so that
 * a data folder keeps those from before the policy. settee's own design document of `_users` is allowed, and so are those
 * that `_index` writes, since indexes are no programs. Pure.
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
  const { id, doc, attachment, isIndex = false } = edit
  if (!policy.attachments && attachment !== undefined) return new CouchError('hosted_attachment')
  const isBuiltIn = !doc.deleted && isBuiltInDesign(database, id, doc.body)
  if (!policy.designDocs && isDesignId(id) && !isBuiltIn && !isIndex) return new CouchError('hosted_design')
  return !policy.attachments && doc.attachments.length > 0 ? new CouchError('hosted_attachment') : null
}

/**
 * Whether a document is settee's own `_design/_auth`.
 * @param body its text as it is stored
 */
export function isBuiltInDesign(database: string, id: string, body: string): boolean {
  return mayBeBuiltInDesign(database, id) && body === AUTH_DESIGN_BODY
}

/** As {@link isBuiltInDesign}, judged by the address alone before the body is read. */
export function mayBeBuiltInDesign(database: string, id: string): boolean {
  return database === USERS_DATABASE && id === AUTH_DESIGN_ID
}

/** The limit of {@link countDisallowed} for attachments. Counting up to it takes 1 or 2 ms. */
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
    mapViews: async (maps, docs) => {
      check(maps)
      return sandbox.mapViews(maps, docs)
    },
    reduce: async (fn, calls) => {
      check(fn)
      return sandbox.reduce(fn, calls)
    },
    validate: async (fn, calls) => {
      check(fn)
      return sandbox.validate(fn, calls)
    },
    render: async (kind, fn, args) => {
      check(fn)
      return sandbox.render(kind, fn, args)
    },
    list: async (fn, args, exchange) => {
      check(fn)
      return sandbox.list(fn, args, exchange)
    },
  }
}

function isBuiltInFunction({ ddoc, rev, source }: UserFunction, database: string): boolean {
  if (!mayBeBuiltInDesign(database, ddoc)) return false
  return source === spliceDocument({ id: AUTH_DESIGN_ID, rev, body: AUTH_DESIGN_BODY })
}

/** About how many bytes the rows of a document take beside what it contains. */
const ROW_BYTES = 256
/** How often an id is stored with a revision: in its row, and in an index. */
const ID_TIMES = 2
/** Bytes that a deletion may add, with its ancestors: PouchDB and LiveSync write some members into theirs. */
const TOMBSTONE_BYTES = 1024
/** Bytes of a `_local` document that is still accepted: checkpoints and LiveSync's milestone have some kilobytes. */
const LOCAL_BYTES = 64 * 1024
/**
 * How many bytes beyond the limit new `_local` documents may take; and, twice as many, those that become longer. Without a bound
 * they would be a way around the quota.
 */
const LOCAL_RESERVE = 16 * 1024 * 1024
/**
 * Bytes of stored ancestries that a revision takes over for the price of what the request has: those of the usual `_revs_limit`. More
 * counts as often as an account has requests at once, since none of them has reserved it.
 */
const FREE_ANCESTRY = 1000 * 16
const REQUESTS_AT_ONCE = 16

/**
 * Adds the check of the owner's quota (docs/hosted.md) to the check of a document's edits. Each document that makes the
 * database grow is refused individually; the other documents of a bulk are stored. Deletions are allowed, and so are
 * small `_local` documents, which clients need to sync.
 * @param doc the document as stored
 * @param spending of the request
 * @returns `inspect` unchanged where there is no quota
 */
export function withinAllowance(
  allowance: Allowance | undefined,
  spending: Spending,
  { id, doc, view }: { readonly id: string; readonly doc: DocState | null; readonly view: StoreView },
  inspect: RevisionCheck | undefined,
): RevisionCheck | undefined {
  if (allowance === undefined) return inspect
  const isLive = doc !== null && !doc.deleted
  spending.restart(id)
  return (candidate) => {
    const bytes = storedBytes(id, candidate)
    const refusal = overAllowance(allowance, { view, isLive, bytes, spent: spending.bytes }, candidate)
    if (refusal !== null) throw refusal
    inspect?.(candidate)
    spending.add(id, bytes)
  }
}

/**
 * The check of edits that add nothing but ids to the ancestries of a document, for the quota and for a full disk.
 * @param spending as of {@link withinAllowance} @param shortage null while there is enough space
 * @returns undefined if nothing can be refused
 */
export function ancestryCheck(
  id: string,
  allowance: Allowance | undefined,
  spending: Spending,
  shortage: CouchError | null,
): EditBounds['checkAncestry'] {
  if (shortage === null && allowance === undefined) return undefined
  return (added) => {
    if (added === 0) return
    if (shortage !== null) throw shortage
    if (allowance === undefined) return
    const used = usedOf(allowance) + spending.bytes
    if (used + added > allowance.bytes.limit) throw tooManyBytes(used, allowance.bytes.limit)
    spending.add(id, added)
  }
}

/** What the documents of one request add, as far as they are decided; a decision may be made again. */
export class Spending {
  readonly #byDocument = new Map<string, number>()
  #bytes = 0

  get bytes(): number {
    return this.#bytes
  }

  /** A document is decided anew. */
  restart(id: string): void {
    this.#bytes -= this.#byDocument.get(id) ?? 0
    this.#byDocument.delete(id)
  }

  add(id: string, bytes: number): void {
    this.#byDocument.set(id, (this.#byDocument.get(id) ?? 0) + bytes)
    this.#bytes += bytes
  }
}

/** Whether the edits come close to the limit of bytes or of one document, so that stored bodies may have to be read. */
export function isNearLimit(allowance: Allowance, edits: readonly SizedEdit[]): boolean {
  const added = edits.reduce((sum, edit) => sum + 3 * editBytes(edit), 0)
  return usedOf(allowance) + added > allowance.bytes.limit || added > allowance.maxDocumentSize
}

/** The part of an edit that its size depends on. */
interface SizedEdit extends Pick<Edit, 'doc'> {
  readonly id: string
}

function usedOf({ bytes }: Pick<Allowance, 'bytes'>): number {
  return bytes.others + bytes.here
}

/** With fewer documents left than this, others' writes meanwhile could reach the limit. */
const CLOSE_TO_FULL = 10_000

/** Whether a decision could differ if other documents were written meanwhile ({@link Decision.dependsOnCounts}). */
export function dependsOnCounts(
  { documents }: Allowance,
  { docCount }: StoreView,
  doc: DocState | null,
  edits: readonly Pick<Edit, 'doc'>[],
): boolean {
  if (documents.others + docCount + CLOSE_TO_FULL < documents.limit) return false
  return (doc === null || doc.deleted) && edits.some(({ doc: { deleted } }) => !deleted)
}

function editBytes({ id, doc }: SizedEdit): number {
  return (
    attachmentBytes(doc) + doc.body.length + ROW_BYTES + ID_TIMES * id.length + idBytes(doc.path?.ids ?? [])
  )
}

function attachmentBytes({ attachments }: Pick<IncomingDoc, 'attachments'>): number {
  return attachments.reduce((sum, { content }) => sum + (content?.storedLength ?? 0), 0)
}

/** About how many bytes a new revision takes on disk. */
function storedBytes(id: string, { doc, grown }: NewRevision): number {
  const own =
    attachmentBytes(doc) + Buffer.byteLength(doc.body) + ROW_BYTES + ID_TIMES * Buffer.byteLength(id)
  const ancestry = grown()
  const free = idBytes(doc.path?.ids ?? []) + FREE_ANCESTRY
  return own + Math.min(ancestry, free) + REQUESTS_AT_ONCE * Math.max(0, ancestry - free)
}

interface Growth {
  readonly view: StoreView
  readonly isLive: boolean
  /** What the revision adds. */
  readonly bytes: number
  /** What other documents of the request add. */
  readonly spent: number
}

function overAllowance(
  allowance: Allowance,
  { view, isLive, bytes: added, spent }: Growth,
  candidate: NewRevision,
): CouchError | null {
  const { bytes, documents, maxDocumentSize } = allowance
  const { doc } = candidate
  const used = usedOf(allowance) + spent
  const isOver = used + added > bytes.limit
  if (doc.deleted) return isOver && !isDeletion(candidate) ? tooManyBytes(used, bytes.limit) : null
  const size = Buffer.byteLength(doc.body)
  if (size > maxDocumentSize) return tooLarge(size, maxDocumentSize)
  if (isOver) return tooManyBytes(used, bytes.limit)
  const stored = documents.others + view.docCount
  return !isLive && stored >= documents.limit ? tooManyDocuments(stored, documents.limit) : null
}

/**
 * Whether a revision deletes a live leaf and is, with the ancestors that come with it, no larger than it. Other tombstones,
 * such as that of a document that never existed, would be a way to store more.
 */
function isDeletion({ doc, old, branches, grown }: NewRevision): boolean {
  const { path } = doc
  const isLive = (id: string, steps: number) =>
    branches.leaf({ pos: (path?.pos ?? 0) - steps, id })?.deleted === false
  const isEnd = path === null ? old()?.deleted === false : path.ids.some(isLive)
  if (!isEnd) return false
  const added = doc.body.length + grown()
  return added <= TOMBSTONE_BYTES || added <= (old()?.body.length ?? 0)
}

/**
 * The refusal of a `_local` document; null if it may be written.
 * @param stored its stored body; null if it is not stored
 * @param spending of the request, to which what is allowed is added
 */
export function localRefusal(
  allowance: Allowance | undefined,
  spending: Spending,
  { id, stored, body }: { readonly id: string; readonly stored: string | null; readonly body: string },
): CouchError | null {
  spending.restart(id)
  if (allowance === undefined) return null
  const { bytes, maxDocumentSize } = allowance
  const used = usedOf(allowance) + spending.bytes
  const size = Buffer.byteLength(body)
  if (size > maxDocumentSize) return tooLarge(size, maxDocumentSize)
  const rest = stored === null ? ROW_BYTES + ID_TIMES * Buffer.byteLength(id) : -Buffer.byteLength(stored)
  const grown = Math.max(0, size + rest)
  const reserve = stored === null ? LOCAL_RESERVE : 2 * LOCAL_RESERVE
  const mayPass = grown === 0 || (size <= LOCAL_BYTES && used < bytes.limit + reserve)
  if (used + grown > bytes.limit && !mayPass) return tooManyBytes(used, bytes.limit)
  spending.add(id, grown)
  return null
}

/** Reads what a database stores now, with its indexes, in bytes. */
export type Measure = () => Promise<number>

/**
 * The user with the current size of the database, if the edits come close to a limit. A compaction may have freed space
 * since the HTTP thread read the size, and a replicating client never retries a refused document.
 */
export async function exactNearLimit(
  measure: Measure,
  user: UserCtx,
  edits: readonly SizedEdit[],
): Promise<UserCtx> {
  const { allowance } = user
  return allowance !== undefined && isNearLimit(allowance, edits) ? remeasured(measure, user) : user
}

/** As {@link exactNearLimit}, but unconditionally. Used between the groups of a bulk, which may be large. */
export async function remeasured(measure: Measure, user: UserCtx): Promise<UserCtx> {
  const { allowance } = user
  if (allowance === undefined) return user
  return { ...user, allowance: { ...allowance, bytes: { ...allowance.bytes, here: await measure() } } }
}

function tooManyBytes(used: number, limit: number): CouchError {
  return new CouchError(
    'forbidden',
    `The owner of this database may store ${limit} bytes and stores ${used}. ` +
      'Only deletions are accepted until documents are deleted and the database is compacted.',
  )
}

function tooManyDocuments(stored: number, limit: number): CouchError {
  return new CouchError(
    'forbidden',
    `The owner of this database may store ${limit} documents and stores ${stored}. ` +
      'New documents are refused until some are deleted.',
  )
}

function tooLarge(size: number, limit: number): CouchError {
  return new CouchError(
    'forbidden',
    `The document has ${size} bytes; the owner of this database may store documents of up to ${limit} bytes.`,
  )
}

/**
 * @param user the user who is refused; only server admins see how much space is free and what to do
 * @returns the refusal of writes that would grow a database; null while there is enough space
 */
export function shortage(space: Space, user?: Pick<UserCtx, 'roles'>): CouchError | null {
  if (!isShort(space)) return null
  const figures =
    `: ${megabytes(space.free)} MB are free, and the last ${megabytes(space.floor)} MB ` +
    '(settee/free_space_floor) are reserved'
  const isAdmin = user?.roles.includes('_admin') === true
  return new CouchError(
    'insufficient_storage',
    `The server's disk is full${isAdmin ? figures : ''}. Only deletions are accepted until there is space again` +
      `${isAdmin ? `: ${space.advice ?? ADVICE}` : ''}. The refused data is not stored; send it again then.`,
  )
}

const ADVICE =
  '`settee size --free` shows what frees space, and does it; or remove other files from the disk, or delete whole databases'

function megabytes(bytes: number): string {
  return (bytes / 1e6).toFixed(1)
}

/**
 * Adds the check for a full disk (docs/operating.md, Full disks) to the check of a document's edits. Each document that
 * makes the database grow is refused individually; the other documents of a bulk are stored. Deletions, `_local`
 * documents, settings, purges and compaction are allowed.
 * @param refusal null while there is enough space
 * @returns `inspect` unchanged if there is enough space
 */
export function withinSpace(
  refusal: CouchError | null,
  edits: readonly Pick<Edit, 'attachment' | 'doc'>[],
  inspect: RevisionCheck | undefined,
): RevisionCheck | undefined {
  if (refusal === null) return inspect
  return (candidate) => {
    if (grows(candidate, edits[candidate.at])) throw refusal
    inspect?.(candidate)
  }
}

function grows(candidate: NewRevision, edit: Pick<Edit, 'attachment' | 'doc'> | undefined): boolean {
  const { doc } = candidate
  if (doc.attachments.some(({ content }) => content !== null)) return true
  // Removing an attachment frees space, although the document is written again.
  const isRemoval = edit?.attachment !== undefined
  return !isRemoval && !(doc.deleted && isDeletion(candidate))
}
