/** Where copies of databases may be, in which good copies of damaged revisions are looked for. */

import { lstat, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { databaseFileName } from '../core/ids.ts'
import { REPLACED_FOLDER } from './upgrade-copies.ts'

/** How many copies of a database are looked into at most, in one place. */
export const MAX_COPIES = 10

/** A file of a database as it was at some time. */
export interface StoredCopy {
  readonly path: string
  /** For people: `the backup 2026-11-22T01-30-00Z`. */
  readonly name: string
}

export interface CopyPlace {
  /** The best first. May take long, or never end: it may be a disk far away. */
  copiesOf(database: string): Promise<readonly StoredCopy[]>
}

/** SQLite would read a log beside a file as a part of it, though no checksum knows it. */
export async function isPlainCopy(path: string): Promise<boolean> {
  const [file, log] = await Promise.all([path, `${path}-wal`].map((each) => lstat(each).catch(() => null)))
  return file?.isFile() === true && log === null
}

/** The files of databases that a restore has replaced, the newest first. @param dataDir the data folder */
export function replacedFiles(dataDir: string): CopyPlace {
  const folder = join(dataDir, REPLACED_FOLDER)
  return {
    async copiesOf(database) {
      // The time follows the name, which has no dots.
      const start = `${databaseFileName(database)}.`
      const files = (await readdir(folder).catch(() => [])).filter(
        (file) => file.startsWith(start) && file.endsWith('.sqlite'),
      )
      const copies: StoredCopy[] = []
      for (const file of files.sort().reverse().slice(0, MAX_COPIES)) {
        const path = join(folder, file)
        if (await isPlainCopy(path)) copies.push({ path, name: `${REPLACED_FOLDER}/${file}` })
      }
      return copies
    },
  }
}
