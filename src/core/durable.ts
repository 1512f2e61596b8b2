/** What outlasts a power cut. */
import { open } from 'node:fs/promises'

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
