/** The time machine's methods of a database; time-machine-calls.ts says what they do. */
import type { RememberingStore } from '../storage/history.ts'
import { documentHistory, overwritten, readVersion } from './history.ts'
import { rewind } from './rewind.ts'
import type { TimeMachine } from './time-machine-calls.ts'
import type { WriteChecks } from './validate.ts'

/** @param store the database's documents @param now the time, in ms since 1970 */
export function timeMachine(store: RememberingStore, checks: WriteChecks, now: () => number): TimeMachine {
  return {
    history: (user, id, page) => documentHistory(store, user, id, page),
    overwritten: (user, query) => overwritten(store, user, query),
    version: (user, id, choice, attachments) =>
      readVersion(store, user, id, choice, { attachments, now: now() }),
    rewind: (user, request) => rewind({ store, user, checks, now }, request),
  }
}
