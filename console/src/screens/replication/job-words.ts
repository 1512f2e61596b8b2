/** States and errors of replications in words. Pure. */
import { en } from '../../strings/en.ts'
import type { ReplicationRow } from './job-rows.ts'

const { states, errors } = en.replication

export interface StateWords {
  /** Of a badge. */
  readonly tone: 'good' | 'info' | 'warn' | 'bad' | 'plain'
  readonly text: string
}

export function stateWords({ state, info, failures, isContinuous }: ReplicationRow): StateWords {
  switch (state) {
    case 'running': {
      const isThere = isContinuous === true && info?.changes_pending === 0
      return isThere ? { tone: 'good', text: states.upToDate } : { tone: 'info', text: states.running }
    }
    case 'completed':
      return { tone: 'good', text: states.completed }
    case 'crashing':
      return { tone: 'warn', text: states.crashing(Math.max(1, failures)) }
    case 'failed':
      return { tone: 'bad', text: states.failed }
    case 'error':
      return { tone: 'warn', text: states.error }
    case 'pending':
      return { tone: 'plain', text: states.pending }
    default:
      return { tone: 'plain', text: states.initializing }
  }
}

/** What a reason means for the user, by the words that the server has for it. */
const CAUSES: readonly (readonly [pattern: RegExp, help: string])[] = [
  [/already started by/i, errors.twice],
  [/credentials .* hidden|write them again/i, errors.sealed],
  [/unauthorized|password is incorrect|name or password|\b401\b/i, errors.unauthorized],
  [/private addresses/i, errors.privateAddress],
  [/hosted_replication|hosted mode/i, errors.hosted],
  [/forbidden|not a server admin|not allowed|\b403\b/i, errors.forbidden],
  [/could not open|no_db|does not exist|database is missing/i, errors.noDatabase],
  [/ENOTFOUND|EAI_AGAIN/, errors.noHost],
  [/CERT|certificate|SELF_SIGNED|UNABLE_TO_VERIFY/i, errors.certificate],
  [/ECONNREFUSED/, errors.refused],
  [/could not be reached|EHOSTUNREACH|ENETUNREACH|ended before/i, errors.unreachable],
  [/took too long|TIMEOUT/i, errors.timeout],
  [/has no filter|filter/i, errors.filter],
  [/too large|\b413\b/i, errors.tooLarge],
  [/\b429\b|too many/i, errors.tooMany],
  [/is not valid|invalid/i, errors.invalid],
]

/** @returns what to do about a failure; null when the server's own words say enough */
export function helpFor(reason: string): string | null {
  return CAUSES.find(([pattern]) => pattern.test(reason))?.[1] ?? null
}
