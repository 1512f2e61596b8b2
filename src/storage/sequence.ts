/**
 * Sequence tokens, `N-epoch`: N counts a database's updates, and the epoch names the period in which they were made.
 * A database that is rolled back (a copied file, a snapshot) begins another epoch with its next write, so that no
 * token means two contents. Tokens have only `[0-9A-Za-z_-]`, since clients put them into URLs unescaped (clients.md R3).
 *
 * Tokens of a database end with a code that only the database can make, `N-epochcode`. So a token that it cannot have given out as it
 * is now proves that it has lost updates, whatever way it went back (docs/decisions/0024); others can be made up by anybody who
 * has seen one. Tokens without a code, as earlier versions gave out, prove nothing.
 *
 * For every engine: no number is given out twice within an epoch. So an epoch begins where the timeline changes, or
 * where the engine cannot exclude that it has changed. Several openers write into one epoch (docs/decisions/0052).
 */
import { randomBytes } from 'node:crypto'
import { CouchError } from '../core/errors.ts'
import { CODE_LENGTH, type CodeKey, codeKey, codeOf } from './token-code.ts'

/** A range of numbers with one name: from `firstSeq` to before the next epoch's, or to the newest. */
export interface Epoch {
  readonly id: string
  readonly firstSeq: number
  /** What the codes of its tokens are made with; it is the same for all epochs of a database that have one. */
  readonly key?: string
  /** What was given out before this time, in ms since 1970, and is not there, is known to be lost. */
  readonly restoredAt?: number
}

/** In the order of `firstSeq`; the first begins at 0, so that every number has an epoch. */
export type Epochs = readonly [Epoch, ...Epoch[]]

/** Beyond this many the two oldest become one. */
const MAX_EPOCHS = 1000

/** Of any length: CouchDB's own tokens, which clients still hold after a move to settee, are longer than ours. */
const TOKEN = /^(\d+)(?:-([0-9A-Za-z_-]+))?$/

/** The characters of an epoch's name. */
export const EPOCH_LENGTH = 12
const KEY_BYTES = 9
/** A name of an epoch with a key begins with its time, in ms since 1970, in so many bytes. */
const TIME_BYTES = 6

/** A random name for an epoch, from `randomBytes` of at least 9 bytes. */
export function epochId(randomBytes: Uint8Array): string {
  return Buffer.from(randomBytes).toString('base64url').slice(0, 12)
}

/** The epochs with a new one from `firstSeq` on, without epochs that have no number. */
export function beginEpoch(epochs: Epochs, id: string, firstSeq: number): Epochs {
  return withEpoch(epochs, { id, firstSeq })
}

function withEpoch(epochs: Epochs, epoch: Epoch): Epochs {
  const [oldest, ...rest] = [...epochs.filter(({ firstSeq }) => firstSeq < epoch.firstSeq), epoch]
  if (oldest === undefined) throw new RangeError('an epoch list is never empty')
  if (rest.length < MAX_EPOCHS) return [oldest, ...rest]
  const [second, ...others] = rest as [Epoch, ...Epoch[]]
  return [{ ...oldest, ...second, firstSeq: oldest.firstSeq }, ...others]
}

/** The epochs of a new database. @param now in ms since 1970 */
export function firstEpochs(now: number): Epochs {
  return [{ id: timedId(now), firstSeq: 0, key: newKey() }]
}

interface Renewal {
  readonly now: number
  readonly isRestored?: boolean
  readonly isCopy?: boolean
}

/**
 * As {@link beginEpoch}, for a database: with a name and a key for codes.
 * @param now in ms since 1970
 * @param isRestored whether updates may be lost, and everybody who has pushed will compare
 * @param isCopy whether the original may still be served: its tokens prove nothing then, and it knows none of the copy
 */
export function renewEpochs(
  epochs: Epochs,
  firstSeq: number,
  { now, isRestored = false, isCopy = false }: Renewal,
): Epochs {
  const newest = epochs.at(-1)
  const time = newest?.key === undefined ? now : Math.max(now, timeOf(newest.id) + 1)
  // The mark of an epoch that has no number is not lost with it.
  const before = epochs.findLast((epoch) => epoch.restoredAt !== undefined && epoch.firstSeq >= firstSeq)
  const restoredAt = isRestored ? time : before?.restoredAt
  const key = isCopy ? newKey() : (keyOf(epochs) ?? newKey())
  return withEpoch(epochs, {
    id: timedId(time),
    firstSeq,
    key,
    ...(restoredAt !== undefined && { restoredAt }),
  })
}

function newKey(): string {
  return randomBytes(KEY_BYTES).toString('base64url')
}

