/** A database over its open store, as its thread serves it. */
import { readFilterBody } from '../changes/filter-body.ts'
import { changesPage } from '../changes/page.ts'
import type { Space } from '../core/space.ts'
import type { SecurityObject, Settings } from '../core/types.ts'
import { holdsAccounts } from '../core/user-ids.ts'
import type { MassDeletion } from '../documents/deletion-watch.ts'
import { ownFunctionsOnly } from '../documents/own-functions.ts'
import { storeDatabase } from '../documents/store-database.ts'
import { usersDatabase } from '../documents/users-database.ts'
import { Budget } from '../query/budget.ts'
import { storeFind } from '../query/find.ts'
import { refusedViews } from '../query/refused-views.ts'
import { compileRegex } from '../query/regex.ts'
import type { ViewMemory } from '../query/view-memory.ts'
import { storeViews } from '../query/views.ts'
import type { SandboxClient } from '../sandbox/client.ts'
import type { RememberingStore } from '../storage/history.ts'
import { servedUsers } from './served-users.ts'
import type { Reply, ServedDatabase } from './wire.ts'

/** What of its thread a database is served with. */
export interface Served {
  readonly name: string
  readonly incarnation: number
  settings(): Settings
  space(): Space
  readonly functions: SandboxClient
  readonly views: ViewMemory
  startCompaction(): void
  /** Tells the HTTP thread. */
  tell(reply: Reply): void
}

/** @returns what is asked of it, by the names of wire.ts */
export async function served(store: RememberingStore, around: Served): Promise<ServedDatabase> {
  const { name, incarnation, views, tell } = around
  const { isHosted } = around.settings().rules
  const { sandbox: own } = around.functions
  const sandbox = isHosted ? ownFunctionsOnly(own, name) : own
  const house = isHosted ? null : { sandbox, name, incarnation }
  const options = {
    name,
    limits: () => around.settings().limits,
    rules: () => around.settings().rules,
    space: () => around.space(),
    onSecured: (security: SecurityObject) => tell({ type: 'secured', incarnation, security }),
    onMassDeletion: (found: MassDeletion) => tell({ type: 'alarm', incarnation, found }),
    sandbox,
    incarnation,
    startCompaction: () => around.startCompaction(),
    viewBytes: () => views.bytesOf(store),
  }
  const isUsers = holdsAccounts(name, around.settings().rules.users.database)
  const documents = isUsers
    ? await usersDatabase(store, { ...options, compilePattern })
    : storeDatabase(store, options)
  // What `_users` is made with is no news of it: nothing is told of before now.
  store.onCommit((updateSeq, epoch) => tell({ type: 'committed', incarnation, updateSeq, epoch }))
  const database: ServedDatabase = {
    ...documents,
    ...(isHosted ? refusedViews(store) : storeViews({ store, sandbox, incarnation, memory: views })),
    ...storeFind(store, name, () => around.settings().rules.find),
    changes: (user, request) => changesPage(store, user, request, house),
    readFilterBody: async (_user, body, withText) => readFilterBody(body, withText),
  }
  return isUsers ? servedUsers(database, () => database.security()) : database
}

/** A test of a pattern that holds the thread for a bounded time, however long the text. */
function compilePattern(pattern: string): (text: string) => boolean {
  return compileRegex(pattern, new Budget().spend)
}
