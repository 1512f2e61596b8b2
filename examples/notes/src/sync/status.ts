/** What a sync tells of itself while it runs. */
import type { Finding } from '../diagnosis/finding.ts'
import type { Idle } from './target.ts'

/**
 * `idle`: there is nothing to sync with; `connecting`: no answer yet; `syncing`: documents travel; `synced`: both sides
 * are alike; `waiting`: it did not work and is tried again by itself; `stopped`: only a person can help.
 */
export type Phase = 'idle' | 'connecting' | 'syncing' | 'synced' | 'waiting' | 'stopped'

export interface SyncStatus {
  readonly phase: Phase
  /** Why it is idle. */
  readonly idle: Idle | null
  /** Documents since this sync began. */
  readonly sent: number
  readonly received: number
  /** What stands in the way; while it is being looked for, null. */
  readonly finding: Finding | null
}

export const AT_REST: SyncStatus = { phase: 'idle', idle: null, sent: 0, received: 0, finding: null }
