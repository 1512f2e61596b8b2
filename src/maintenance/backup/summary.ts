import type { BackupManifest } from '../backup-format.ts'
import type { StoredBackup } from './folder.ts'

/** A backup as lists show it. */
export interface BackupSummary {
  readonly id: string
  /** ISO 8601. */
  readonly begun_at: string
  readonly ended_at: string
  /** Seconds since it was begun. */
  readonly age: number
  readonly reason: BackupManifest['reason']
  readonly is_whole: boolean
  /** Whether it is as it was when it was made, as far as anybody has looked since. */
  readonly verified: boolean
  readonly databases: number
  readonly left_out: BackupManifest['left_out']
  /** Of all its files. */
  readonly bytes: number
  /** Of those that it shares with no earlier backup. */
  readonly new_bytes: number
  /** What was found wrong with it later on, a line each. */
  readonly damage: readonly string[]
}

/** @param now ms since 1970 */
export function summaryOf({ manifest, damage }: StoredBackup, now: number): BackupSummary {
  const { id, begun_at, ended_at, reason, is_whole, databases, left_out } = manifest
  const shared = databases.reduce((sum, { bytes, same_as }) => sum + (same_as === null ? 0 : bytes), 0)
  const bytes = bytesOf(manifest)
  return {
    id,
    begun_at,
    ended_at,
    age: Math.max(0, Math.floor((now - Date.parse(begun_at)) / 1000)),
    reason,
    is_whole,
    verified: damage.length === 0,
    databases: databases.length,
    left_out,
    bytes,
    new_bytes: bytes - shared,
    damage,
  }
}

/** Bytes of all its files. */
export function bytesOf({ server, config, databases }: BackupManifest): number {
  return databases.reduce((sum, { bytes }) => sum + bytes, server.bytes + (config?.bytes ?? 0))
}

/** Whether nothing is known to be wrong with a backup. */
export function isSound({ damage }: StoredBackup): boolean {
  return damage.length === 0
}