function keyOf(epochs: Epochs): string | undefined {
  return epochs.findLast(({ key }) => key !== undefined)?.key
}

function timedId(time: number): string {
  const bytes = randomBytes(9)
  bytes.writeUIntBE(time, 0, TIME_BYTES)
  return epochId(bytes)
}

function timeOf(id: string): number {
  return Buffer.from(id, 'base64url').readUIntBE(0, TIME_BYTES)
}

/** The keys of codes, by the epoch whose tokens have them. */
const codeKeys = new WeakMap<Epoch, CodeKey>()

/** The key of the codes of an epoch's tokens. */
function keyOfCodes(epoch: Epoch, secret: string): CodeKey {
  let key = codeKeys.get(epoch)
  if (key === undefined) {
    key = codeKey(secret, epoch.id)
    codeKeys.set(epoch, key)
  }
  return key
}

/** The token of an update's number. */
export function sequenceToken(epochs: Epochs, seq: number): string {
  return sequenceTokens(epochs)(seq)
}

/**
 * As {@link sequenceToken}, for many numbers: each row of a feed has a token, and neighbours are of one epoch.
 * The code of a token has 30 bits: whoever guesses one needs as many requests.
 */
export function sequenceTokens(epochs: Epochs): (seq: number) => string {
  let [first, end] = [0, 0]
  let name = ''
  let key: CodeKey | undefined
  return (seq) => {
    if (seq < first || seq >= end) {
      const owner = ownerOf(epochs, seq)
      const epoch = epochs[owner] as Epoch
      first = epoch.firstSeq
      end = epochs[owner + 1]?.firstSeq ?? Number.POSITIVE_INFINITY
      name = epoch.id
      key = epoch.key === undefined ? undefined : keyOfCodes(epoch, epoch.key)
    }
    return key === undefined ? `${seq}-${name}` : `${seq}-${name}${codeOf(key, seq)}`
  }
}

/** The name of the epoch that a number belongs to. */
export function epochAt(epochs: Epochs, seq: number): string {
  return (epochs[ownerOf(epochs, seq)] as Epoch).id
}

/** The name of the epoch in what follows the number of a token, which may have a code. */
export function epochIn(opaque: string): string {
  return opaque.length === EPOCH_LENGTH + CODE_LENGTH ? opaque.slice(0, EPOCH_LENGTH) : opaque
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
  /** The database has given out the token, and has lost what it names, which nobody has noticed yet. */
  readonly isLost?: true
}

/**
 * Reads a client's `since` other than `now`. A number beyond its epoch becomes the end of that epoch: the store was
 * rolled back behind the client. An unknown epoch, or a bare number above `updateSeq`, becomes 0.
 * @param token as sent, with or without JSON quotes
 * @param now in ms since 1970
 * @throws bad_request for any other text (protocol.md 5.1)
 */
export function readSequence(
  epochs: Epochs,
  updateSeq: number,
  token: string,
  now: number = Date.now(),
): ReadSequence {
  const match = TOKEN.exec(token.replace(/^"(.*)"$/, '$1'))
  if (match === null) throw new CouchError('bad_request', "Malformed sequence supplied in 'since' parameter.")
  const seq = Number(match[1])
  if (match[2] === undefined) return { seq: seq > updateSeq ? 0 : seq, unknownEpoch: false }
  const last = ownedUpTo(epochs, epochIn(match[2]), updateSeq)
  const isLost = (last === null || seq > last) &&
    provesLoss(epochs, seq, match[2], now) && { isLost: true as const }
  if (last === null) return { seq: 0, unknownEpoch: seq !== 0, ...isLost }
  return { seq: Math.min(seq, last), unknownEpoch: false, ...isLost }
}

/**
 * Whether the database has given out the token of a number that it does not have, after it was last restored. What was lost by that
 * restore was dealt with.
 */
function provesLoss(epochs: Epochs, seq: number, opaque: string, now: number): boolean {
  const [id, key] = [epochIn(opaque), keyOf(epochs)]
  if (key === undefined || id === opaque || !Number.isSafeInteger(seq)) return false
  if (opaque.slice(EPOCH_LENGTH) !== codeOf(codeKey(key, id), seq)) return false
  const restored = epochs.findLastIndex(({ restoredAt }) => restoredAt !== undefined)
  const known = epochs.findIndex((epoch) => epoch.id === id)
  if (known !== -1) return restored <= known
  // A clock that is behind that of another node: once it has caught up, the restore is later than the token.
  const time = timeOf(id)
  return time < now && time > (epochs[restored]?.restoredAt ?? 0)
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
