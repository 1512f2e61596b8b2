/**
 * Writes the documents of a request. All documents from all requests are written here.
 *
 * The decision about an edit is made in the turn that writes, but a function of a design document runs on another
 * thread. So a document that such functions must check takes several attempts (architecture.md, "Five ideas", 4):
 *
 * 1. {@link documentUpdate} decides from the stored state and the facts known so far.
 * 2. If facts are missing, the attempt writes nothing and returns the facts that it needs.
 * 3. {@link lookUpFacts} looks them up, with no lock held. Then the next attempt begins at 1.
 *
 * A document that needs no facts is written by the first attempt.
 */
import { asCouchError, CouchError } from '../core/errors.ts'
import { isDesignId, isLocalId } from '../core/ids.ts'
import type { UserCtx } from '../core/types.ts'
import type { DatabaseStore, Decision, DocState, DocUpdate, Outcome, StoreView } from '../storage/engine.ts'
import { haveLargeContents, inlineLength, withStagedContents } from './attachment-uploads.ts'
import {
  ancestryCheck,
  dependsOnCounts,
  exactNearLimit,
  isNearLimit,
  policyRefusals,
  Spending,
  withinAllowance,
  withinSpace,
} from './document-policy.ts'
import { decideEdits, type Edit, type EditResult } from './edit.ts'
import { readSetOfEdits } from './edit-read-set.ts'
import { type LocalEdit, updateLocals } from './local-docs.ts'
import { databaseRole, requireDatabaseAdmin, requireMember } from './security.ts'
import {
  type Attempt,
  KnownFacts,
  type MissingFact,
  RequestChecks,
  type WriteChecks,
} from './write-checks.ts'

/** An edit of a document with its id. */
interface NamedEdit extends Edit {
  readonly id: string
  /** The edit is part of a rewind (rewind.ts): an admin asked for it, so its deletions raise no alarm. */
  readonly isOfRewind?: boolean
  /** The edit is made by `_index`: {@link PutOptions.isIndex}. */
  readonly isIndex?: boolean
}

/** An edit of any document, `_local` ones included. */
export type AnyEdit = NamedEdit & LocalEdit

/** Some of a request's edits, and their indexes in the request. */
interface EditSubset {
  readonly edits: AnyEdit[]
  readonly places: number[]
}

/**
 * Carries out edits, each document atomically. An edit that the policy refuses reads, stages and writes nothing.
 * @returns one result for each edit, in the order given
 * @throws invalid_rev for the revision of a `_local` document; then nothing is written
 */
export async function writeEdits(
  store: DatabaseStore,
  user: UserCtx,
  edits: readonly AnyEdit[],
  checks: WriteChecks,
): Promise<EditResult[]> {
  const refusals = policyRefusals(checks.policy, checks.database, edits)
  // The usual request; this saves 1.5 us for a single document.
  if (refusals === null && !edits.some(({ id }) => isLocalId(id)))
    return storeDocuments(store, user, edits, checks)
  const results: EditResult[] = new Array(edits.length)
  const locals: EditSubset = { edits: [], places: [] }
  const documents: EditSubset = { edits: [], places: [] }
  const refused: number[] = []
  for (const [at, edit] of edits.entries()) {
    const refusal = refusals?.[at] ?? null
    if (refusal === null) {
      const subset = isLocalId(edit.id) ? locals : documents
      subset.edits.push(edit)
      subset.places.push(at)
    } else {
      results[at] = refusal
      refused.push(at)
    }
  }
  await Promise.all([
    writeSubset(locals, results, (some) => updateLocals(store, user, some, checks)),
    writeSubset(documents, results, (some) => storeDocuments(store, user, some, checks)),
    refuseStrangers(store, user, refused, results),
  ])
  return results
}

async function writeSubset(
  { edits, places }: EditSubset,
  results: EditResult[],
  write: (edits: readonly AnyEdit[]) => Promise<readonly EditResult[]>,
): Promise<void> {
  if (edits.length === 0) return
  const found = await write(edits)
  for (const [index, at] of places.entries()) results[at] = found[index] as EditResult
}

/** Callers without the right to write get that reason, not the policy's reason. */
async function refuseStrangers(
  store: DatabaseStore,
  user: UserCtx,
  refused: readonly number[],
  results: EditResult[],
): Promise<void> {
  if (refused.length === 0) return
  const { security } = await store.view()
  try {
    requireMember(user, security)
  } catch (refusal) {
    if (!(refusal instanceof CouchError)) throw refusal
    for (const at of refused) results[at] = refusal
  }
}

/** Attempts per document in addition to one for each edit, since each edit can depend on the one before. */
const SPARE_ATTEMPTS = 5

/** The edits of one document in their order, and their indexes in the request. */
interface DocumentEdits {
  readonly id: string
  readonly edits: NamedEdit[]
  readonly places: number[]
  readonly known: KnownFacts
  attempts: number
  /** When the last decision with tombstones was made, in ms since 1970; 0 without tombstones. */
  tombstonesAt: number
  /** Whether they delete the whole document, not just one of several leaves. */
  deletes: boolean
}

