/**
 * Replication checkpoints: the `_local` documents in which a replication notes how far it is (protocol.md 14.2), and
 * what becomes of them when a database is put back to an earlier state (docs/decisions/0024).
 *
 * A device that pushes remembers how far it has pushed. After a restore that is a claim to have brought what is no
 * longer here; believed once, nothing that was lost comes back. So a restored database forgets the checkpoints that
 * it had, and refuses the first one of each replication: its client reads how far it is, finds nothing, and compares
 * everything that it has.
 */
import { isJsonObject } from '../core/json.ts'
import { type Epochs, ownedUpTo } from './sequence.ts'

/**
 * What a checkpoint claims. `begun`: nothing, a replication from its beginning. `held`: only what this database
 * certainly holds. `unproven`: anything else.
 */
type Claim = 'begun' | 'held' | 'unproven'

/** Characters of a checkpoint: those of CouchDB and PouchDB have up to 50 entries of about 300 characters. */
const MAX_CHECKPOINT = 256 * 1024

/** Whether the text could be one; asked of every `_local` document of a restored database. */
function mayBeCheckpoint(body: string): boolean {
  return body.length <= MAX_CHECKPOINT && body.includes('"session_id"') && body.includes('"history"')
}

/** The sequences that a checkpoint names, PouchDB's or CouchDB's; null: it is none. */
function claimedSequences(body: string): readonly unknown[] | null {
  if (!mayBeCheckpoint(body)) return null
  const doc: unknown = JSON.parse(body)
  if (!isJsonObject(doc) || typeof doc.session_id !== 'string' || !Array.isArray(doc.history)) return null
  const entries = doc.history.filter(isJsonObject)
  return [
    doc.last_seq ?? doc.source_last_seq,
    ...entries.map((entry) => entry.last_seq ?? entry.recorded_seq),
  ]
}

/** @param body a stored `_local` document's */
export function isCheckpoint(body: string): boolean {
  return claimedSequences(body) !== null
}

/**
 * What a checkpoint that is to be written claims of the database.
 *
 * A token of the database's own, of a number that its epoch gave out, stands for one state of it and no other: what
 * has it came from here, or from a copy of the same state, and all that the token stands for is here. So the
 * checkpoints of pulls need not be refused.
 * @param body as it would be stored
 * @returns null: it is no checkpoint
 */
export function claimOf(
  body: string,
  view: { readonly epochs: Epochs; readonly updateSeq: number },
): Claim | null {
  const claimed = claimedSequences(body)
  if (claimed === null) return null
  if (claimed.every(isBeginning)) return 'begun'
  return claimed.every((seq) => isBeginning(seq) || isHeld(seq, view)) ? 'held' : 'unproven'
}

function isBeginning(seq: unknown): boolean {
  return seq === 0 || (typeof seq === 'string' && /^0(?:-|$)/.test(seq))
}

function isHeld(seq: unknown, view: { readonly epochs: Epochs; readonly updateSeq: number }): boolean {
  const match = typeof seq === 'string' ? /^(\d{1,15})-([0-9A-Za-z_-]+)$/.exec(seq) : null
  if (match === null) return false
  const last = ownedUpTo(view.epochs, match[2] as string, view.updateSeq)
  return last !== null && Number(match[1]) <= last
}
