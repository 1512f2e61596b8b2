import { access, constants, mkdir, opendir, stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { syncPath } from '../core/durable-files.ts'
import { Yielder } from '../core/event-loop.ts'
import { closeToOthers } from '../core/file-modes.ts'
import { StartError } from './start-error.ts'

/**
 * Makes the data folder with mode 0700 if it is missing, and checks that it can be written. An existing folder keeps its
 * mode.
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

/** The files and folders that settee writes in a data folder; `databases` with the files in it. */
const OWN =
  /^(?:server\.sqlite.*|local\.ini|lock|ballast|databases|samples|backups|before-upgrade|replaced|tmp|control|store)$/

/**
 * Removes others' rights to files of older versions, if this account owns them. Files that cannot be changed, such as on
 * a read-only mount, stay as they are.
 * @param path of an existing data folder
 */
export async function restrictPermissions(path: string): Promise<void> {
  let wasOpen = false
  for await (const { name } of await opendir(path)) {
    if (OWN.test(name) && closeToOthers(join(path, name)) === 'opened' && name === 'databases') wasOpen = true
  }
  // Others could reach no file in a folder that was closed to them. There may be a million files, and the catalog looks at each
  // of them after the start (storage/sqlite/folder-scan.ts).
  if (!wasOpen) return
  const databases = await opendir(join(path, 'databases'))
  const yielder = new Yielder()
  for await (const { name } of databases) {
    closeToOthers(join(path, 'databases', name))
    await yielder.yieldIfDue()
  }
}