/** The documents that a call has deleted. */
interface DeletionCount {
  count: number
  /** When the first tombstone was decided, in ms since 1970. */
  since: number
}

const NO_TOMBSTONES = Number.MAX_SAFE_INTEGER

type Results = EditResult[]

/** A document whose last attempt wrote nothing. */
interface Undecided {
  readonly document: DocumentEdits
  readonly missing: readonly MissingFact[]
}

/** As {@link updateDocuments}; stores large contents before the documents, if the user may write at all. */
async function storeDocuments(
  store: DatabaseStore,
  user: UserCtx,
  edits: readonly NamedEdit[],
  checks: WriteChecks,
): Promise<Results> {
  if (!haveLargeContents(edits)) return updateDocuments(store, user, edits, checks)
  const { security } = await store.view()
  // The write refuses a stranger, and stores nothing of it.
  if (databaseRole(user, security) === 'none') return updateDocuments(store, user, edits, checks)
  let isStored = false
  const update = (some: readonly NamedEdit[]) => {
    isStored = true
    return updateDocuments(store, user, some, checks)
  }
  return withStagedContents(store, edits, () => checks.shortage(user), update).catch((error: unknown) => {
    if (isStored) throw error
    return edits.map(() => asCouchError(error))
  })
}

/**
 * Carries out edits, each document atomically; edits of the same id are decided together, in their order.
 * @returns one result for each edit, in the order given. An error of the store, of the user's rights or of a design
 * document's function is a result too, since other documents may be stored
 */
async function updateDocuments(
  store: DatabaseStore,
  user: UserCtx,
  edits: readonly NamedEdit[],
  checks: WriteChecks,
): Promise<Results> {
  const results: Results = new Array(edits.length)
  const documents = byDocument(edits)
  const writer = await exactNearLimit(checks.measure, user, edits)
  // Design documents come last, so that they do not validate the documents of the same request, as in CouchDB: a
  // restored or replicated database has documents that are older than its rules.
  const designs = documents.filter(({ id }) => isDesignId(id))
  const ordinary = designs.length === 0 ? documents : documents.filter(({ id }) => !isDesignId(id))
  const deletions = { count: 0, since: NO_TOMBSTONES }
  const { allowance } = writer
  const tally = {
    results,
    deletions,
    spending: new Spending(),
    isNearLimit: allowance !== undefined && isNearLimit(allowance, edits),
  }
  await attemptUpdates(store, writer, ordinary, checks, tally)
  if (designs.length > 0) await attemptUpdates(store, writer, designs, checks, tally)
  if (deletions.since !== NO_TOMBSTONES) {
    const { docCount } = await store.view()
    // The document existed one millisecond earlier, whatever the clock shows when the deletion is stored.
    const since = deletions.since - 1
    const { count } = deletions
    checks.deletions.note({ count, since, account: user.name, left: docCount }, Date.now())
  }
  return results
}

function byDocument(edits: readonly NamedEdit[]): DocumentEdits[] {
  const documents = new Map<string, DocumentEdits>()
  for (const [at, edit] of edits.entries()) {
    let document = documents.get(edit.id)
    if (document === undefined) {
      document = editsOf(edit.id, [], [])
      documents.set(edit.id, document)
    }
    document.edits.push(edit)
    document.places.push(at)
  }
  return [...documents.values()]
}

function editsOf(id: string, edits: NamedEdit[], places: number[]): DocumentEdits {
  return { id, edits, places, known: new KnownFacts(), attempts: 0, tombstonesAt: 0, deletes: false }
}

/** What the documents of a request come to. */
interface Tally {
  readonly results: Results
  readonly deletions: DeletionCount
  readonly spending: Spending
  /** Whether a document may be refused for its size, which depends on stored bodies. */
  readonly isNearLimit: boolean
}

/** Attempts to update documents until each has its results, and puts the results at the indexes of their edits. */
async function attemptUpdates(
  store: DatabaseStore,
  user: UserCtx,
  documents: readonly DocumentEdits[],
  checks: WriteChecks,
  tally: Tally,
): Promise<void> {
  const { results, deletions } = tally
  const requestChecks = new RequestChecks(checks, user)
  let pending = documents
  while (pending.length > 0) {
    const attempt = requestChecks.nextAttempt()
    const outcomes = await store.updateDocs(
      pending.map((document) => documentUpdate(document, user, attempt, checks, tally)),
    )
    const undecided: Undecided[] = []
    const rest: DocumentEdits[] = []
    for (const [at, document] of pending.entries()) {
      const outcome = outcomes[at] as Outcome<Results, MissingFact>
      if ('needs' in outcome && hasAttemptsLeft(document))
        undecided.push({ document, missing: outcome.needs })
      else {
        const remaining = placeResults(results, document, outcome)
        if (remaining !== null) rest.push(remaining)
        if (document.tombstonesAt !== 0 && 'result' in outcome) countDeletion(deletions, document)
      }
    }
    pending = [...rest, ...(await lookUpFacts(undecided, results, requestChecks))]
  }
}

