/**
 * How V8 and glibc are to use memory. Both read it when a process starts, so the process begins anew with it: in its own
 * place, with the same number, after some 30 ms.
 */
import { extname } from 'node:path'
import { fileURLToPath } from 'node:url'

/** Half of the main thread's room for young objects, in MB: V8 lets it grow to 64, and keeps that under load. */
const SEMI_SPACE = '--max-semi-space-size'
const SEMI_SPACE_MB = 8

/**
 * From which size on glibc takes a piece of memory from the system for itself, and how much free memory it keeps at the
 * end of each arena, in bytes. Without them it learns both from the largest piece that was ever freed: after one body of
 * 8 MB it keeps up to 16 MB for each of some ten threads.
 */
const GLIBC: Readonly<Record<string, string>> = {
  MALLOC_MMAP_THRESHOLD_: '1048576',
  MALLOC_TRIM_THRESHOLD_: '2097152',
}

/** What a process was started with. */
export interface Started {
  readonly execArgv: readonly string[]
  readonly env: NodeJS.ProcessEnv
}

/**
 * What a process is to be started with instead, for it to use less memory. What whoever started it has chosen stays.
 * @returns null when it was started so
 */
export function frugally({ execArgv, env }: Started): Started | null {
  const flags = [...execArgv, env.NODE_OPTIONS ?? ''].join(' ')
  const hasChosen = flags.includes(SEMI_SPACE) || Object.keys(GLIBC).some((name) => env[name] !== undefined)
  if (hasChosen) return null
  return { execArgv: [...execArgv, `${SEMI_SPACE}=${SEMI_SPACE_MB}`], env: { ...env, ...GLIBC } }
}

/** Begins the command line anew with settings for memory; returns where it runs with them, or the system cannot do it. */
export function restartFrugally(): void {
  const wanted = frugally(process)
  // Node 22.15 has it, and Windows does not.
  if (wanted === null || process.execve === undefined || process.platform === 'win32') return
  const main = fileURLToPath(new URL(`./main${extname(import.meta.url)}`, import.meta.url))
  const args = [process.execPath, ...wanted.execArgv, main, ...process.argv.slice(2)]
  process.execve(process.execPath, args, wanted.env)
}
