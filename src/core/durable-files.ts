/** What outlasts a power cut. */
import { open, readFile, realpath, rename, rm, writeFile } from 'node:fs/promises'
import { dirname } from 'node:path'

/**
 * Brings to the disk what a file holds, or of a folder, what was made, renamed or removed in it.
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
 * Writes a new file, mode 0600, that is durable when this resolves; its name is when its folder is.
 * @throws the file system's error, EEXIST where there is one
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
 * Replaces a file so that a reader, also one after a power cut, finds the old text or the new one and nothing in
 * between: temporary file in the same folder, write, fsync, rename, fsync of the folder. A symbolic link is
 * followed, so that what it points to is replaced and the link stays. The file's mode becomes 0600.
 * One writer at a time, since the temporary file's name is fixed: what a kill left behind is overwritten.
 * @throws the operating system's error; what is read is then the old text, unless the fault lasts
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
