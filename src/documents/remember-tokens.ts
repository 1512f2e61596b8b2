/** Remembers what sequence tokens of another server mean in a database (storage/token-position.ts). */
import { CouchError } from '../core/errors.ts'
import { Yielder } from '../core/event-loop.ts'
import type { DatabaseStore } from '../storage/engine.ts'
import {
  MAX_REMEMBERED,
  positionOf,
  type RememberedPoint,
  type RememberedToken,
} from '../storage/token-position.ts'

/** Does what {@link Database.rememberTokens} says. @throws bad_request */
export async function rememberTokens(
  store: Pick<DatabaseStore, 'view' | 'rememberPoints'>,
  tokens: readonly RememberedToken[],
): Promise<void> {
  if (tokens.length > MAX_REMEMBERED) {
    throw new CouchError('bad_request', `A database remembers at most ${MAX_REMEMBERED} tokens.`)
  }
  const { updateSeq } = await store.view()
  const yielder = new Yielder()
  const points: RememberedPoint[] = []
  for (const { token, seq } of tokens) {
    if (!Number.isSafeInteger(seq) || seq < 0 || seq > updateSeq) {
      throw new CouchError('bad_request', `The database has no sequence number ${seq}.`)
    }
    const position = positionOf(token)
    // A number that is not exact could seem older than it is.
    if (position !== null && Number.isSafeInteger(position.total)) {
      points.push({ ...position, seq: position.total === 0 ? 0 : seq })
    }
    await yielder.yieldIfDue()
  }
  await store.rememberPoints(points)
}
