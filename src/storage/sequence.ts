/**
 * Sequence tokens, `N-epoch`: N counts a database's updates, and the epoch names the period in which they were made.
 * A database that is rolled back (a copied file, a snapshot) begins another epoch with its next write, so that no
 * token means two contents. Tokens have only `[0-9A-Za-z_-]`, since clients put them into URLs unescaped (clients.md R3).
 *
 * For every engine: no number is given out twice within an epoch. So an epoch begins where the timeline changes, or
 * where the engine cannot exclude that it has changed. Several openers write into one epoch (docs/decisions/0052).
 */
import { CouchError } from '../core/errors.ts'

/** A range of numbers with one name: from `firstSeq` to before the next epoch's, or to the newest. */
export interface Epoch {
  readonly id: string
  readonly firstSeq: number
}

/** In the order of `firstSeq`; the first begins at 0, so that every number has an epoch. */
export type Epochs = readonly [Epoch, ...Epoch[]]

/** Beyond this many the two oldest become one. */
const MAX_EPOCHS = 1000

/** Of any length: CouchDB's own tokens, which clients still hold after a move to settee, are longer than ours. */
const TOKEN = /^(\d+)(?:-([0-9A-Za-z_-]+))?$/

/** A random name for an epoch, from `randomBytes` of at least 9 bytes. */
export function epochId(randomBytes: Uint8Array): string {
  return Buffer.from(randomBytes).toString('base64url').slice(0, 12)
}

/** The epochs with a new one from `firstSeq` on, without epochs that have no number. */
export function beginEpoch(epochs: Epochs, id: string, firstSeq: number): Epochs {
  const [oldest, ...rest] = [...epochs.filter((epoch) => epoch.firstSeq < firstSeq), { id, firstSeq }]
  if (oldest === undefined) throw new RangeError('an epoch list is never empty')
  if (rest.length < MAX_EPOCHS) return [oldest, ...rest]
  const [second, ...others] = rest as [Epoch, ...Epoch[]]
  return [{ id: second.id, firstSeq: oldest.firstSeq }, ...others]
}

/** The token of an update's number. */
export function sequenceToken(epochs: Epochs, seq: number): string {
  return `${seq}-${epochs[ownerOf(epochs, seq)]?.id}`
}

function ownerOf(epochs: Epochs, seq: number): number {
  let low = 0
  let high = epochs.length - 1
  while (low < high) {
    const middle = (low + high + 1) >> 1
    if ((epochs[middle] as Epoch).firstSeq <= seq) low = middle
    else high = middle - 1
  }
  return low
}

/** The meaning of a client's token. */
export interface ReadSequence {
  readonly seq: number
  /** The token's epoch is not ours: the client starts again from 0, and the log should report it. */
  readonly unknownEpoch: boolean
}

/**
 * Reads a client's `since` other than `now`. A number beyond its epoch becomes the end of that epoch: the store was
 * rolled back behind the client. An unknown epoch, or a bare number above `updateSeq`, becomes 0.
 * @param token as sent, with or without JSON quotes
 * @throws bad_request for any other text (protocol.md 5.1)
 */
export function readSequence(epochs: Epochs, updateSeq: number, token: string): ReadSequence {
  const match = TOKEN.exec(token.replace(/^"(.*)"$/, '$1'))
  if (match === null) throw new CouchError('bad_request', "Malformed sequence supplied in 'since' parameter.")
  const seq = Number(match[1])
  if (match[2] === undefined) return { seq: seq > updateSeq ? 0 : seq, unknownEpoch: false }
  const last = ownedUpTo(epochs, match[2], updateSeq)
  if (last === null) return { seq: 0, unknownEpoch: seq !== 0 }
  return { seq: Math.min(seq, last), unknownEpoch: false }
}

/** The newest sequence number of a database and its epoch, as last noted. */
export interface LastKnownSequence {
  readonly epoch: string
  readonly updateSeq: number
}

/** Whether a database has not reached its last known sequence: then its file was replaced by an older copy or another one. */
export function isRolledBack(
  { epochs, updateSeq }: { readonly epochs: Epochs; readonly updateSeq: number },
  lastKnown: LastKnownSequence,
): boolean {
  const last = ownedUpTo(epochs, lastKnown.epoch, updateSeq)
  return last === null || lastKnown.updateSeq > last
}

/** The last number of an epoch; null for an unknown epoch. */
export function ownedUpTo(epochs: Epochs, id: string, updateSeq: number): number | null {
  const owner = epochs.findIndex((epoch) => epoch.id === id)
  if (owner === -1) return null
  const next = epochs[owner + 1]
  return next === undefined ? updateSeq : next.firstSeq - 1
}
