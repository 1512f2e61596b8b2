/** Follows the log: the newest lines, then each new one, also after the connection was lost. */
import { useEffect, useRef, useState } from 'preact/hooks'
import { ask, askLines } from '../../api/client.ts'
import { asFailure, type Failure, isAborted } from '../../api/failure.ts'
import { entryOf, type LogEntry, type LogRow, withNewest } from './log-lines.ts'

type LogState = 'waiting' | 'live' | 'paused' | 'reconnecting' | 'refused'

export interface FollowedLog {
  /** Newest first. */
  readonly entries: readonly LogEntry[]
  readonly state: LogState
  /** Why it is not live. */
  readonly failure: Failure | null
  clear(): void
  /** After a refusal. */
  retry(): void
}

/** Lines that come within this time are shown together, in ms. */
const GATHER_MS = 150
const FIRST_LINES = 200
/** Waits between attempts, in ms; the last one again and again. */
const WAITS_MS = [500, 1000, 2000, 5000, 10_000] as const

interface LogQuery {
  readonly level: string
  readonly filter: string
}

interface LogAnswer {
  readonly lines: readonly LogRow[]
  readonly last_seq: string
}

/** @param isPaused whether nothing new is read; it goes on where it was */
export function useLog({ level, filter }: LogQuery, isPaused: boolean): FollowedLog {
  const [entries, setEntries] = useState<readonly LogEntry[]>([])
  const [state, setState] = useState<LogState>('waiting')
  const [failure, setFailure] = useState<Failure | null>(null)
  const [round, setRound] = useState(0)
  const since = useRef<string | undefined>(undefined)
  useEffect(() => {
    since.current = undefined
    setEntries([])
  }, [level, filter])
  useEffect(() => {
    if (isPaused) {
      setState('paused')
      return undefined
    }
    const controller = new AbortController()
    const follower = new Follower({ level, filter }, since, controller.signal, {
      onEntries: (added) => setEntries((old) => withNewest(old, added)),
      onState: (next, why) => {
        setState(next)
        setFailure(why)
      },
    })
    setState('waiting')
    void follower.run()
    return () => controller.abort()
  }, [level, filter, isPaused, round])
  return { entries, state, failure, clear: () => setEntries([]), retry: () => setRound(round + 1) }
}

interface FollowerEvents {
  onEntries(entries: readonly LogEntry[]): void
  onState(state: LogState, failure: Failure | null): void
}

class Follower {
  readonly #query: LogQuery
  readonly #since: { current: string | undefined }
  readonly #signal: AbortSignal
  readonly #events: FollowerEvents
  #gathered: LogEntry[] = []
  #timer: ReturnType<typeof setTimeout> | undefined

  constructor(
    query: LogQuery,
    since: { current: string | undefined },
    signal: AbortSignal,
    events: FollowerEvents,
  ) {
    this.#query = query
    this.#since = since
    this.#signal = signal
    this.#events = events
  }

  /** Never rejects. */
  async run(): Promise<void> {
    for (let failed = 0; !this.#signal.aborted; failed++) {
      const began = Date.now()
      try {
        await this.#follow()
      } catch (error) {
        if (isAborted(error) || this.#signal.aborted) return
        const failure = asFailure(error)
        if (failure.status >= 400 && failure.status < 500) {
          this.#events.onState('refused', failure)
          return
        }
        this.#events.onState('reconnecting', failure)
      }
      // A connection that has lasted was no failure.
      if (Date.now() - began > 30_000) failed = 0
      await this.#pause(WAITS_MS[Math.min(failed, WAITS_MS.length - 1)] as number)
    }
  }

  async #follow(): Promise<void> {
    const signal = this.#signal
    const query = { level: this.#query.level, filter: this.#query.filter || undefined }
    if (this.#since.current === undefined) {
      const first = await ask<LogAnswer>('_settee/log', { query: { ...query, limit: FIRST_LINES }, signal })
      for (const row of first.lines) this.#add(row)
      this.#since.current = first.last_seq
    }
    this.#events.onState('live', null)
    const following = { ...query, feed: 'continuous', since: this.#since.current }
    for await (const row of askLines<LogRow>('_settee/log', { query: following, signal })) this.#add(row)
  }

  #add(row: LogRow): void {
    if (this.#signal.aborted) return
    this.#since.current = row.seq ?? row.last_seq ?? this.#since.current
    const entry = entryOf(row)
    if (entry === null) return
    this.#gathered.push(entry)
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined
      const added = this.#gathered
      this.#gathered = []
      if (!this.#signal.aborted) this.#events.onEntries(added)
    }, GATHER_MS)
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms)
      this.#signal.addEventListener('abort', () => {
        clearTimeout(timer)
        resolve()
      })
    })
  }
}
