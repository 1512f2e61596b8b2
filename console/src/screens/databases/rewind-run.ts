/** A rewind while the page reads its lines. */
import { useEffect, useRef, useState } from 'preact/hooks'
import { asFailure, Failure, isAborted } from '../../api/failure.ts'
import type { RewindCounts, RewindLine, RewindRequest } from './database-answers.ts'
import { rewindLines } from './database-calls.ts'

/** Changed documents that are listed. */
const MAX_LISTED = 200

export interface RewindState {
  readonly isDry: boolean
  /** The time that the server understood. */
  readonly at: string | null
  /** When it began, by this device's clock: a rewind to then undoes it. */
  readonly begunAt: string
  readonly documents: number
  readonly lookedAt: number
  readonly counts: RewindCounts
  /** The first of the changed documents. */
  readonly listed: readonly RewindLine[]
  readonly isRunning: boolean
  /** Whether the user has stopped it. */
  readonly isStopped: boolean
  readonly failure: Failure | null
}

const NOTHING: RewindCounts = {
  restored: 0,
  recreated: 0,
  deleted: 0,
  unchanged: 0,
  expired: 0,
  newer: 0,
  absent: 0,
  refused: 0,
}

interface RewindRun {
  /** null: none was begun. */
  readonly state: RewindState | null
  /** Resolves at its end; never rejects. */
  start(request: RewindRequest): Promise<void>
  stop(): void
  forget(): void
}

export function useRewind(database: string): RewindRun {
  const [state, setState] = useState<RewindState | null>(null)
  const controller = useRef<AbortController | null>(null)
  useEffect(() => () => controller.current?.abort(), [database])
  const start = async (request: RewindRequest) => {
    controller.current?.abort()
    const ending = new AbortController()
    controller.current = ending
    let now = begun(request)
    setState(now)
    try {
      for await (const line of rewindLines(database, request, ending.signal)) {
        now = next(now, line)
        // A line for each document would draw the page too often.
        if (line.progress !== undefined || line.done || line.error !== undefined) setState(now)
      }
      now = { ...now, isRunning: false }
    } catch (error) {
      now = isAborted(error)
        ? { ...now, isRunning: false, isStopped: true }
        : { ...now, isRunning: false, failure: asFailure(error) }
    }
    if (controller.current === ending) setState(now)
  }
  return {
    state,
    start,
    stop: () => controller.current?.abort(),
    forget: () => setState(null),
  }
}

function begun({ dry_run = false }: RewindRequest): RewindState {
  return {
    isDry: dry_run,
    at: null,
    begunAt: new Date().toISOString(),
    documents: 0,
    lookedAt: 0,
    counts: NOTHING,
    listed: [],
    isRunning: true,
    isStopped: false,
    failure: null,
  }
}

function next(state: RewindState, line: RewindLine): RewindState {
  if (line.error !== undefined && line.id === undefined) {
    return { ...state, failure: new Failure(0, line.error, line.reason ?? line.error, null) }
  }
  if (line.id !== undefined) {
    return state.listed.length < MAX_LISTED ? { ...state, listed: [...state.listed, line] } : state
  }
  if (line.documents !== undefined) return { ...state, at: line.at ?? null, documents: line.documents }
  const { looked_at = state.lookedAt, counts = state.counts } = line.progress ?? line
  return { ...state, lookedAt: looked_at, counts }
}

/** How many documents have another content than before. */
export function changedBy({ restored, recreated, deleted }: RewindCounts): number {
  return restored + recreated + deleted
}
