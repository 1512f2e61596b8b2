/** The old server during a move: steps that are repeated when it cannot be reached for a moment. */
import { setTimeout as sleep } from 'node:timers/promises'
import { CouchError } from '../core/errors.ts'
import { PeerError } from '../replication/peer-error.ts'

const TRIES = 6
/** The first wait, in ms; each further one is twice as long. */
const FIRST_WAIT_MS = 500

/** Runs a step that may be repeated as a whole. @throws PeerError; what `signal` is aborted with */
export async function repeated<T>(signal: AbortSignal, step: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await step()
    } catch (error) {
      signal.throwIfAborted()
      if (!(error instanceof PeerError) || !error.isTemporary || tries === TRIES) throw error
      await sleep(error.retryAfterMs ?? FIRST_WAIT_MS * 2 ** (tries - 1), undefined, { signal })
    }
  }
}

/** The refusal of a command for a failure of the old server. */
export function asRefusal(error: unknown): unknown {
  if (!(error instanceof PeerError)) return error
  const code =
    error.fault === 'unauthorized' || error.fault === 'forbidden' ? error.fault : 'replication_failed'
  return new CouchError(code, error.message, { cause: error })
}
