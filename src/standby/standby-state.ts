/** The life of a standby as a pure state machine; docs/standby.md has its table. */

/**
 * `none`: an ordinary server. `following`: it copies its primary. `halted`: it has stopped copying, since its primary no longer
 * is what it was, and an operator must decide. `promoting`: it takes the primary's place.
 */
export type StandbyState = 'none' | 'following' | 'halted' | 'promoting'

export type StandbyEvent = 'follow' | 'halt' | 'promote' | 'finish'

/** Events that a state does not name are refused. */
export const TRANSITIONS: Readonly<
  Record<StandbyState, Readonly<Partial<Record<StandbyEvent, StandbyState>>>>
> = {
  none: { follow: 'following' },
  following: { follow: 'following', halt: 'halted', promote: 'promoting' },
  halted: { follow: 'following', promote: 'promoting' },
  promoting: { promote: 'promoting', finish: 'none' },
}

/** @returns the state after an event; null: the state refuses it */
export function nextState(state: StandbyState, event: StandbyEvent): StandbyState | null {
  return TRANSITIONS[state][event] ?? null
}

/** Whether clients may write. Reads and logins work in every state. */
export function acceptsWrites(state: StandbyState): boolean {
  return state === 'none'
}
