/** Backups for the command line: `settee backup`. */
import { isAbsolute } from 'node:path'
import { CouchError } from '../core/errors.ts'
import { type BackupSummary, summaryOf } from './backup-folder.ts'
import type { Backups } from './backups.ts'
import type { BackupProgress } from './make-backup.ts'

interface BackupRequest {
  /** The absolute path of the backups' folder; null: the configured one. */
  readonly to: string | null
  /** Names; null: all databases. */
  readonly databases: readonly string[] | null
}

export interface BackupResult extends BackupSummary {
  /** The backup's own folder. */
  readonly path: string
}

export interface BackupControl {
  /**
   * Makes a backup, and waits for it.
   * @param signal aborts when the caller has disconnected; the backup is then cancelled and removed
   * @throws conflict, not_found, bad_request, insufficient_storage, unavailable, internal_server_error
   */
  backUp(
    request: BackupRequest,
    onProgress?: (progress: BackupProgress) => void,
    signal?: AbortSignal,
  ): Promise<BackupResult>
}

export function localBackupControl(backups: Backups): BackupControl {
  return {
    backUp: async ({ to, databases }, onProgress, signal) => {
      if (to !== null && !isAbsolute(to)) {
        throw new CouchError('bad_request', 'The folder for the backup must be an absolute path.')
      }
      const { outcome, path } = await backups.start({ databases, to, reason: 'asked', signal }, onProgress)
      const { manifest } = await outcome
      return { ...summaryOf({ manifest, damage: [], verifiedAt: null }, Date.now()), path }
    },
  }
}
