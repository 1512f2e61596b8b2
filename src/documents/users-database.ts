/**
 * The database `_users`, protocol.md 11.7: everybody sees and writes his own document and nobody else's, passwords are
 * hashed as they come in, and the rules of documents stand in `_design/_auth`.
 */
import { CouchError } from '../core/errors.ts'
import type { Rules, UserCtx } from '../core/types.ts'
import type { DatabaseStore } from '../storage/engine.ts'
import type { RememberingStore } from '../storage/history.ts'
import { AUTH_DESIGN_BODY, AUTH_DESIGN_ID } from './auth-design.ts'
import type { Database } from './database.ts'
import type { DocumentReader } from './document-reader.ts'
import type { DocumentRules } from './document-rules.ts'
import { decideEdits } from './edit.ts'
import { type CompilePattern, PasswordHashing } from './password-hashing.ts'
import { type StoreDatabaseOptions, storeDatabase } from './store-database.ts'
import { checkUserDocumentSize, checkUsersWriter, isUsersAdmin, visibleDocument } from './users-rules.ts'

export interface UsersDatabaseOptions extends StoreDatabaseOptions {
  /** Makes a test of a pattern of `chttpd_auth/password_regexp`. */
  readonly compilePattern: CompilePattern
}

/**
 * Opens `_users` over its store. Methods about more than single documents are not guarded here:
 * threads/served-users.ts keeps them for admins.
 */
export async function usersDatabase(
  store: RememberingStore,
  options: UsersDatabaseOptions,
): Promise<Database> {
  const keeper = new AuthDesign(store)
  // A disk that is full must not keep anybody from logging in; then the first write tries again.
  await keeper.ensure().catch(() => undefined)
  const database = storeDatabase(store, { ...options, documentRules: usersRules(store, options, keeper) })
  return {
    ...database,
    setSecurity: async (user, security) => {
      if (!options.rules().users.securityEditable) {
        throw new CouchError('forbidden', "You can't edit the security object of the user database.")
      }
      return database.setSecurity(user, security)
    },
  }
}

function usersRules(
  store: DatabaseStore,
  { rules, compilePattern }: UsersDatabaseOptions,
  keeper: AuthDesign,
): DocumentRules {
  const hashing = new PasswordHashing(rules, compilePattern)
  return {
    reader: (user) => usersReader(store, user, rules),
    checkWriter: checkUsersWriter,
    checkDocument: (doc) => {
      checkUserDocumentSize(doc.body)
      hashing.check(doc)
    },
    prepare: async (doc) => {
      await keeper.ensure()
      return hashing.prepare(doc)
    },
  }
}

function usersReader(store: DatabaseStore, user: UserCtx, rules: () => Rules): DocumentReader {
  const { publicFields } = rules().users
  return {
    view: () => store.view(),
    readDocs: (ids, read, touches) =>
      store.readDocs(
        ids,
        (doc, id, view) => read(visibleDocument(doc, user, id, view.security, publicFields), id, view),
        touches,
      ),
    readLocals: async (ids) => {
      const isAdmin = isUsersAdmin(user, (await store.view()).security)
      return isAdmin ? store.readLocals(ids) : ids.map(() => null)
    },
    readBlob: (blob, offset, length) => store.readBlob(blob, offset, length),
    pinBlob: (blob) => store.pinBlob(blob),
  }
}

/** Sees to it that `_design/_auth` is there: nothing is written before it is, since it holds the rules. */
class AuthDesign {
  readonly #store: DatabaseStore
  #isThere = false

  constructor(store: DatabaseStore) {
    this.#store = store
  }

  /** Makes the design document, unless one is there, whatever it says. @throws as the store */
  async ensure(): Promise<void> {
    if (this.#isThere) return
    const doc = { id: undefined, path: null, deleted: false, body: AUTH_DESIGN_BODY, attachments: [] }
    const [outcome] = await this.#store.updateDocs([
      {
        id: AUTH_DESIGN_ID,
        bytes: AUTH_DESIGN_BODY.length,
        touches: { branches: true },
        decide: (state, view) =>
          state !== null && !state.deleted
            ? { result: [] }
            : decideEdits(AUTH_DESIGN_ID, state, view.revsLimit, [{ doc, newEdits: true }]),
      },
    ])
    if (outcome !== undefined && 'error' in outcome) throw outcome.error
    this.#isThere = true
  }
}
