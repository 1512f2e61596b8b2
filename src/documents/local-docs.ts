/**
 * `_local` documents: revisions `0-N` without history; they are not in feeds and do not replicate (protocol.md 3.8). As
 * in CouchDB 3 there are no conflicts: each write adds 1 to the revision that it names. Attachments are dropped, as
 * PouchDB's test suite expects of CouchDB. The first checkpoint of a replication with a restored database is refused
 * (docs/decisions/0024).
 */
import { asCouchError, CouchError } from '../core/errors.ts'
import type { UserCtx } from '../core/types.ts'
import { claimOf, foreignTokens, LostUpdates, provesLoss, restoredError } from '../storage/checkpoints.ts'
import type { DatabaseStore, LocalUpdate } from '../storage/engine.ts'
import { isAtOrBefore, NUMBERS, positionOf } from '../storage/token-position.ts'
import { exactNearLimit, localRefusal, Spending } from './document-policy.ts'
import { type IncomingDoc, namedRev } from './incoming-document.ts'
import { requireMember } from './security.ts'
import type { WriteChecks } from './write-checks.ts'

/** A write to a `_local` document. */
export interface LocalEdit {
  readonly id: string
  readonly doc: IncomingDoc
  /** True for the DELETE method: 404 unless the document exists. */
  readonly mustExist?: boolean
}

type LocalResult = { readonly rev: string; readonly deleted: boolean } | CouchError

/**
 * Writes `_local` documents.
 * @returns one result for each edit, in order; an error of the store or of the user's rights is a result too
 * @throws invalid_rev; then nothing is written
 */
export async function updateLocals(
  store: DatabaseStore,
  user: UserCtx,
  edits: readonly LocalEdit[],
  checks: Pick<WriteChecks, 'documentRules' | 'measure' | 'onLost'>,
): Promise<LocalResult[]> {
  for (const { doc } of edits) checkLocal(doc)
  const writer = await exactNearLimit(checks.measure, user, edits)
  const copied = await copiedTokens(store, edits)
  const spending = new Spending()
  const outcomes = await store.updateLocals(
    edits.map((edit) => localUpdate(writer, edit, checks, copied, spending)),
  )
  return outcomes.map((outcome) => {
    if ('result' in outcome) return outcome.result
    return 'error' in outcome ? asCouchError(outcome.error) : new CouchError('contended')
  })
}

/** Checks that a `_local` document can have the revision, before anything is written. @throws invalid_rev */
export function checkLocal(doc: IncomingDoc): void {
  const rev = namedRev(doc)
  if (rev !== null && (rev.pos !== 0 || !/^\d{1,15}$/.test(rev.id))) throw new CouchError('invalid_rev')
}

/** Tokens that are looked up for one write: a checkpoint of CouchDB has 51, one of PouchDB 6. */
const MAX_LOOKED_UP = 100

/**
 * The tokens in checkpoints that are not newer than a remembered token: a device that pulls has them from the server that
 * this database was copied from. Bare numbers do not count: they may be those of the device that pushes.
 * @returns as far as they are looked up; a checkpoint with an unknown token is unproven whatever its others are
 */
async function copiedTokens(store: DatabaseStore, edits: readonly LocalEdit[]): Promise<ReadonlySet<string>> {
  const copied = new Set<string>()
  const view = await store.view()
  if (!view.wasRestored) return copied
  let lookUps = 0
  for (const { doc } of edits) {
    for (const token of foreignTokens(doc.body, view)) {
      if (copied.has(token)) continue
      if (lookUps++ >= MAX_LOOKED_UP) return copied
      const position = positionOf(token)
      if (position === null || position.family === NUMBERS) break
      const point = await store.findPoint(position.family, Infinity, (each) => isAtOrBefore(position, each))
      if (point === null) break
      copied.add(token)
    }
  }
  return copied
}

function localUpdate(
  user: UserCtx,
  { id, doc, mustExist }: LocalEdit,
  { documentRules: rules, onLost }: Pick<WriteChecks, 'documentRules' | 'onLost'>,
  copied: ReadonlySet<string>,
  spending: Spending,
): LocalUpdate<LocalResult> {
  return {
    id,
    decide: (stored, view, wasChecked) => {
      requireMember(user, view.security)
      rules?.checkWriter(user, id, view.security, stored !== null)
      if (doc.deleted) {
        if (stored === null && mustExist) return { result: new CouchError('not_found') }
        return { result: { rev: '0-0', deleted: true }, write: null }
      }
      const { body } = doc
      const refusal = localRefusal(user.allowance, spending, { id, stored: stored?.body ?? null, body })
      if (refusal !== null) return { result: refusal }
      if (provesLoss(body, view)) {
        onLost()
        return { result: new LostUpdates() }
      }
      const claim = view.wasRestored && !wasChecked ? claimOf(doc.body, view, copied) : null
      if (claim === 'unproven') return { result: restoredError(), checked: true }
      const rev = Number(namedRev(doc)?.id ?? 0) + 1
      return {
        result: { rev: `0-${rev}`, deleted: false },
        write: { rev, body: doc.body },
        checked: claim === 'begun',
      }
    },
  }
}
