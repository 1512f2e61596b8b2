/** The doctor, within the test's own process. */
import type { Test } from 'tap'
import { APP_ORIGINS } from '../../src/core/network.ts'
import { limitsFor, type ProbeLimits } from '../../src/doctor/doctor-client.ts'
import type { Finding, FindingName } from '../../src/doctor/finding.ts'
import { type CheckOptions, runChecks } from '../../src/doctor/run-checks.ts'

/** Waits of tests: long where something comes for certain, short where nothing will. */
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
  /** The one finding of a name. @throws when there are more, or none */
  one(name: FindingName): Finding
  /** Cures of a finding as `place: line`. */
  cures(name: FindingName): string[]
}

export async function look(
  address: string,
  options: Partial<Omit<CheckOptions, 'limits'>> & { readonly limits?: Partial<ProbeLimits> } = {},
): Promise<Looked> {
  const { mobile = false, origins = APP_ORIGINS, ca, limits } = options
  const findings: Finding[] = []
  const asked = { address, mobile, origins, ca, limits: { ...PATIENT, ...limits } }
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

/** For a feed that is to be found fine, or is to be waited for in vain. */
export const FEED = { heartbeatMs: 1000, feedMs: 30_000 }
export const NO_FEED = { heartbeatMs: 200, feedMs: 1500 }

/** Nothing is wrong but what is named; beats this short are late on a busy machine, and are judged where they are not. */
export function onlyWrong(t: Test, { findings }: Looked, ...names: readonly FindingName[]): void {
  const wrong = findings
    .filter(({ name, state }) => state === 'wrong' && name !== 'feed')
    .map(({ name }) => name)
  t.strictSame([...new Set(wrong)], names, JSON.stringify(findings.filter(({ state }) => state === 'wrong')))
}
