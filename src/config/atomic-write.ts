import { open, realpath, rename, rm } from 'node:fs/promises'
import { dirname } from 'node:path'
import { syncFolder } from './data-folder.ts'

/**
 * Replaces a file so that a reader, also one after a power cut, finds the old text or the new one and nothing in
 * between: temporary file in the same folder, write, fsync, rename, fsync of the folder. A symbolic link is
 * followed, so that what it points to is replaced and the link stays. The file's mode becomes 0600.
 * One writer at a time, since the temporary file's name is fixed: what a kill left behind is overwritten.
 * @throws the operating system's error
 */
export async function writeAtomically(path: string, text: string): Promise<void> {
  const target = await realpath(path).catch(() => path)
  const temporary = `${target}.tmp`
  try {
    await rm(temporary, { force: true })
    await writeDurably(temporary, text)
    await rename(temporary, target)
  } catch (error) {
    await rm(temporary, { force: true })
    throw error
  }
  await syncFolder(dirname(target))
}

async function writeDurably(path: string, text: string): Promise<void> {
  const file = await open(path, 'wx', 0o600)
  try {
    await file.writeFile(text)
    await file.sync()
  } finally {
    await file.close()
  }
}
