/** Turns the probes of a diagnosis into one finding: the first problem that stops the sync. Pure. */
import type { Address, AddressFault } from '../../../../src/core/address.ts'
import type { Check, Diagnosis, Finding } from './finding.ts'
import type { Answer, Probes } from './probes.ts'
import {
  addressFinding,
  buffered,
  busy,
  cors,
  credentials,
  noDatabase,
  noFeed,
  noMobileFilter,
  notCouch,
  rights,
  server,
  signedOut,
  slow,
  unheard,
} from './words.ts'

const CHECKS = [
  'Address',
  'Connection',
  'Web access (CORS)',
  'Account',
  'Database',
  'Mobile filter',
  'Live feed',
]

/** The diagnosis of a text that is not a valid Address. */
export function addressVerdict(faults: readonly AddressFault[]): Diagnosis {
  return { checks: checksUpTo('Address', new Set()), finding: addressFinding(faults) }
}

/**
 * The first problem that stops a sync with an address, and the checks that found it.
 * @param isHosted whether signing in made the address, so that the user has not typed its parts
 */
export function verdict(address: Address, probes: Probes, isHosted = false): Diagnosis {
  const [name, finding] = firstFault({ address, probes, isHosted }) ?? [null, null]
  const skipped = new Set<string>()
  if (probes.design === null) skipped.add('Mobile filter')
  if (probes.feed === null) skipped.add('Live feed')
  return { checks: checksUpTo(name, skipped), finding }
}

/** @param wrong the check that failed; null: all passed */
function checksUpTo(wrong: string | null, skipped: ReadonlySet<string>): readonly Check[] {
  const end = wrong === null ? CHECKS.length : CHECKS.indexOf(wrong)
  return CHECKS.map((name, at) => {
    if (at === end) return { name, state: 'wrong' }
    return { name, state: at > end || skipped.has(name) ? 'skipped' : 'fine' }
  })
}

interface Case {
  readonly address: Address
  readonly probes: Probes
  readonly isHosted: boolean
}

type Fault = readonly [check: string, finding: Finding]

function firstFault(asked: Case): Fault | null {
  const { address, probes } = asked
  const { database, design, feed } = probes
  return (
    answerFault(asked, database) ??
    databaseFault(asked, database) ??
    (design && (answerFault(asked, design) ?? filterFault(address, design))) ??
    (feed && feedFault(address, feed))
  )
}

/** Problems that any answer can show. */
function answerFault({ address, probes, isHosted }: Case, answer: Answer): Fault | null {
  if (answer.kind === 'late') return ['Connection', slow(address)]
  if (answer.kind === 'failed') {
    return probes.isThere === true
      ? ['Web access (CORS)', cors(address, probes.origin)]
      : ['Connection', unheard(address, probes)]
  }
  if (answer.status === 401) return ['Account', isHosted ? signedOut(answer) : credentials(address, answer)]
  if (answer.status === 403) return ['Account', rights(address, answer, isHosted)]
  if (answer.status === 429) return ['Connection', busy(answer)]
  return answer.status >= 500 ? ['Connection', server(address, answer)] : null
}

function databaseFault({ address, isHosted }: Case, answer: Answer): Fault | null {
  const { status, body } = answer.kind === 'answer' ? answer : { status: 0, body: null }
  if (status === 404 && body !== null) return ['Database', noDatabase(address, isHosted)]
  if (status !== 200 || typeof body?.db_name !== 'string') return ['Database', notCouch(address, answer)]
  return null
}

function filterFault(address: Address, design: Answer): Fault | null {
  const { status, body } = design.kind === 'answer' ? design : { status: 0, body: null }
  const there = status === 200 ? (body ?? {}) : {}
  const filters = typeof there.filters === 'object' ? { ...there.filters } : {}
  return 'sync' in filters ? null : ['Mobile filter', noMobileFilter(address, there, filters)]
}

function feedFault(address: Address, feed: Answer): Fault | null {
  if (feed.kind === 'late') return ['Live feed', buffered(address)]
  if (feed.kind === 'answer' && feed.status === 200) return null
  return ['Live feed', noFeed(address, feed)]
}
