/** Databases that restores have replaced: kept in `replaced/` for a while, so that a restore can be undone. */
import { readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'

/** Below the data folder; storage/sqlite/files.ts fills it. */
const FOLDER = 'replaced'
const DAY_MS = 86_400_000

/** `notes.2026-11-22T01-30-00Z.sqlite`, with `-2` and so on for further ones of the same second, and its log. */
const KEPT = /\.(\d{4}-\d{2}-\d{2})T(\d{2})-(\d{2})-(\d{2})Z(?:-\d+)?\.sqlite(?:-wal)?$/

/** When the file of this name was replaced, in ms since 1970; null: it is none. */
export function replacedAt(file: string): number | null {
  const match = KEPT.exec(file)
  if (match === null) return null
  const [, date, hours, minutes, seconds] = match
  const time = Date.parse(`${date}T${hours}:${minutes}:${seconds}Z`)
  return Number.isNaN(time) ? null : time
}

/**
 * Removes what was replaced longer ago.
 * @param now ms since 1970
 * @throws the file system's error
 */
export async function sweepReplaced(dataDir: string, days: number, now: number): Promise<void> {
  const folder = join(dataDir, FOLDER)
  const files = await readdir(folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return []
    throw error
  })
  for (const file of files) {
    const time = replacedAt(file)
    if (time !== null && now - time > days * DAY_MS) await rm(join(folder, file), { force: true })
  }
}

/**
 * Sweeps now and every day.
 * @param days asked each time
 * @returns what stops it
 */
export function keepSwept(
  dataDir: string,
  days: () => number,
  onFault: (fault: unknown) => void,
): () => void {
  const sweep = () => void sweepReplaced(dataDir, days(), Date.now()).catch(onFault)
  sweep()
  const timer = setInterval(sweep, DAY_MS).unref()
  return () => clearInterval(timer)
}
