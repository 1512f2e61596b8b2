/** Whether a database is worth a compaction that nobody has asked for. Pure. */
import type { CompactionRules } from '../core/types.ts'
import type { CompactOptions, KeptBodies, StoreWear } from '../storage/upkeep.ts'

/** What of the options of a compaction says what it keeps. */
export type Keeping = Pick<CompactOptions, 'keepSince' | 'keepBytes'>

/** Less than this is not worth the work, however small the file: an empty one takes about as much. */
const LEAST_BYTES = 256 * 1024
/** How often bodies that were kept long enough are cleared away: once a day, also by who looks once a day. */
const EXPIRY_MS = 20 * 60 * 60 * 1000

/**
 * @param wear what a compaction would find to do
 * @param now in ms since 1970
 */
export function isDue(wear: StoreWear, rules: CompactionRules, now: number): boolean {
  const { supersededBytes, looseBytes, freeBytes, fileBytes } = wear
  const waste = supersededBytes + looseBytes + freeBytes
  const bearable = Math.min(rules.bytes, Math.max(LEAST_BYTES, rules.share * fileBytes))
  return wear.isOwed || waste > bearable || isExpired(wear, rules.keepMs, now)
}

/**
 * Whether bodies are kept that were to be gone by now.
 * @param keepMs how long they are
 * @param now in ms since 1970
 */
export function isExpired({ oldestKept, compactedAt }: KeptBodies, keepMs: number, now: number): boolean {
  if (oldestKept === null) return false
  // Nothing is to be kept any more: what is left from before need not wait.
  if (keepMs === 0) return true
  return oldestKept <= now - keepMs && compactedAt <= now - EXPIRY_MS
}

/**
 * What a compaction keeps.
 * @param now in ms since 1970
 */
export function keeping({ keepMs, keepBytes }: CompactionRules, now: number): Keeping {
  return keepMs === 0 ? {} : { keepSince: now - keepMs, keepBytes }
}
