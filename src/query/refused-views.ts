/** The views of a server in hosted mode, docs/hosted.md: there are none, whatever design documents are stored. */
import { CouchError } from '../core/errors.ts'
import type { UserCtx } from '../core/types.ts'
import { requireMember } from '../documents/security.ts'
import type { DatabaseStore } from '../storage/engine.ts'
import type { ViewSource } from './views.ts'

/** Every call rejects with hosted_function, or with what the caller's rights lack. */
export function refusedViews(store: DatabaseStore): ViewSource {
  const refuse = async (user: UserCtx): Promise<never> => {
    requireMember(user, (await store.view()).security)
    throw new CouchError('hosted_function')
  }
  return {
    // biome-ignore lint/correctness/useYield: it ends before there is anything to send
    view: async function* (user) {
      await refuse(user)
    },
    // biome-ignore lint/correctness/useYield: it ends before there is anything to send
    viewQueries: async function* (user) {
      await refuse(user)
    },
    viewInfo: refuse,
  }
}
