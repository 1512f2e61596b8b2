import { startServer } from '../server.ts'
import type { ServeArguments } from './arguments.ts'
import { dataFolder } from './data-folder.ts'
import { runUntilSignalled } from './lifecycle.ts'

/** `settee serve`: runs the server until a signal ends it. */
export async function serve({ data, flags }: ServeArguments, env: NodeJS.ProcessEnv): Promise<void> {
  const dataDir = dataFolder(data, env)
  await runUntilSignalled(() => startServer({ dataDir, env, flags }))
}
