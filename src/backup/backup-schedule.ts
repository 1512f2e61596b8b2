/** The settings of backups, and which backups can be removed. */
import { join } from 'node:path'
import type { Config } from '../config/config.ts'
import { freeSpaceFloor } from '../config/settings.ts'

/** The properties of a backup that decide its retention. */
export interface AgedBackup {
  readonly id: string
  /** When it started, in ms since 1970. */
  readonly time: number
  /** Whether it contains all databases, not only those that were named. */
  readonly isWhole: boolean
  /** Whether it has no known damage. */
  readonly isSound: boolean
  /** Those that have no damaged rows. */
  readonly databases: readonly string[]
}

/** The numbers of days and weeks whose newest backups are kept. */
interface Retention {
  readonly daily: number
  readonly weekly: number
}

const DAY_MS = 86_400_000
/** 1970 began on a Thursday, a week on a Monday. */
const DAYS_FROM_MONDAY = 3

const dayOf = (time: number) => Math.floor(time / DAY_MS)
const weekOf = (time: number) => Math.floor((dayOf(time) + DAYS_FROM_MONDAY) / 7)

/**
 * Finds the backups that can be removed. It keeps
 *
 * - the newest whole backup, and all backups of the 24 hours before it;
 * - the last whole backup of each of the newest days and weeks (UTC, Monday first);
 * - for each existing database, the newest backup that contains it without damage;
 * - partial and damaged backups, as long as an older whole backup is kept.
 *
 * @param backups in any order
 * @param existing the names of the existing databases
 * @returns the ids of the backups to remove
 */
export function surplusBackups(
  backups: readonly AgedBackup[],
  { daily, weekly }: Retention,
  existing: Iterable<string>,
): string[] {
  const newestFirst = backups.toSorted((a, b) => b.time - a.time || (a.id < b.id ? 1 : -1))
  const whole = newestFirst.filter(({ isWhole, isSound }) => isWhole && isSound)
  const dayBefore = (whole[0]?.time ?? 0) - DAY_MS
  const kept = new Set([
    ...whole.filter(({ time }) => time > dayBefore),
    ...firstOfEach(whole, dayOf).slice(0, daily),
    ...firstOfEach(whole, weekOf).slice(0, weekly),
  ])
  const oldest = Math.min(dayBefore, ...[...kept].map(({ time }) => time))
  for (const backup of newestFirst) if (backup.time >= oldest && !whole.includes(backup)) kept.add(backup)
  for (const backup of newestOfEach(newestFirst, new Set(existing))) kept.add(backup)
  // Without a whole backup, the others cannot be replaced.
  if (whole.length === 0) return []
  return newestFirst.filter((backup) => !kept.has(backup)).map(({ id }) => id)
}

function firstOfEach(newestFirst: readonly AgedBackup[], periodOf: (time: number) => number): AgedBackup[] {
  const seen = new Set<number>()
  return newestFirst.filter(({ time }) => {
    const period = periodOf(time)
    return !seen.has(period) && seen.add(period)
  })
}

function newestOfEach(newestFirst: readonly AgedBackup[], missing: Set<string>): AgedBackup[] {
  return newestFirst.filter(({ isSound, databases }) => {
    if (!isSound) return false
    const before = missing.size
    for (const name of databases) missing.delete(name)
    return missing.size < before
  })
}

const HOUR_MS = 3_600_000

interface BackupSettings {
  /** ms between two backups; 0: no schedule. */
  readonly interval: number
  /** Absolute. */
  readonly folder: string
  /** Whether to create a missing folder: only in the data folder. */
  readonly mayCreate: boolean
  readonly retention: Retention
  /** Bytes to keep free on the backups' disk; null: the default. */
  readonly floor: number | null
}

/** @param dataDir absolute */
export function backupSettings(config: Config, dataDir: string): BackupSettings {
  const configured = config.get('settee', 'backup_folder') || null
  return {
    interval: config.integer('settee', 'backup_interval') * HOUR_MS,
    folder: configured ?? join(dataDir, 'backups'),
    mayCreate: configured === null,
    retention: {
      daily: config.integer('settee', 'backup_keep_daily'),
      weekly: config.integer('settee', 'backup_keep_weekly'),
    },
    floor: freeSpaceFloor(config),
  }
}
