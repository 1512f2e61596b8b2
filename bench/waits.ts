/** What the sessions of a PostgreSQL do while something runs, by looks at pg_stat_activity. */
import { setTimeout as sleep } from 'node:timers/promises'
import { Client } from 'pg'
import type { Figure } from './trial.ts'

/** The time between two looks, in ms. A look takes PostgreSQL about 1 ms. */
const LOOK_MS = 20

/** `Lock`: for another transaction. `LWLock`: for shared memory, and for others that write to the log. `IO`: for the disk. */
const KINDS = ['running', 'Lock', 'LWLock', 'IO', 'other'] as const
type Kind = (typeof KINDS)[number]

const LOOK = `SELECT coalesce(wait_event_type, 'running'), count(*)::int FROM pg_stat_activity
  WHERE state = 'active' AND backend_type = 'client backend' AND pid <> pg_backend_pid() GROUP BY 1`

/**
 * Looks until the returned function is called.
 * @param address of the PostgreSQL, as a role that sees all sessions
 * @returns ends it, and tells how many sessions, on average, ran or waited for each kind of event
 * @throws the error of pg if it cannot connect
 */
export async function watchWaits(address: string): Promise<() => Promise<Figure[]>> {
  const client = new Client(address)
  await client.connect()
  const sums = new Map<Kind, number>()
  const ending = new AbortController()
  let looks = 0
  const look = async () => {
    while (!ending.signal.aborted) {
      const { rows } = await client.query<[string, number]>({ text: LOOK, rowMode: 'array' })
      for (const [type, sessions] of rows) {
        const kind = KINDS.find((name) => name === type) ?? 'other'
        sums.set(kind, (sums.get(kind) ?? 0) + sessions)
      }
      looks += 1
      await sleep(LOOK_MS, undefined, { signal: ending.signal }).catch(() => undefined)
    }
  }
  const looking = look()
  // It is thrown when it is awaited.
  looking.catch(() => undefined)
  return async () => {
    ending.abort()
    await looking
    await client.end()
    return KINDS.map((kind) => ({
      name: kind === 'running' ? 'sessions that run' : `sessions that wait, ${kind}`,
      unit: 'sessions',
      value: (sums.get(kind) ?? 0) / looks,
    }))
  }
}
