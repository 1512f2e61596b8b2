/** What the doctor says: a line for each thing that was looked at. */

/** All that is looked at, in the order in which it is told. */
export const FINDING_NAMES = [
  'address',
  'look-up',
  'connection',
  'certificate',
  'protocols',
  'server',
  'http',
  'version',
  'clock',
  'credentials',
  'preflights',
  'cors',
  'rights',
  'local',
  'paths',
  'location',
  'feed',
  'find',
  'mobile',
  'bodies',
  'long feed',
  'rest',
] as const

export type FindingName = (typeof FINDING_NAMES)[number]

/** `note`: it works, but not as well as it could, or not for everybody. `skipped`: it was not looked at. */
export type State = 'fine' | 'note' | 'wrong' | 'skipped'

/** A line to change, and where. */
export interface Cure {
  /** A proxy, a server, or `you`: whoever reads it. */
  readonly place: string
  readonly line: string
}

export interface Finding {
  readonly name: FindingName
  readonly state: State
  /** One line. */
  readonly text: string
  readonly cures: readonly Cure[]
  /** What of the text names somebody, and is not for everybody to read: of a certificate, of an account. */
  readonly names?: readonly string[]
}

export function fine(name: FindingName, text: string): Finding {
  return { name, state: 'fine', text, cures: [] }
}

export function skipped(name: FindingName, text: string): Finding {
  return { name, state: 'skipped', text, cures: [] }
}

export function note(name: FindingName, text: string, cures: readonly Cure[] = []): Finding {
  return { name, state: 'note', text, cures }
}

export function wrong(name: FindingName, text: string, cures: readonly Cure[] = []): Finding {
  return { name, state: 'wrong', text, cures }
}

/** What whoever runs the doctor does. */
export function toYou(line: string): readonly Cure[] {
  return [{ place: 'you', line }]
}
