/** Removes old copies: database files from before an upgrade (storage/storage-engine.ts), and those that a restore replaced. */
import { readdir, rm, rmdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import type { Logger } from 'pino'
import type { Config } from '../config/config.ts'
import { COPIES_FOLDER } from '../storage/storage-engine.ts'

const DAY_MS = 86_400_000
const LOOK_EVERY_MS = DAY_MS / 4

interface UpgradeCopiesOptions {
  readonly dataDir: string
  readonly config: Pick<Config, 'integer'>
  readonly logger: Pick<Logger, 'info' | 'warn'>
}

/**
 * Removes copies that are old enough, now and every few hours.
 * @returns what ends that
 */
export function startUpgradeCopyCleanup({
  dataDir,
  config,
  logger,
}: UpgradeCopiesOptions): () => Promise<void> {
  const look = async (): Promise<void> => {
    try {
      const days = config.integer('settee', 'upgrade_copies_days')
      const count = await removeUpgradeCopies(dataDir, Date.now() - days * DAY_MS)
      if (count > 0) logger.info({ count }, 'removed copies of files from before an upgrade')
    } catch (err) {
      logger.warn({ err }, 'cannot clean up copies of files from before an upgrade')
    }
  }
  let looking = look()
  const timer = setInterval(() => {
    looking = look()
  }, LOOK_EVERY_MS).unref()
  return async () => {
    clearInterval(timer)
    await looking
  }
}

/**
 * Removes the copies that were made before a moment, and the folders that are empty then.
 * @param before in ms since 1970
 * @returns how many there were
 * @throws the file system's errors
 */
export async function removeUpgradeCopies(dataDir: string, before: number): Promise<number> {
  const folder = join(dataDir, COPIES_FOLDER)
  let removed = 0
  for (const schema of await namesIn(folder)) {
    const names = await namesIn(join(folder, schema))
    const gone: string[] = []
    for (const name of names) {
      const path = join(folder, schema, name)
      const found = await stat(path).catch(() => null)
      if (found === null || found.mtimeMs >= before) continue
      await rm(path, { force: true })
      gone.push(name)
    }
    removed += gone.length
    if (gone.length > 0 && gone.length === names.length)
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

/** Replaced files, below the data folder, so that a restore can be undone; storage/sqlite/files.ts fills it. */
const FOLDER = 'replaced'

/** `notes.2026-11-22T01-30-00Z.sqlite`, with `-2` and so on for further ones of the same second, and its log. */
const KEPT = /\.(\d{4}-\d{2}-\d{2})T(\d{2})-(\d{2})-(\d{2})Z(?:-\d+)?\.sqlite(?:-wal)?$/

/** @returns when the file was replaced, in ms since 1970; null: not a replaced file */
function replacedAt(file: string): number | null {
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
async function sweepReplaced(dataDir: string, days: number, now: number): Promise<void> {
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
export function startSweeping(
  dataDir: string,
  days: () => number,
  onFault: (fault: unknown) => void,
): () => void {
  const sweep = () => void sweepReplaced(dataDir, days(), Date.now()).catch(onFault)
  sweep()
  const timer = setInterval(sweep, DAY_MS).unref()
  return () => clearInterval(timer)
}
