/** Runs the doctor in the test's own process. */
import type { Test } from 'tap'
import { APP_ORIGINS } from '../../src/core/app-origins.ts'
import { limitsFor, type ProbeLimits } from '../../src/doctor/doctor-client.ts'
import type { Finding, FindingName } from '../../src/doctor/finding.ts'
import { type CheckOptions, runChecks } from '../../src/doctor/run-checks.ts'

/** Time limits of tests: long where an event is certain to come, short where none will come. */
export const PATIENT: ProbeLimits = {
  ...limitsFor({ quick: false, long: false }),
  requestMs: 30_000,
  connectMs: 30_000,
  bodies: [2048, 1_049_600],
  bodiesMs: 60_000,
  heartbeatMs: 50,
  feedMs: 30_000,
  beats: 1,
}

export interface Looked {
  readonly findings: readonly Finding[]
  /** The only finding of a name. @throws if there are several, or none */
  one(name: FindingName): Finding
  /** The cures of a finding, as `place: line`. */
  cures(name: FindingName): string[]
}

export async function look(
  address: string,
  options: Partial<Omit<CheckOptions, 'limits'>> & { readonly limits?: Partial<ProbeLimits> } = {},
): Promise<Looked> {
  const { mobile = false, origins = APP_ORIGINS, ca, limits, headers = {} } = options
  const findings: Finding[] = []
  const asked = { address, mobile, origins, ca, headers, limits: { ...PATIENT, ...limits } }
  for await (const finding of runChecks(asked)) findings.push(finding)
  const one = (name: FindingName) => {
    const [first, ...more] = findings.filter((each) => each.name === name)
    if (first === undefined || more.length > 0) {
      throw new Error(`There is not one ${name}: ${JSON.stringify(findings, null, 1)}`)
    }
    return first
  }
  const cures = (name: FindingName) => one(name).cures.map(({ place, line }) => `${place}: ${line}`)
  return { findings, one, cures }
}

/** Limits for a feed that has no fault, or that never sends a byte. */
export const FEED = { heartbeatMs: 1000, feedMs: 30_000 }
export const NO_FEED = { heartbeatMs: 200, feedMs: 1500 }

/** Checks that only these findings are wrong, without the feed: short heartbeats are late on a busy machine. */
export function onlyWrong(t: Test, { findings }: Looked, ...names: readonly FindingName[]): void {
  const wrong = findings
    .filter(({ name, state }) => state === 'wrong' && name !== 'feed')
    .map(({ name }) => name)
  t.strictSame([...new Set(wrong)], names, JSON.stringify(findings.filter(({ state }) => state === 'wrong')))
}
