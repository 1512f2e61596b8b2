/** The one way in for the documents of a request, however they came. */
import { asCouchError, CouchError } from '../core/errors.ts'
import { isDesignId, isLocalId } from '../core/ids.ts'
import type { UserCtx } from '../core/types.ts'
import type { DatabaseStore, Decision, DocState, DocUpdate, Outcome, StoreView } from '../storage/engine.ts'
import { exactWhereTight, isTight, withinAllowance, withinRoom } from './allowance.ts'
import { policyRefusals } from './document-policy.ts'
import { decideEdits, type Edit, type EditResult } from './edit.ts'
import { type LocalEdit, updateLocals } from './local-docs.ts'
import { requireDatabaseAdmin, requireMember } from './security.ts'
import {
  type Attempt,
  KnownFacts,
  type MissingFact,
  RequestChecks,
  type WriteChecks,
} from './write-checks.ts'

/** An edit of any document. */
export type AnyEdit = NamedEdit & LocalEdit

/** Some of a request's edits, and where in it they stand. */
interface Placed {
  readonly edits: AnyEdit[]
  readonly places: number[]
}

/**
 * Carries out edits, each document atomically. For an edit that the policy refuses, nothing is read,
 * staged or written.
 * @returns a result an edit, in the order given
 * @throws invalid_rev for a `_local` document's: then nothing is written
 */
export async function writeEdits(
  store: DatabaseStore,
  user: UserCtx,
  edits: readonly AnyEdit[],
  checks: WriteChecks,
): Promise<EditResult[]> {
  const refusals = policyRefusals(checks.policy, checks.database, edits)
  // As most requests are; 1.5 us less for one of a single document.
  if (refusals === null && !edits.some(({ id }) => isLocalId(id)))
    return updateDocuments(store, user, edits, checks)
  const results: EditResult[] = new Array(edits.length)
  const locals: Placed = { edits: [], places: [] }
  const documents: Placed = { edits: [], places: [] }
  const refused: number[] = []
  for (const [at, edit] of edits.entries()) {
    const refusal = refusals?.[at] ?? null
    if (refusal === null) place(isLocalId(edit.id) ? locals : documents, edit, at)
    else {
      results[at] = refusal
      refused.push(at)
    }
  }
  await Promise.all([
    carryOut(locals, results, (some) => updateLocals(store, user, some, checks.documentRules)),
    carryOut(documents, results, (some) => updateDocuments(store, user, some, checks)),
    refuseStrangers(store, user, refused, results),
  ])
  return results
}

function place({ edits, places }: Placed, edit: AnyEdit, at: number): void {
  edits.push(edit)
  places.push(at)
}

async function carryOut(
  { edits, places }: Placed,
  results: EditResult[],
  write: (edits: readonly AnyEdit[]) => Promise<readonly EditResult[]>,
): Promise<void> {
  if (edits.length === 0) return
  const found = await write(edits)
  for (const [index, at] of places.entries()) results[at] = found[index] as EditResult
}

/** Callers without the right to write get that reason, and not the policy's. */
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

// Writing documents: rights, and the edits of each document as one update of the store.
//
// What a design document's functions say of an edit is found out between two rounds, with no lock held
// (architecture.md, "Five ideas", 4): a round decides on what is stored now and on what is known already, and either writes or says
// what it needs. A document that needs nothing is written in the first round.

/** An edit and the document it is of. */
interface NamedEdit extends Edit {
  readonly id: string
  /** The edit makes the document what it was (rewind.ts): an admin asks for it, and is not alarmed of it. */
  readonly isOfRewind?: boolean
}

/** Rounds of a document beyond one for each of its edits, each of which can depend on the one before. */
const SPARE_ROUNDS = 5

/** The edits of one document, in their order, and where in the request they stand. */
interface DocumentEdits {
  readonly id: string
  readonly edits: NamedEdit[]
  readonly places: number[]
  readonly known: KnownFacts
  rounds: number
  /** When it was last decided on tombstones among them, in ms since 1970; 0: there are none. */
  tombstonesAt: number
  /** Whether they delete the document, and not only a leaf beside others. */
  deletes: boolean
}

const NO_TOMBSTONES = Number.MAX_SAFE_INTEGER

/** The documents that a call has deleted. */
interface DeletionTally {
  count: number
  /** When the first tombstone was decided, in ms since 1970. */
  since: number
}

type Results = EditResult[]

interface Waiting {
  readonly document: DocumentEdits
  readonly needs: readonly MissingFact[]
}

/**
 * Carries out edits, each document atomically; edits of the same id are decided together, in their order.
 * @returns a result an edit, in the order given: also where the store, the user's rights or a function of a
 * design document failed it, since the others may be stored
 */
async function updateDocuments(
  store: DatabaseStore,
  user: UserCtx,
  edits: readonly NamedEdit[],
  checks: WriteChecks,
): Promise<Results> {
  const results: Results = new Array(edits.length)
  const documents = byDocument(edits)
  const writer = await exactWhereTight(store, user, edits)
  // The last, so that they do not validate what came along with them, as in CouchDB: whoever restores or
  // replicates a database has documents that are older than its rules.
  const designs = documents.filter(({ id }) => isDesignId(id))
  const ordinary = designs.length === 0 ? documents : documents.filter(({ id }) => !isDesignId(id))
  const tally = { count: 0, since: NO_TOMBSTONES }
  await carryOutUpdates(store, writer, ordinary, checks, { results, tally })
  await carryOutUpdates(store, writer, designs, checks, { results, tally })
  if (tally.since !== NO_TOMBSTONES) await noteDeletions(store, user, checks, tally)
  return results
}

