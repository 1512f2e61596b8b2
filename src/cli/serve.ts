import { startServer } from '../server.ts'
import { dataFolder } from './data-folder.ts'
import { runUntilSignalled } from './lifecycle.ts'
import type { ServeCommand } from './serve-arguments.ts'

/** `settee serve`: runs the server until a signal ends it. */
export async function runServeCommand(
  { data, flags }: ServeCommand,
  env: NodeJS.ProcessEnv,
): Promise<undefined> {
  const dataDir = dataFolder(data, env)
  await runUntilSignalled(() => startServer({ dataDir, env, flags }))
}
