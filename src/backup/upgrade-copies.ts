/**
 * Removes old database files: those from before an upgrade (storage/storage-engine.ts), and those that a restore
 * replaced.
 */
import { readdir, rm, rmdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import type { Logger } from 'pino'
import type { Config } from '../config/config.ts'
import { COPIES_FOLDER } from '../storage/storage-engine.ts'

const DAY_MS = 86_400_000
const CHECK_INTERVAL_MS = DAY_MS / 4

interface UpgradeCopiesOptions {
  readonly dataDir: string
  readonly config: Pick<Config, 'integer'>
  readonly logger: Pick<Logger, 'info' | 'warn'>
}

/**
 * Removes old copies, now and every six hours.
 * @returns a function that stops this
 */
export function startUpgradeCopyCleanup({
  dataDir,
  config,
  logger,
}: UpgradeCopiesOptions): () => Promise<void> {
  const cleanUp = async (): Promise<void> => {
    try {
      const days = config.integer('settee', 'upgrade_copies_days')
      const count = await removeUpgradeCopies(dataDir, Date.now() - days * DAY_MS)
      if (count > 0) logger.info({ count }, 'removed copies of files from before an upgrade')
    } catch (err) {
      logger.warn({ err }, 'cannot clean up copies of files from before an upgrade')
    }
  }
  let running = cleanUp()
  const timer = setInterval(() => {
    running = cleanUp()
  }, CHECK_INTERVAL_MS).unref()
  return async () => {
    clearInterval(timer)
    await running
  }
}

/**
 * Removes the copies that were made before a time, and the folders that become empty.
 * @param before in ms since 1970
 * @returns the number of removed copies
 * @throws the file system's errors
 */
export async function removeUpgradeCopies(dataDir: string, before: number): Promise<number> {
  const folder = join(dataDir, COPIES_FOLDER)
  let removed = 0
  for (const schema of await namesIn(folder)) {
    const names = await namesIn(join(folder, schema))
    let removedHere = 0
    for (const name of names) {
      const path = join(folder, schema, name)
      const found = await stat(path).catch(() => null)
      if (found === null || found.mtimeMs >= before) continue
      await rm(path, { force: true })
      removedHere += 1
    }
    removed += removedHere
    if (removedHere > 0 && removedHere === names.length)
      await rmdir(join(folder, schema)).catch(() => undefined)
  }
  return removed
}

async function namesIn(folder: string): Promise<string[]> {
  return readdir(folder).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return []
    throw error
  })
}

/** The folder of replaced files, below the data folder. They let a user undo a restore; storage/sqlite/files.ts. */
export const REPLACED_FOLDER = 'replaced'

/** `notes.2026-11-22T01-30-00Z.sqlite` and its log. Further files of the same second have `-2` and so on. */
const REPLACED_FILE = /\.(\d{4}-\d{2}-\d{2})T(\d{2})-(\d{2})-(\d{2})Z(?:-\d+)?\.sqlite(?:-wal)?$/

/** @returns when the file was replaced, in ms since 1970; null: not a replaced file */
function replacedAt(file: string): number | null {
  const match = REPLACED_FILE.exec(file)
  if (match === null) return null
  const [, date, hours, minutes, seconds] = match
  const time = Date.parse(`${date}T${hours}:${minutes}:${seconds}Z`)
  return Number.isNaN(time) ? null : time
}

/**
 * Removes files that were replaced before a time.
 * @param before in ms since 1970
 * @throws the file system's error
 */
export async function removeReplaced(dataDir: string, before: number): Promise<void> {
  const folder = join(dataDir, REPLACED_FOLDER)
  for (const file of await namesIn(folder)) {
    const time = replacedAt(file)
    if (time !== null && time < before) await rm(join(folder, file), { force: true })
  }
}

/**
 * Removes old replaced files, now and every day.
 * @param days read each time
 * @returns a function that stops this
 */
export function startSweeping(
  dataDir: string,
  days: () => number,
  onFault: (fault: unknown) => void,
): () => void {
  const sweep = () => void removeReplaced(dataDir, Date.now() - days() * DAY_MS).catch(onFault)
  sweep()
  const timer = setInterval(sweep, DAY_MS).unref()
  return () => clearInterval(timer)
}
