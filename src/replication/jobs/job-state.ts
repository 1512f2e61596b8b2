/** The life of a replication as a pure state machine; docs/replication.md has its table. */

/** The states of CouchDB's scheduler (protocol.md 14.4), and `cancelled`. */
export type JobState = 'pending' | 'running' | 'crashing' | 'completed' | 'failed' | 'cancelled'

/** `crash`: another run may succeed; `fail`: none will. `wake`: the wait after a crash is over. */
export type JobEvent = 'start' | 'stop' | 'crash' | 'wake' | 'finish' | 'fail' | 'cancel'

/** Events that a state does not name leave it as it is. */
export const TRANSITIONS: Readonly<Record<JobState, Readonly<Partial<Record<JobEvent, JobState>>>>> = {
  pending: { start: 'running', fail: 'failed', cancel: 'cancelled' },
  running: {
    stop: 'pending',
    crash: 'crashing',
    finish: 'completed',
    fail: 'failed',
    cancel: 'cancelled',
  },
  crashing: { wake: 'pending', fail: 'failed', cancel: 'cancelled' },
  completed: {},
  failed: {},
  cancelled: {},
}

/** @returns the state after an event */
export function nextState(state: JobState, event: JobEvent): JobState {
  return TRANSITIONS[state][event] ?? state
}

const FIRST_DELAY_MS = 1000
const LONGEST_DELAY_MS = 5 * 60_000

/**
 * The wait after a crash: twice as long after each, with jitter so that jobs of one remote do not return at once.
 * @param crashes in a row, at least 1
 * @param random from 0 to 1
 * @returns ms, from half of the nominal wait to the whole
 */
export function crashDelay(crashes: number, random: number): number {
  const nominal = Math.min(FIRST_DELAY_MS * 2 ** Math.min(crashes - 1, 20), LONGEST_DELAY_MS)
  return nominal * (0.5 + random / 2)
}

const FIRST_START_DELAY_MS = 64_000
const MAX_START_EXPONENT = 12

/**
 * The wait after a document of `_replicator` could not be started, as in CouchDB (protocol.md 14.3).
 * @param errors in a row, at least 1
 * @param random from 0 to 1
 * @returns ms, up to 64 s at first, and up to twice as long after each
 */
export function startDelay(errors: number, random: number): number {
  return random * FIRST_START_DELAY_MS * 2 ** Math.min(errors - 1, MAX_START_EXPONENT)
}

interface ScheduledJob {
  readonly state: JobState
  /** When the job last began or stopped to run, in ms. */
  readonly since: number
}

interface Schedule<Job> {
  readonly stop: readonly Job[]
  readonly start: readonly Job[]
}

/**
 * Decides which jobs run: as many as allowed, and when others wait, those that have run longest make room.
 * @param mayRotate whether running jobs may be stopped for others; otherwise only free places are filled
 */
export function schedule<Job extends ScheduledJob>(
  jobs: readonly Job[],
  limits: { readonly maxJobs: number; readonly maxChurn: number },
  mayRotate: boolean,
): Schedule<Job> {
  const oldestFirst = (a: Job, b: Job) => a.since - b.since
  const running = jobs.filter(({ state }) => state === 'running')
  // The usual case with many jobs, which need no order then.
  if (!mayRotate && running.length >= limits.maxJobs) return { stop: [], start: [] }
  running.sort(oldestFirst)
  const pending = jobs.filter(({ state }) => state === 'pending').sort(oldestFirst)
  const free = Math.max(0, limits.maxJobs - running.length)
  const others = pending.length - free
  const stopped = mayRotate ? Math.max(0, Math.min(others, limits.maxChurn, running.length)) : 0
  return { stop: running.slice(0, stopped), start: pending.slice(0, free + stopped) }
}
