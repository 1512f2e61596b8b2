/** The doctor's findings, as the page shows them and as text. Pure. */
import type { Cure } from '../../../../src/doctor/finding.ts'
import { en } from '../../strings/en.ts'

export type CheckName = keyof typeof en.doctor.checks

/** `note`: it works, but not as well as it could, or not for everyone. `skipped`: not checked. */
export type State = 'fine' | 'note' | 'wrong' | 'skipped'

export interface Finding {
  readonly name: CheckName
  readonly state: State
  readonly text: string
  /** What to do, besides the settings in `cures`. */
  readonly help: string | null
  /** Settings to change, and where. */
  readonly cures: readonly Cure[]
}

interface Remedy {
  readonly help?: string
  readonly cures?: readonly Cure[]
}

function finding(state: State) {
  return (name: CheckName, text: string, { help, cures = [] }: Remedy = {}): Finding => ({
    name,
    state,
    text,
    help: help ?? null,
    cures,
  })
}

export const fine = finding('fine')
export const note = finding('note')
export const wrong = finding('wrong')
export const skipped = finding('skipped')

const ORDER: readonly State[] = ['wrong', 'note', 'fine', 'skipped']

/** @returns what needs something done first */
export function byUrgency(findings: readonly Finding[]): Finding[] {
  return ORDER.flatMap((state) => findings.filter((each) => each.state === state))
}

/** The findings as lines, for an issue or a forum. */
export function reportOf(findings: readonly Finding[]): string {
  const lines = findings.flatMap(({ name, state, text, help, cures }) => [
    `${en.doctor.states[state]}: ${en.doctor.checks[name]}: ${text}`,
    ...(help === null ? [] : [`    ${help}`]),
    ...cures.map(({ place, line }) => `    ${place}: ${line}`),
  ])
  return lines.join('\n')
}
