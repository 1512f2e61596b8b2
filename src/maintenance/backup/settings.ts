/** What the configuration says of backups. */
import { join } from 'node:path'
import type { Config } from '../../config/config.ts'
import { freeSpaceFloor } from '../../config/settings.ts'
import type { Retention } from './retention.ts'

const HOUR_MS = 3_600_000

export interface BackupSettings {
  /** ms between two; 0: none are made by themselves. */
  readonly interval: number
  /** Absolute. */
  readonly folder: string
  /** Whether the folder is made where it is missing: only the one in the data folder is. */
  readonly mayMake: boolean
  readonly retention: Retention
  /** Bytes of the backups' disk that stay free; null: what is kept of any disk by default. */
  readonly floor: number | null
}

/** @param dataDir absolute */
export function backupSettings(config: Config, dataDir: string): BackupSettings {
  const configured = config.get('settee', 'backup_folder') || null
  return {
    interval: config.integer('settee', 'backup_interval') * HOUR_MS,
    folder: configured ?? join(dataDir, 'backups'),
    mayMake: configured === null,
    retention: {
      daily: config.integer('settee', 'backup_keep_daily'),
      weekly: config.integer('settee', 'backup_keep_weekly'),
    },
    floor: freeSpaceFloor(config),
  }
}
