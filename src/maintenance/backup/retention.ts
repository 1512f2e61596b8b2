/** Which backups may go. */

/** What is known of a backup when it is decided whether it stays. */
export interface AgedBackup {
  readonly id: string
  /** When it was begun, in ms since 1970. */
  readonly time: number
  /** Of all databases, not only of some that were named. */
  readonly isWhole: boolean
  /** Nothing is known to be wrong with it. */
  readonly isSound: boolean
  readonly databases: readonly string[]
}

/** Days, and weeks, of which the newest backup stays. */
export interface Retention {
  readonly daily: number
  readonly weekly: number
}

const DAY_MS = 86_400_000
/** 1970 began on a Thursday, a week on a Monday. */
const DAYS_FROM_MONDAY = 3

const dayOf = (time: number) => Math.floor(time / DAY_MS)
const weekOf = (time: number) => Math.floor((dayOf(time) + DAYS_FROM_MONDAY) / 7)

/**
 * The ids of those that may go. What stays: all of the day before the newest whole one; of the newest days and weeks (UTC, Monday first) that have whole backups,
 * the last one of each; the newest whole one in any case; of each database that there is, the newest backup that has it;
 * backups of some databases, and damaged ones, as long as a whole one that is older stays.
 * @param backups in any order @param existing the names of the databases that there are
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
  // Where nothing stands that could take its place, nothing goes.
  if (whole.length === 0) return []
  return newestFirst.filter((backup) => !kept.has(backup)).map(({ id }) => id)
}

function firstOfEach(newestFirst: readonly AgedBackup[], stretchOf: (time: number) => number): AgedBackup[] {
  const seen = new Set<number>()
  return newestFirst.filter(({ time }) => {
    const stretch = stretchOf(time)
    return !seen.has(stretch) && seen.add(stretch)
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
