/** The status of a sync while it runs. */
import type { Finding } from '../diagnosis/finding.ts'
import type { Idle } from './target.ts'

/**
 * `idle`: there is nothing to sync with; `connecting`: no answer yet; `syncing`: documents are being sent or received;
 * `synced`: both sides are equal; `waiting`: an attempt failed and the next one will follow; `stopped`: the user must act.
 */
export type Phase = 'idle' | 'connecting' | 'syncing' | 'synced' | 'waiting' | 'stopped'

export interface SyncStatus {
  readonly phase: Phase
  /** Why it is idle. */
  readonly idle: Idle | null
  /** Documents since this sync began. */
  readonly sent: number
  readonly received: number
  /** The problem; null while the diagnosis runs. */
  readonly finding: Finding | null
}

export const AT_REST: SyncStatus = { phase: 'idle', idle: null, sent: 0, received: 0, finding: null }
