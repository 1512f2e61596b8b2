/** settee as a peer: built, and started from dist/. */
import { spawnSync } from 'node:child_process'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Peer } from './peer.ts'
import { startServer } from './server-process.ts'

const ROOT = fileURLToPath(new URL('..', import.meta.url))

/** The command line of a build. @param checkout the folder of its checkout */
export function mainOf(checkout: string): string {
  return join(resolve(checkout), 'dist/cli/main.js')
}

/** Name and password of the admin, whose credentials come with every request. */
export const ADMIN = 'bench-admin'

/** The variables that create the admin. */
export const ADMIN_ENV = { COUCHDB_USER: ADMIN, COUCHDB_PASSWORD: ADMIN }

/** @returns the address in settee's output so far, with the admin's credentials; undefined while it is not ready */
export function addressIn(printed: string): string | undefined {
  return /is ready at (http:[^"\s]+)/.exec(printed)?.[1]?.replace('//', `//${ADMIN}:${ADMIN}@`)
}

export interface SetteeOptions {
  /** Additional variables for the server. */
  readonly env?: Readonly<Record<string, string>>
  readonly isHosted?: boolean
}

/**
 * Builds this checkout.
 * @returns its folder
 * @throws Error when it cannot be built
 */
export function builtHere(): string {
  const built = spawnSync(process.execPath, ['scripts/build.mjs'], { cwd: ROOT, stdio: 'inherit' })
  if (built.status !== 0) throw new Error('settee cannot be built')
  return ROOT
}

/**
 * Starts a build of settee, so that two can be compared in one run.
 * @param checkout the folder of a checkout in which settee is built; by default this one, which is built first
 * @throws when it cannot be built, or ends before it is ready
 */
export function startSettee(
  name = 'settee',
  checkout = builtHere(),
  { env = {}, isHosted = false }: SetteeOptions = {},
): Promise<Peer> {
  const main = mainOf(checkout)
  return startServer({
    name,
    durability: 'fsync before every answer',
    args: (folder) => [main, 'serve', '--port', '0', '--data', folder, ...(isHosted ? ['--hosted'] : [])],
    env: { ...env, ...ADMIN_ENV },
    address: addressIn,
  })
}
