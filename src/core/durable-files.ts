/** Writes files that survive a power cut. */
import { open, readFile, realpath, rename, rm, writeFile } from 'node:fs/promises'
import { dirname } from 'node:path'

/**
 * Syncs a file's content, or the entries of a folder, to the disk.
 * @throws the file system's error
 */
export async function syncPath(path: string): Promise<void> {
  const handle = await open(path, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

/**
 * Writes a new file, mode 0600. Its content is durable when this resolves; its name, once its folder is synced.
 * @throws the file system's error, EEXIST if the file exists
 */
export async function writeDurably(path: string, text: string | Uint8Array): Promise<void> {
  const file = await open(path, 'wx', 0o600)
  try {
    await file.writeFile(text)
    await file.sync()
  } finally {
    await file.close()
  }
}

/**
 * Replaces a file so that readers find either the old text or the new one, also after a power cut: temporary file in
 * the same folder, write, fsync, rename, fsync of the folder. For a symbolic link, its target is replaced. The file's
 * mode becomes 0600. One writer at a time: the temporary file's name is fixed, so that leftovers of a kill are
 * overwritten.
 * @throws the operating system's error; the file then has its old text, unless the fault persists
 */
export async function writeAtomically(path: string, text: string): Promise<void> {
  const target = await realpath(path).catch(() => path)
  const temporary = `${target}.tmp`
  const before = await readFile(target).catch(() => null)
  try {
    await rm(temporary, { force: true })
    await writeDurably(temporary, text)
    await rename(temporary, target)
  } catch (error) {
    await rm(temporary, { force: true })
    throw error
  }
  try {
    await syncPath(dirname(target))
  } catch (error) {
    await putBack(target, before).catch(() => undefined)
    throw error
  }
}

async function putBack(target: string, before: Uint8Array | null): Promise<void> {
  if (before === null) return rm(target, { force: true })
  const temporary = `${target}.tmp`
  await writeFile(temporary, before, { mode: 0o600 })
  await rename(temporary, target)
}