function hasAttemptsLeft({ attempts, edits }: DocumentEdits): boolean {
  return attempts < edits.length + SPARE_ATTEMPTS
}

function countDeletion(deletions: DeletionCount, { tombstonesAt, deletes }: DocumentEdits): void {
  if (deletes) deletions.count += 1
  if (tombstonesAt < deletions.since) deletions.since = tombstonesAt
}

/** @returns the edits left for another decision because this one would have taken too long, or null */
function placeResults(
  results: Results,
  document: DocumentEdits,
  outcome: Outcome<Results, MissingFact>,
): DocumentEdits | null {
  const { id, edits, places } = document
  const decided = 'result' in outcome ? outcome.result.length : places.length
  for (let index = 0; index < decided; index++) results[places[index] as number] = resultOf(outcome, index)
  return decided === places.length ? null : editsOf(id, edits.slice(decided), places.slice(decided))
}

function resultOf(outcome: Outcome<Results, MissingFact>, index: number): EditResult {
  if ('result' in outcome) return outcome.result[index] as EditResult
  return 'error' in outcome ? asCouchError(outcome.error) : new CouchError('contended')
}

/** Looks up the facts that the last attempt lacked. @returns the documents for the next attempt */
async function lookUpFacts(
  undecided: readonly Undecided[],
  results: Results,
  requestChecks: RequestChecks,
): Promise<DocumentEdits[]> {
  if (undecided.length === 0) return []
  try {
    const refusals = await requestChecks.lookUp(undecided.flatMap(({ missing }) => missing))
    let next = 0
    for (const { document, missing } of undecided) {
      // Without missing facts the document was only postponed, and that was no attempt.
      if (missing.length > 0) document.attempts += 1
      for (const fact of missing) {
        const refusal = refusals[next++] as CouchError | null
        if (fact.kind !== 'functions') document.known.add(fact, refusal)
      }
    }
  } catch (error) {
    for (const { document } of undecided) placeResults(results, document, { error })
    return []
  }
  return undecided.map(({ document }) => document)
}

function documentUpdate(
  document: DocumentEdits,
  user: UserCtx,
  attempt: Attempt,
  checks: WriteChecks,
  { spending, isNearLimit }: Pick<Tally, 'spending' | 'isNearLimit'>,
): DocUpdate<Results, MissingFact> {
  const { id, edits, known } = document
  const { allowance } = user
  const rules = edits.some(({ isRepair }) => isRepair) ? undefined : checks.documentRules
  const isAttachment = edits.some(({ attachment }) => attachment !== undefined)
  const mayBeRefused = checks.shortage(user) !== null || isNearLimit
  const readSet = readSetOfEdits(edits, mayBeRefused || attempt.readsOld(id))
  return {
    id,
    bytes: edits.reduce((sum, edit) => sum + editBytes(edit), 0),
    readSet: rules?.checkStored === undefined ? readSet : { ...readSet, body: true },
    decide: (doc, view) => {
      requireMember(user, view.security)
      const { security } = view
      rules?.checkWriter(user, id, security, doc !== null && !doc.deleted)
      rules?.checkStored?.(doc, { id, user, security, isAttachment })
      const designRefusal = isDesignId(id) ? designDocRefusal(user, view) : null
      if (designRefusal !== null) return { result: edits.map(() => designRefusal) }
      const shortage = checks.shortage(user)
      const decision = attempt.decide(id, view, known, (check) => {
        const allowed = withinAllowance(allowance, spending, { id, doc, view }, check)
        const { maxLeaves, maxAttachments } = checks.documentBounds
        return decideEdits(id, doc, view.revsLimit, edits, {
          check: withinSpace(shortage, edits, allowed),
          checkAncestry: ancestryCheck(id, allowance, spending, shortage),
          maxLeaves,
          maxAttachments,
        })
      })
      if (edits.some(isTombstone)) {
        document.tombstonesAt = Date.now()
        document.deletes = deletesDocument(doc, decision)
      }
      if ('needs' in decision || allowance === undefined) return decision
      return dependsOnCounts(allowance, view, doc, edits) ? { ...decision, dependsOnCounts: true } : decision
    },
  }
}

/** Whether an edit counts as a deletion. Deletions by a rewind do not count, since an admin requested it. */
function isTombstone({ doc, isOfRewind }: NamedEdit): boolean {
  return doc.deleted && !isOfRewind
}

function deletesDocument(doc: DocState | null, decision: Decision<Results, MissingFact>): boolean {
  return doc !== null && 'write' in decision && decision.write?.deleted === true && !doc.deleted
}

/** Protocol.md 4.1: in a bulk, a design document that the user may not write is refused in its own row. */
function designDocRefusal(user: UserCtx, view: StoreView): CouchError | null {
  try {
    requireDatabaseAdmin(user, view.security)
    return null
  } catch (refusal) {
    if (refusal instanceof CouchError) return refusal
    throw refusal
  }
}

/** The approximate bytes that an edit writes; ancestry and rows are counted as 256 bytes. */
function editBytes(edit: Edit): number {
  return inlineLength([edit]) + edit.doc.body.length + 256
}
