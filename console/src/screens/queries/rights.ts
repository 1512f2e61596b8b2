/** Who may change the indexes of a database. */
import { ask, pathOf } from '../../api/client.ts'
import { server, user } from '../../api/session.ts'

interface Security {
  readonly admins?: { readonly names?: readonly string[]; readonly roles?: readonly string[] }
}

/** @returns whether the user may; the server has the last word @throws Failure */
export async function mayChangeIndexes(database: string, signal: AbortSignal): Promise<boolean> {
  const { value } = user
  if (value === null || value.isAdmin) return true
  if (server.value?.isHosted === true) {
    const { databases } = await ask<{ databases: readonly { name: string }[] }>('_settee/account', { signal })
    return databases.some(({ name }) => name === database)
  }
  const { admins } = await ask<Security>(pathOf(database, '_security'), { signal })
  const { names = [], roles = [] } = admins ?? {}
  return names.includes(value.name) || roles.some((role) => value.roles.includes(role))
}
