/** Reads a client's `since`: a token of this database, or one of a server that the database has moved from. */
import type { DatabaseStore, StoreView } from '../storage/engine.ts'
import { type ReadSequence, readSequence } from '../storage/sequence.ts'
import { isAtOrBefore, NUMBERS, positionOf } from '../storage/token-position.ts'

/**
 * A token of another server is read as the newest remembered token that is certainly not newer than it
 * (storage/token-position.ts), otherwise as 0. A bare number could be a local one, but settee sends none: in a database
 * that has remembered bare numbers it is one of those.
 * @param view of the same database
 * @param token as sent, other than `now`
 * @throws bad_request for malformed text
 */
export async function readSince(
  store: Pick<DatabaseStore, 'findPoint'>,
  { epochs, updateSeq }: Pick<StoreView, 'epochs' | 'updateSeq'>,
  token: string,
): Promise<ReadSequence> {
  const local = readSequence(epochs, updateSeq, token)
  if (local.isLost) return local
  const position = positionOf(token)
  const isBare = position?.family === NUMBERS && position.total > 0
  if (position === null || !(local.unknownEpoch || isBare)) return local
  const { family, total } = position
  const point = await store.findPoint(family, total, (each) => isAtOrBefore(each, position))
  if (point !== null) return { seq: point.seq, unknownEpoch: false }
  if (local.unknownEpoch || (await store.findPoint(family, Infinity, () => true)) === null) return local
  return { seq: 0, unknownEpoch: true }
}
