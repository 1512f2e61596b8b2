/**
 * Replication checkpoints: the `_local` documents in which a replication stores its progress (protocol.md 14.2), and
 * how a restored database treats them (docs/decisions/0024).
 *
 * A device that pushes remembers how far it has pushed. After a restore its checkpoint claims documents that the
 * database has lost; if the claim were accepted, they would never be pushed again. So a restored database removes its
 * checkpoints and refuses the first one of each replication. The client then reads its checkpoint, finds none, and
 * compares everything that it has.
 */
import { CouchError } from '../core/errors.ts'
import { isJsonObject } from '../core/json.ts'
import type { StoreView } from './engine.ts'
import { EPOCH_LENGTH, epochIn, ownedUpTo, readSequence } from './sequence.ts'
import { CODE_LENGTH } from './token-code.ts'

/**
 * What a checkpoint claims. `begun`: nothing, since the replication starts. `held`: only what this database certainly
 * has. `unproven`: anything else.
 */
type Claim = 'begun' | 'held' | 'unproven'

/** Characters of a checkpoint: those of CouchDB and PouchDB have up to 50 entries of about 300 characters. */
const MAX_CHECKPOINT = 256 * 1024

/** A cheap check, made for every `_local` document of a restored database. */
function mayBeCheckpoint(body: string): boolean {
  return body.length <= MAX_CHECKPOINT && body.includes('"session_id"') && body.includes('"history"')
}

/** The sequences in a checkpoint of PouchDB or CouchDB, newest first; null for any other document. @param body JSON */
export function claimedSequences(body: string): readonly unknown[] | null {
  if (!mayBeCheckpoint(body)) return null
  const doc: unknown = JSON.parse(body)
  if (!isJsonObject(doc) || typeof doc.session_id !== 'string' || !Array.isArray(doc.history)) return null
  const entries = doc.history.filter(isJsonObject)
  return [
    doc.last_seq ?? doc.source_last_seq,
    ...entries.map((entry) => entry.last_seq ?? entry.recorded_seq),
  ]
}

/** What a client reads that must compare everything that it has. */
const RESTORED_REASON =
  'This database was restored to an earlier state, so later changes may be missing: ' +
  'sync again to compare all documents.'

/** A checkpoint or a token claims what the database may have lost: the client comes again, and compares. */
export function restoredError(): CouchError {
  return new CouchError('unavailable', RESTORED_REASON)
}

/** A client has shown a token that proves that the database has lost updates ({@link ReadSequence.isLost}). */
export class LostUpdates extends CouchError {
  constructor() {
    super('unavailable', RESTORED_REASON)
  }
}

/** A token with a code in a checkpoint. */
const CODED = new RegExp(`"(\\d{1,15}-[0-9A-Za-z_-]{${EPOCH_LENGTH + CODE_LENGTH}})"`, 'g')
/** Tokens of one checkpoint that are looked at: one of CouchDB has 51, one of PouchDB 6. */
const MAX_CODED = 60

/** Whether a checkpoint has a token that proves that the database has lost updates. @param body JSON */
export function provesLoss(body: string, { epochs, updateSeq }: ClaimView): boolean {
  if (!mayBeCheckpoint(body)) return false
  let looked = 0
  for (const [, token] of body.matchAll(CODED)) {
    if (readSequence(epochs, updateSeq, token as string).isLost) return true
    if (++looked >= MAX_CODED) return false
  }
  return false
}

/** Whether the body of a stored `_local` document is a checkpoint. */
export function isCheckpoint(body: string): boolean {
  return claimedSequences(body) !== null
}

/** The state that a claim is compared with. */
type ClaimView = Pick<StoreView, 'epochs' | 'updateSeq'>

/**
 * What a new checkpoint claims of the database.
 *
 * A token of one of the database's own epochs, within that epoch's numbers, names exactly one state of this database,
 * and the database still has everything of that state. So the checkpoints of pulls need not be refused.
 * @param body as it would be stored
 * @param copied those of {@link foreignTokens} that come from the feed of the server that this database was copied from
 * @returns null when it is not a checkpoint
 */
export function claimOf(
  body: string,
  view: ClaimView,
  copied: ReadonlySet<string> = new Set(),
): Claim | null {
  const claimed = claimedSequences(body)
  if (claimed === null) return null
  if (claimed.every(isBeginning)) return 'begun'
  const isProven = (seq: unknown) => isBeginning(seq) || isHeld(seq, view) || copied.has(String(seq))
  return claimed.every(isProven) ? 'held' : 'unproven'
}

/** The tokens that a checkpoint claims, other than the database's own. */
export function foreignTokens(body: string, view: ClaimView): readonly string[] {
  const claimed = claimedSequences(body) ?? []
  return claimed
    .filter((seq) => typeof seq === 'string')
    .filter((seq) => !isBeginning(seq) && !isHeld(seq, view))
}

function isBeginning(seq: unknown): boolean {
  return seq === 0 || (typeof seq === 'string' && /^0(?:-|$)/.test(seq))
}

function isHeld(seq: unknown, view: ClaimView): boolean {
  const match = typeof seq === 'string' ? /^(\d{1,15})-([0-9A-Za-z_-]+)$/.exec(seq) : null
  if (match === null) return false
  const last = ownedUpTo(view.epochs, epochIn(match[2] as string), view.updateSeq)
  return last !== null && Number(match[1]) <= last
}
