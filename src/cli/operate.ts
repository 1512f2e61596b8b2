/** Runs control commands on a data folder. Whatever opens a folder is loaded only where no server runs on it. */
import { stat } from 'node:fs/promises'
import { resolve } from 'node:path'
import type { ControlCommands } from '../control/control-commands.ts'
import { reachServer } from '../control/control-socket.ts'

export interface FolderOptions {
  /** The absolute path of a copy of server.sqlite, which replaces the one in the folder before that is opened. */
  readonly serverFile?: string
}

/**
 * Runs control commands on a data folder: on the server that runs on it, or, if none does, by opening the folder as a
 * server would. That keeps a server from starting in the meantime.
 * @param dataDir absolute
 * @throws Error with a one-line message if both fail; as `use`
 */
export async function withControl<T>(
  dataDir: string,
  env: NodeJS.ProcessEnv,
  use: (controls: ControlCommands) => Promise<T>,
  { serverFile }: FolderOptions = {},
): Promise<T> {
  await becomeOwner(dataDir)
  const running = await reachServer(dataDir)
  if (running !== null) {
    if (serverFile !== undefined) throw new Error(`A server is running on ${dataDir}; stop it first.`)
    return use(running)
  }
  const { openFolder } = await import('./opened-folder.ts')
  const folder = await openFolder(dataDir, env, serverFile)
  try {
    return await use(folder.controls)
  } finally {
    await folder.close()
  }
}

/**
 * Switches from root to the owner of the folder, because the server's account could not read root's files, such as a
 * new local.ini.
 * @param dataDir absolute
 * @throws Error with a one-line message if the folder does not exist
 */
export async function becomeOwner(dataDir: string): Promise<void> {
  const folder = await stat(dataDir).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT' && error.code !== 'ENOTDIR') throw error
    throw new Error(
      `The data folder ${dataDir} does not exist; use --data to give your server's data folder.`,
    )
  })
  if (!folder.isDirectory()) throw new Error(`The data folder ${dataDir} is a file.`)
  if (process.getuid?.() !== 0 || folder.uid === 0) return
  process.setgroups?.([folder.gid])
  process.setgid?.(folder.gid)
  process.setuid?.(folder.uid)
}

/**
 * @param given with --data
 * @returns the absolute path of the data folder
 */
export function dataFolder(given: string | undefined, env: NodeJS.ProcessEnv): string {
  return resolve(given ?? (env.SETTEE_DATA?.trim() || 'data'))
}
