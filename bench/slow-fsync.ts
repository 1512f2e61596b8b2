/** Makes the disk of a server under test slower. */
import { spawnSync } from 'node:child_process'
import { mkdir } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'

const SOURCE = fileURLToPath(new URL('slow-fsync.c', import.meta.url))
const FOLDER = fileURLToPath(new URL('.peers/', import.meta.url))
const LIBRARY = `${FOLDER}slow-fsync.so`

/**
 * @param ms the delay of every fsync and fdatasync
 * @returns the variables for the server's environment
 * @throws when there is no C compiler
 */
export async function slowFsync(ms: number): Promise<Record<string, string>> {
  if (ms === 0) return {}
  await mkdir(FOLDER, { recursive: true })
  const { status, stderr } = spawnSync('cc', ['-O2', '-shared', '-fPIC', '-o', LIBRARY, SOURCE, '-ldl'])
  if (status !== 0) throw new Error(`slow-fsync.c cannot be compiled: ${stderr ?? 'there is no cc'}`)
  return { LD_PRELOAD: LIBRARY, SLOW_FSYNC_MS: `${ms}` }
}
