/**
 * Sequence tokens of other servers, which devices still hold after their database has moved here. A token is a point in
 * the feed of the old server. A database remembers for some of them the local number after which everything is found
 * that the old server had changed after that point. A token that is not remembered is read as a remembered one that is
 * certainly older: then some changes are sent again, and none is skipped.
 */
import { createHash } from 'node:crypto'
import { readCouchSequence } from './couch-sequence.ts'
import { EPOCH_LENGTH, epochIn } from './sequence.ts'

/**
 * What a token of another server means here. Whoever states it must be sure of two things: a device that has read the
 * other feed up to the token has all documents up to `seq`, so nothing but copies of the other database is there; and
 * what the other database has changed after the token is found after `seq`, also if it is copied later.
 */
export interface RememberedToken {
  /** As the other server sent it; a bare number in decimal. With or without JSON quotes. */
  readonly token: string
  /** The local sequence number after which the feed continues for it. */
  readonly seq: number
}

/** How many updates a part of a database has had, and the file that counts them; empty if it has no name. */
export type TokenPart = readonly [file: string, count: number]

/** A point in the feed of a server. Points of different families cannot be compared. */
export interface TokenPosition {
  readonly family: string
  /** In the same order for the whole family. */
  readonly parts: readonly TokenPart[]
  /** The sum of the counts. */
  readonly total: number
}

/** A remembered token as a store keeps it. */
export interface RememberedPoint extends TokenPosition {
  readonly seq: number
}

/** How many points a database remembers. */
export const MAX_REMEMBERED = 10_000
/** So many are forgotten at once, if they can be spared. */
const FORGOTTEN = 1000
/** Of points whose feeds are this much longer than each other, one can be spared: by a factor of 2^(1/100), or 0.7 %. */
const STEPS = 100

/** The family of bare numbers, as pouchdb-server and CouchDB 1 send them. */
export const NUMBERS = 'number'

/** The form of a token that readSequence (sequence.ts) accepts. */
const TOKEN = /^(\d+)(?:-([0-9A-Za-z_-]+))?$/

/**
 * The position of a token:
 * - A bare number counts the updates of one database.
 * - settee's `N-epoch`, with or without a code, counts them within one epoch.
 * - CouchDB's `N-OPAQUE` counts those of each shard. Its family is the set of the shards' nodes and ranges.
 * - Any other token has a family of its own, so it equals only itself.
 * @returns null for a beginning that is not a bare 0, and for text that no server sends
 */
export function positionOf(token: string): TokenPosition | null {
  const [, digits, opaque] = TOKEN.exec(token.replace(/^"(.*)"$/, '$1')) ?? []
  if (digits === undefined) return null
  const number = Number(digits)
  if (opaque === undefined) return { family: NUMBERS, parts: [['', number]], total: number }
  if (number === 0) return null
  const epoch = epochIn(opaque)
  if (epoch.length === EPOCH_LENGTH) return { family: `epoch ${epoch}`, parts: [['', number]], total: number }
  const shards = readCouchSequence(opaque)
  if (shards === null) return { family: `token ${digestOf(`${digits}-${opaque}`)}`, parts: [], total: 0 }
  return {
    family: `shards ${digestOf(JSON.stringify(shards.map(({ shard }) => shard)))}`,
    parts: shards.map(({ file, seq }) => [seq === 0 ? '' : file, seq]),
    total: shards.reduce((sum, { seq }) => sum + seq, 0),
  }
}

/** Whether a point is the same as or certainly older than another one of its family. */
export function isAtOrBefore({ parts }: Pick<TokenPosition, 'parts'>, other: TokenPosition): boolean {
  return (
    parts.length === other.parts.length &&
    parts.every(([file, count], at) => {
      const [otherFile, otherCount] = other.parts[at] as TokenPart
      return count === 0 || (file === otherFile && count <= otherCount)
    })
  )
}

/**
 * Which points are forgotten when there are too many. A server that follows another one remembers a token each second.
 * So of those from which the feed is about equally long, the oldest stands for all; devices that have been away for
 * long still find one that is not much older than their own.
 * @param points the oldest first
 * @param updateSeq the newest local number
 * @returns none unless there are more than MAX_REMEMBERED
 */
export function forgotten<Point extends Pick<RememberedPoint, 'family' | 'seq'>>(
  points: readonly Point[],
  updateSeq: number,
): readonly Point[] {
  const excess = points.length - MAX_REMEMBERED
  if (excess <= 0) return []
  const known = new Set<string>()
  const [needed, spare]: [Point[], Point[]] = [[], []]
  for (const point of points) {
    const key = `${point.family} ${Math.floor(Math.log2(updateSeq - point.seq + 1) * STEPS)}`
    if (known.has(key)) spare.push(point)
    else needed.push(point)
    known.add(key)
  }
  const most = Math.max(excess, Math.min(spare.length, FORGOTTEN))
  return [...spare, ...needed].slice(0, most)
}

function digestOf(text: string): string {
  return createHash('sha256').update(text).digest('base64url').slice(0, 22)
}
