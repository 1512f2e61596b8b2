import { dataFolder } from './data-folder.ts'
import { runUntilSignalled } from './lifecycle.ts'
import { restartFrugally } from './memory-settings.ts'
import type { ServeCommand } from './serve-arguments.ts'

/** `settee serve`: runs the server until a signal ends it. */
export async function runServeCommand(
  { data, flags }: ServeCommand,
  env: NodeJS.ProcessEnv,
): Promise<undefined> {
  restartFrugally()
  const dataDir = dataFolder(data, env)
  // Not imported above: a process that begins anew would load it for nothing.
  const { startServer } = await import('../server.ts')
  await runUntilSignalled(() => startServer({ dataDir, env, flags }))
}
