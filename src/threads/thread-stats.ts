/** What a database thread tells of itself when it is asked. */
import type { FunctionCounts } from '../sandbox/client.ts'
import type { CommitCounts } from '../storage/commit-tally.ts'
import type { HeapSize } from './heap-size.ts'
import type { LoopDelay } from './loop-watch.ts'

/** A thread's own words. */
export interface ThreadStats {
  /** What was counted since the thread began. */
  readonly commits: CommitCounts
  readonly functions: FunctionCounts
  /** As it is now: databases held open, calls that wait for their database's turn, bytes of the thread's own heap. */
  readonly openDatabases: number
  readonly waitingCalls: number
  /** Calls of functions that wait for a sandbox thread or are at work there. */
  readonly functionCalls: number
  readonly heap: HeapSize
  readonly delay: LoopDelay | null
}

/** A database thread as the HTTP thread sees it. What is counted never falls, though threads die and others follow. */
export interface ThreadReport {
  /** From 1. */
  readonly number: number
  /** Whether it has answered in time; if not, what it told last is told again. */
  readonly isAnswering: boolean
  /** Databases that are its to serve, open or not. */
  readonly databases: number
  /** Calls and streams that were asked of it and are not over. */
  readonly calls: number
  /** Seconds that its event loop was not waiting for anything, since the server began. */
  readonly busySeconds: number
  /** null: it has never answered. */
  readonly stats: ThreadStats | null
}
