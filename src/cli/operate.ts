import { stat } from 'node:fs/promises'
import { removeTokensOf } from '../auth/tokens.ts'
import { openConfig } from '../config/config.ts'
import { settingsOf } from '../config/settings.ts'
import { reachServer } from '../maintenance/control-client.ts'
import { type Controls, localControls } from '../maintenance/controls.ts'
import { Rewinds } from '../maintenance/rewinds.ts'
import { openServerDatabases } from '../threads/server-databases.ts'

/**
 * Works on a data folder: through the server that runs on it, or, when none does, by opening the folder as
 * a server would, which keeps one from starting meanwhile.
 * @param dataDir absolute
 * @throws Error with one clear line when neither can be; as `use`
 */
export async function withControls<T>(
  dataDir: string,
  env: NodeJS.ProcessEnv,
  use: (controls: Controls) => Promise<T>,
): Promise<T> {
  await becomeOwner(dataDir)
  const running = await reachServer(dataDir)
  if (running !== null) return use(running)
  const folder = await openFolder(dataDir, env)
  try {
    return await use(folder.controls)
  } finally {
    await folder.close()
  }
}

/**
 * What root makes in the folder, such as a new local.ini, the server's account could not read: so root takes the place
 * of the folder's owner.
 */
async function becomeOwner(dataDir: string): Promise<void> {
  const folder = await stat(dataDir).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT' && error.code !== 'ENOTDIR') throw error
    throw new Error(`There is no data folder ${dataDir}; name the one of your server with --data.`)
  })
  if (!folder.isDirectory()) throw new Error(`The data folder ${dataDir} is a file.`)
  if (process.getuid?.() !== 0 || folder.uid === 0) return
  process.setgroups?.([folder.gid])
  process.setgid?.(folder.gid)
  process.setuid?.(folder.uid)
}

interface OpenFolder {
  readonly controls: Controls
  close(): Promise<void>
}

async function openFolder(dataDir: string, env: NodeJS.ProcessEnv): Promise<OpenFolder> {
  const config = await openConfig({ dataDir, env, flags: {} })
  const databases = await openServerDatabases({
    dataDir,
    settings: settingsOf(config),
    maxOpen: config.integer('couchdb', 'max_dbs_open'),
    // A call to a thread that has died is refused, and says so.
    onFault: () => undefined,
    onCompactionFault: () => undefined,
  }).catch((error: Error) => {
    throw new Error(`${error.message}.${error.message.includes('in use') ? UNREACHABLE : ''}`, {
      cause: error,
    })
  })
  const revokeTokens = (account: string) => removeTokensOf(databases, account)
  return {
    controls: localControls({ config, databases, rewinds: new Rewinds(databases), env, revokeTokens }),
    close: () => databases.close(),
  }
}

const UNREACHABLE =
  ' Its control socket does not answer: try again when it has started, or stop it first if its log says that it has none.'
