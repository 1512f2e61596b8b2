/** Files of a backup folder, in which others may have put anything: links, pipes, devices, files of any size. */
import { constants } from 'node:fs'
import { type FileHandle, open, realpath } from 'node:fs/promises'
import { dirname, join, sep } from 'node:path'
import { CouchError } from '../core/errors.ts'

/** A pipe without a writer must not hold one of the process's few file threads, and a link could lead to any file. */
const READ = constants.O_RDONLY | (constants.O_NONBLOCK ?? 0) | (constants.O_NOFOLLOW ?? 0)

/**
 * Opens a file for reading.
 * @throws Error with the code `EINVAL` unless it is a regular file; the file system's error
 */
export async function openRegular(path: string): Promise<FileHandle> {
  const file = await open(path, READ)
  try {
    if ((await file.stat()).isFile()) return file
    throw Object.assign(new Error(`${path} is not a regular file`), { code: 'EINVAL' })
  } catch (error) {
    await file.close()
    throw error
  }
}

/** Reads a whole file. @throws as {@link openRegular}; Error for more than `most` bytes */
export async function readRegular(path: string, most: number): Promise<Buffer> {
  const file = await openRegular(path)
  try {
    const { size } = await file.stat()
    if (size > most) throw new Error(`${path} has more than ${most} bytes`)
    return await file.readFile()
  } finally {
    await file.close()
  }
}

/**
 * The path of a file that a manifest names.
 * @param folder the backup's own
 * @param file its path in the folder, with slashes
 * @throws bad_request for a path that leads out of the folder, also by a link
 */
export async function pathIn(folder: string, file: string): Promise<string> {
  const parts = file.split('/')
  const path = join(folder, ...parts)
  const isPlain = parts.every((part) => part !== '' && part !== '.' && part !== '..' && !part.includes('\0'))
  if (isPlain && (await isBelow(folder, path))) return path
  throw new CouchError('bad_request', `The manifest of ${folder} names a file outside of it.`)
}

async function isBelow(folder: string, path: string): Promise<boolean> {
  const root = await realpath(folder)
  // A folder that is missing leads nowhere.
  const parent = await realpath(dirname(path)).catch(() => root)
  return parent === root || parent.startsWith(root + sep)
}
