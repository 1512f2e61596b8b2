/** Files of before an upgrade (storage/upgrade-copies.ts) are kept for some days, and then go. */
import { readdir, rm, rmdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import type { Logger } from 'pino'
import type { Config } from '../config/config.ts'
import { COPIES_FOLDER } from '../storage/upgrade-copies.ts'

const DAY_MS = 86_400_000
const LOOK_EVERY_MS = DAY_MS / 4

export interface UpgradeCopiesOptions {
  readonly dataDir: string
  readonly config: Pick<Config, 'integer'>
  readonly logger: Pick<Logger, 'info' | 'warn'>
}

/**
 * Removes copies that are old enough, now and every few hours.
 * @returns what ends that
 */
export function tendUpgradeCopies({ dataDir, config, logger }: UpgradeCopiesOptions): () => Promise<void> {
  const look = async (): Promise<void> => {
    try {
      const days = config.integer('settee', 'upgrade_copies_days')
      const count = await removeUpgradeCopies(dataDir, Date.now() - days * DAY_MS)
      if (count > 0) logger.info({ count }, 'copies of files of before an upgrade were removed')
    } catch (err) {
      logger.warn({ err }, 'copies of files of before an upgrade cannot be looked through')
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
