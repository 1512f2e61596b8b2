/** Hosted mode at the start of a server: what it needs, and which mode the nodes of a store are in (docs/hosted.md). */
import { USERS_DATABASE } from '../core/ids.ts'
import type { SettingsRead, SharedSettings } from './shared-settings.ts'
import { StartError } from './start-error.ts'

/**
 * The policy names the database whose design document may run (documents/document-policy.ts).
 * @throws StartError if accounts are in another one
 */
export function requireUsersDatabase(isHosted: boolean, usersDatabase: string): void {
  const problem = problemOfUsersDatabase(isHosted, usersDatabase)
  if (problem !== null) throw new StartError(problem)
}

/** @returns why this database cannot have the accounts; null if it can */
export function problemOfUsersDatabase(isHosted: boolean, usersDatabase: string): string | null {
  if (!isHosted || usersDatabase === USERS_DATABASE) return null
  return `In hosted mode accounts are in ${USERS_DATABASE}: remove chttpd_auth/authentication_db.`
}

/**
 * The mode of the nodes of a store: a node in single mode would serve the databases of tenants without regard to their
 * owners. The first node decides. Later ones follow, but none starts in hosted mode beside nodes in single mode.
 * @param own whether this node was started in hosted mode, and whether it is a server: a command decides nothing
 * @returns whether the nodes are in hosted mode, and the settings that were read
 * @throws StartError; as `SharedSettings.read`
 */
export async function agreeOnMode(
  store: SharedSettings,
  own: { readonly isHosted: boolean; readonly isServer: boolean },
): Promise<{ readonly isHosted: boolean; readonly read: SettingsRead }> {
  const { isHosted, isServer } = own
  for (;;) {
    const read = await store.read(null)
    const mode = read.sections.get('settee')?.get('mode')
    if (isHosted && mode === 'single') {
      throw new StartError(
        'The nodes of this store are in single mode, and this one was started in hosted mode. To change them all, set ' +
          'settee/mode to "hosted" with PUT /_node/_local/_config on one of them, and start them again.',
      )
    }
    if (mode) return { isHosted: mode === 'hosted', read }
    if (!isServer) return { isHosted, read }
    const written = await store.write(read, 'settee', 'mode', isHosted ? 'hosted' : 'single')
    if (written !== null) return { isHosted, read: written }
    // Another node has changed a setting meanwhile, which may be the mode.
  }
}
