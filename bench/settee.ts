/** settee as a peer: built, and started from dist/. */
import { spawnSync } from 'node:child_process'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Peer } from './peer.ts'
import { startServer } from './server-process.ts'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const MAIN = 'dist/cli/main.js'

/** Name and password of the admin, whose credentials come with every request. */
export const ADMIN = 'bench-admin'

/** The variables that create the admin. */
export const ADMIN_ENV = { COUCHDB_USER: ADMIN, COUCHDB_PASSWORD: ADMIN }

/** @returns the address in settee's output so far, with the admin's credentials; undefined while it is not ready */
export function addressIn(printed: string): string | undefined {
  return /is ready at (http:[^"\s]+)/.exec(printed)?.[1]?.replace('//', `//${ADMIN}:${ADMIN}@`)
}

/**
 * @param env additional variables for the server
 * @param isHosted in hosted mode
 * @throws when settee cannot be built, or ends before it is ready
 */
export async function startSettee(
  env: Readonly<Record<string, string>> = {},
  isHosted = false,
): Promise<Peer> {
  const built = spawnSync(process.execPath, ['scripts/build.mjs'], { cwd: ROOT, stdio: 'inherit' })
  if (built.status !== 0) throw new Error('settee cannot be built')
  return startBuilt('settee', ROOT, env, isHosted)
}

/**
 * Starts another build of settee, to compare the two in one run.
 * @param checkout the folder of a checkout in which settee is built
 * @throws when it ends before it is ready
 */
export async function startBeside(
  checkout: string,
  env: Readonly<Record<string, string>> = {},
  isHosted = false,
): Promise<Peer> {
  return startBuilt('beside', resolve(checkout), env, isHosted)
}

function startBuilt(
  name: string,
  checkout: string,
  env: Readonly<Record<string, string>>,
  isHosted: boolean,
): Promise<Peer> {
  const main = join(checkout, MAIN)
  return startServer({
    name,
    durability: 'fsync before every answer',
    args: (folder) => [main, 'serve', '--port', '0', '--data', folder, ...(isHosted ? ['--hosted'] : [])],
    env: { ...env, ...ADMIN_ENV },
    address: addressIn,
  })
}
