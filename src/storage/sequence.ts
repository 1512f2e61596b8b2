/**
 * Sequence tokens, `N-epoch`: N counts a database's updates, the epoch names the stretch of its life in which
 * they were made. A store that is rolled back (a copied file, a snapshot) begins another epoch with its next
 * write, so that no token stands for two contents. Only `[0-9A-Za-z_-]`: clients put tokens into addresses as
 * they stand (clients.md R3).
 */
import { CouchError } from '../core/errors.ts'

/** A stretch of numbers that one epoch owns: from `firstSeq` to the next entry's, or on to the newest. */
export interface Epoch {
  readonly id: string
  readonly firstSeq: number
}

/** In the order of `firstSeq`; the first begins at 0, so that every number has an owner. */
export type Epochs = readonly [Epoch, ...Epoch[]]

/** Above this many the two oldest become one. */
const MAX_EPOCHS = 1000

/** Of any length: CouchDB's own tokens, which clients still hold after a move to settee, are longer than ours. */
const TOKEN = /^(\d+)(?:-([0-9A-Za-z_-]+))?$/

/** A random name for an epoch, from `randomBytes` of at least 9 bytes. */
export function epochId(randomBytes: Uint8Array): string {
  return Buffer.from(randomBytes).toString('base64url').slice(0, 12)
}

/** The epochs with a new one that owns the numbers from `firstSeq` on; an epoch that owns none goes. */
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

/** What a client's token means here. */
interface ReadSequence {
  readonly seq: number
  /** The token's epoch is none of ours: the client starts again from 0, and the log should say so. */
  readonly unknownEpoch: boolean
}

/**
 * Reads a client's `since` that is not `now`. A number beyond what its epoch owns is the end of that epoch (the
 * store was rolled back behind the client); an epoch that is not ours, or a bare number above `updateSeq`, is 0.
 * @param token as sent; JSON quotes around it are tolerated
 * @throws bad_request when it is no token at all (protocol.md 5.1)
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

/** How far a database was when last heard of: the epoch of its newest number, and that number. */
export interface LastKnownSequence {
  readonly epoch: string
  readonly updateSeq: number
}

/** Whether a database is another one, or not as far as it was: then its file was put back by hand. */
export function isRolledBack(
  { epochs, updateSeq }: { readonly epochs: Epochs; readonly updateSeq: number },
  lastKnown: LastKnownSequence,
): boolean {
  const last = ownedUpTo(epochs, lastKnown.epoch, updateSeq)
  return last === null || lastKnown.updateSeq > last
}

/** The last number that an epoch owns; null when it is none of ours. */
export function ownedUpTo(epochs: Epochs, id: string, updateSeq: number): number | null {
  const owner = epochs.findIndex((epoch) => epoch.id === id)
  if (owner === -1) return null
  const next = epochs[owner + 1]
  return next === undefined ? updateSeq : next.firstSeq - 1
}