async function noteDeletions(
  store: DatabaseStore,
  { name }: UserCtx,
  { deletions }: WriteChecks,
  { count, since }: DeletionTally,
): Promise<void> {
  const { docCount } = await store.view()
  // A millisecond before it the document was there, whatever the clock says when the deletion is stored.
  deletions.note({ count, since: since - 1, account: name, left: docCount }, Date.now())
}

/** Puts the results of these documents in their places. */
async function carryOutUpdates(
  store: DatabaseStore,
  user: UserCtx,
  documents: readonly DocumentEdits[],
  checks: WriteChecks,
  { results, tally }: { readonly results: Results; readonly tally: DeletionTally },
): Promise<void> {
  const examination = new RequestChecks(checks, user)
  let open = documents
  while (open.length > 0) {
    const round = examination.nextAttempt()
    const outcomes = await store.updateDocs(
      open.map((document) => documentUpdate(document, user, round, checks)),
    )
    const waiting: Waiting[] = []
    const rest: DocumentEdits[] = []
    for (const [at, document] of open.entries()) {
      const outcome = outcomes[at] as Outcome<Results, MissingFact>
      if ('needs' in outcome && hasRoundsLeft(document)) waiting.push({ document, needs: outcome.needs })
      else {
        const undecided = settle(results, document, outcome)
        if (undecided !== null) rest.push(undecided)
        if (document.tombstonesAt !== 0 && 'result' in outcome) count(tally, document)
      }
    }
    open = [...rest, ...(await meetNeeds(waiting, results, examination))]
  }
}

function count(tally: DeletionTally, { tombstonesAt, deletes }: DocumentEdits): void {
  if (deletes) tally.count += 1
  if (tombstonesAt < tally.since) tally.since = tombstonesAt
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
  return { id, edits, places, known: new KnownFacts(), rounds: 0, tombstonesAt: 0, deletes: false }
}

function hasRoundsLeft({ rounds, edits }: DocumentEdits): boolean {
  return rounds < edits.length + SPARE_ROUNDS
}

/** @returns the edits that were left for another decision, since this one would have taken too long; null: none */
function settle(
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

/** @returns the documents that go into the next round */
async function meetNeeds(
  waiting: readonly Waiting[],
  results: Results,
  examination: RequestChecks,
): Promise<DocumentEdits[]> {
  if (waiting.length === 0) return []
  try {
    const refusals = await examination.lookUp(waiting.flatMap(({ needs }) => needs))
    let next = 0
    for (const { document, needs } of waiting) {
      // One that was only put off has not had its turn.
      if (needs.length > 0) document.rounds += 1
      for (const need of needs) {
        const refusal = refusals[next++] as CouchError | null
        if (need.kind !== 'validators') document.known.add(need, refusal)
      }
    }
  } catch (error) {
    for (const { document } of waiting) settle(results, document, { error })
    return []
  }
  return waiting.map(({ document }) => document)
}

function documentUpdate(
  document: DocumentEdits,
  user: UserCtx,
  round: Attempt,
  checks: WriteChecks,
): DocUpdate<Results, MissingFact> {
  const { id, edits, known } = document
  const { allowance } = user
  const isNearLimit = checks.shortage(user) !== null || (allowance !== undefined && isTight(allowance, edits))
  return {
    id,
    bytes: edits.reduce((sum, edit) => sum + editBytes(edit), 0),
    touches: { branches: true, body: round.touchesBody || isNearLimit },
    decide: (doc, view) => {
      requireMember(user, view.security)
      checks.documentRules?.checkWriter(user, id, view.security, doc !== null && !doc.deleted)
      const stranger = isDesignId(id) ? designDocRefusal(user, view) : null
      if (stranger !== null) return { result: edits.map(() => stranger) }
      const refusal = checks.shortage(user)
      const decision = round.decide(id, view, known, (inspect) => {
        const allowed = withinAllowance(allowance, doc, view, edits, inspect)
        const { maxLeaves, maxAttachments } = checks.documentBounds
        return decideEdits(id, doc, view.revsLimit, edits, {
          check: withinRoom(refusal, edits, allowed),
          maxLeaves,
          maxAttachments,
        })
      })
      if (edits.some(isTombstone)) {
        document.tombstonesAt = Date.now()
        document.deletes = endsLife(doc, decision)
      }
      return decision
    },
  }
}

/** One that is worth a thought: what a rewind deletes, an admin has asked for. */
function isTombstone({ doc, isOfRewind }: NamedEdit): boolean {
  return doc.deleted && !isOfRewind
}

/** Whether a decision deletes a document. */
function endsLife(doc: DocState | null, decision: Decision<Results, MissingFact>): boolean {
  return doc !== null && 'write' in decision && decision.write?.deleted === true && !doc.deleted
}

/** Protocol.md 4.1: in a bulk, who may not write design documents gets a row that says so. */
function designDocRefusal(user: UserCtx, view: StoreView): CouchError | null {
  try {
    requireDatabaseAdmin(user, view.security)
    return null
  } catch (refusal) {
    if (refusal instanceof CouchError) return refusal
    throw refusal
  }
}

/** About how much an edit writes; ancestry and rows are counted as a quarter of a kilobyte. */
function editBytes({ doc }: Edit): number {
  return doc.attachments.reduce(
    (sum, { content }) => sum + (content !== null && 'bytes' in content.content ? content.storedLength : 0),
    doc.body.length + 256,
  )
}
