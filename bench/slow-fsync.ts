/** Makes the disk of a server under test slower. */
import { compile } from './compiler.ts'

/**
 * @param ms the delay of every fsync and fdatasync
 * @returns the variables for the server's environment
 * @throws when there is no C compiler
 */
export async function slowFsync(ms: number): Promise<Record<string, string>> {
  if (ms === 0) return {}
  const library = await compile('slow-fsync.c', 'slow-fsync.so', '-shared', '-fPIC', '-ldl')
  return { LD_PRELOAD: library, SLOW_FSYNC_MS: `${ms}` }
}
