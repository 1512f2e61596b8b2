import { access, constants, mkdir, stat } from 'node:fs/promises'
import { dirname } from 'node:path'
import { syncPath } from '../core/durable.ts'
import { StartError } from './start-error.ts'

/**
 * Makes the data folder, mode 0700, where it is missing, and looks whether it can be written. The mode of a folder
 * that is there already is its owner's business.
 * @param path absolute
 * @throws StartError
 */
export async function prepareDataFolder(path: string): Promise<void> {
  try {
    await makeFolder(path, 0o700)
    await access(path, constants.R_OK | constants.W_OK | constants.X_OK)
  } catch (error) {
    if (error instanceof StartError) throw error
    const { code } = error as NodeJS.ErrnoException
    throw new StartError(`The data folder ${path} ${REASONS[code ?? ''] ?? `cannot be used (${code})`}.`, {
      cause: error,
    })
  }
}

const REASONS: Readonly<Record<string, string>> = {
  EACCES: 'cannot be written by this account; change its owner or choose another with --data',
  EPERM: 'cannot be written by this account; change its owner or choose another with --data',
  EROFS: 'is on a read-only file system; choose another with --data',
  ENOSPC: 'cannot be made: the disk is full',
  ENOTDIR: 'cannot be made: a part of its path is a file',
}

// By hand, since mkdir's option `recursive` never returns below /proc (Node 20).
async function makeFolder(path: string, mode?: number): Promise<void> {
  try {
    await mkdir(path, { mode })
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'EEXIST') return mustBeFolder(path)
    if (code !== 'ENOENT' || dirname(path) === path || (await exists(dirname(path)))) throw error
    await makeFolder(dirname(path))
    return makeFolder(path, mode)
  }
  await syncPath(dirname(path))
}

async function mustBeFolder(path: string): Promise<void> {
  if (!(await stat(path)).isDirectory()) throw new StartError(`The data folder ${path} is a file.`)
}

async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  )
}
