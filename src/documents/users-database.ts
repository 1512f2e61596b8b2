/**
 * The database `_users`, protocol.md 11.7: users see and write only their own documents, new passwords are hashed,
 * and the rules for documents are in `_design/_auth`.
 */
import { CouchError } from '../core/errors.ts'
import { isDesignId, userNameOf } from '../core/ids.ts'
import type { Rules, SecurityObject, UserCtx } from '../core/types.ts'
import type { Branch } from '../revisions/branch.ts'
import type { DatabaseStore, DocState, StoredAttachment, StoredRevision } from '../storage/engine.ts'
import type { VersionedStore } from '../storage/history-store.ts'
import { AUTH_DESIGN_BODY, AUTH_DESIGN_ID } from './auth-design.ts'
import { splitMembers } from './body.ts'
import type { Database, DocumentReader, DocumentRules } from './database.ts'
import { decideEdits } from './edit.ts'
import { type CompilePattern, PasswordHashing } from './password-hashing.ts'
import { databaseRole, requireMember } from './security.ts'
import { type StoreDatabaseOptions, storeDatabase } from './store-database.ts'

interface UsersDatabaseOptions extends StoreDatabaseOptions {
  /** Compiles a pattern of `chttpd_auth/password_regexp`. */
  readonly compilePattern: CompilePattern
}

/**
 * Opens `_users` over its store. Methods about more than single documents are not checked here: threads/served.ts
 * restricts them to admins.
 */
export async function usersDatabase(store: VersionedStore, options: UsersDatabaseOptions): Promise<Database> {
  const authDesign = new AuthDesign(store)
  // A full disk must not keep users from logging in. If this fails, the first write tries again.
  await authDesign.ensure().catch(() => undefined)
  const database = storeDatabase(store, { ...options, documentRules: usersRules(store, options, authDesign) })
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
  authDesign: AuthDesign,
): DocumentRules {
  const hashing = new PasswordHashing(rules, compilePattern)
  return {
    reader: (user) => usersReader(store, user, rules),
    checkWriter: checkUsersWriter,
    checkDocument: (doc, { kind }) => {
      checkUserDocumentSize(doc.body)
      hashing.check(doc, kind === 'replica')
    },
    prepare: async (doc) => {
      await authDesign.ensure()
      return hashing.prepare(doc)
    },
  }
}

function usersReader(store: DatabaseStore, user: UserCtx, rules: () => Rules): DocumentReader {
  const { publicFields } = rules().users
  return {
    partitioned: store.partitioned,
    view: () => store.view(),
    readDocs: (ids, read, readSet, chars) =>
      store.readDocs(
        ids,
        (doc, id, view, place) =>
          read(visibleDocument(doc, user, id, view.security, publicFields), id, view, place),
        readSet,
        chars,
      ),
    readLocals: async (ids) => {
      const isAdmin = isUsersAdmin(user, (await store.view()).security)
      return isAdmin ? store.readLocals(ids) : ids.map(() => null)
    },
    readBlob: (blob, offset, length) => store.readBlob(blob, offset, length),
    referenceBlob: (blob) => store.referenceBlob(blob),
  }
}

/** Creates `_design/_auth`. Nothing is written before it exists, since it holds the rules. */
class AuthDesign {
  readonly #store: DatabaseStore
  #isThere = false

  constructor(store: DatabaseStore) {
    this.#store = store
  }

  /** Creates the design document unless one exists with any content. @throws as the store */
  async ensure(): Promise<void> {
    if (this.#isThere) return
    const doc = { id: undefined, path: null, deleted: false, body: AUTH_DESIGN_BODY, attachments: [] }
    const [outcome] = await this.#store.updateDocs([
      {
        id: AUTH_DESIGN_ID,
        bytes: AUTH_DESIGN_BODY.length,
        readSet: { branches: true, ancestry: 'winner' },
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

/** Maximum number of characters in a document, since every login reads one in one step. */
const MAX_USER_DOCUMENT = 128 * 1024

/** @throws document_too_large */
function checkUserDocumentSize(body: string): void {
  if (body.length <= MAX_USER_DOCUMENT) return
  const reason = `a document of the users database holds more than ${MAX_USER_DOCUMENT} characters`
  throw new CouchError('document_too_large', reason)
}

/** @returns whether the caller may do everything in `_users`, as its admins and server admins may */
function isUsersAdmin(user: UserCtx, security: SecurityObject | null): boolean {
  return databaseRole(user, security) === 'admin'
}

/** Whether the document describes the caller's own account. */
function isOwn(user: UserCtx, id: string): boolean {
  return user.name !== null && userNameOf(id) === user.name
}

/**
 * Checks the right to write a document; `_design/_auth` checks its content. Anonymous callers may create an account if
 * the security object admits them, but not change one: as a replicator, they could otherwise add a conflicting revision
 * to another user's document, and that account would be unusable.
 * @throws not_found; conflict
 */
function checkUsersWriter(user: UserCtx, id: string, security: SecurityObject | null, isLive: boolean): void {
  if (isUsersAdmin(user, security) || isOwn(user, id)) return
  // Other documents, including `_local` ones, are for admins.
  if (user.name === null && userNameOf(id) !== null) {
    if (isLive) throw new CouchError('conflict')
    return
  }
  // The rights to design documents are checked elsewhere.
  if (!isDesignId(id)) throw new CouchError('not_found')
}

/**
 * A document as the caller may see it.
 * @param publicFields the members that everybody may see
 * @returns null for a document hidden from the caller
 * @throws forbidden for design documents; unauthorized, forbidden for callers who are not members
 */
function visibleDocument(
  doc: DocState | null,
  user: UserCtx,
  id: string,
  security: SecurityObject | null,
  publicFields: readonly string[],
): DocState | null {
  requireMember(user, security)
  if (doc === null || isUsersAdmin(user, security)) return doc
  if (isDesignId(id)) {
    throw new CouchError('forbidden', 'Only administrators can view design docs in the users database.')
  }
  if (isOwn(user, id)) return doc
  return publicFields.length === 0 || userNameOf(id) === null ? null : new PublicDocument(doc, publicFields)
}

/** A document that shows only some members. A revision without any of them appears to have no body. */
class PublicDocument implements DocState {
  readonly #doc: DocState
  readonly #fields: ReadonlySet<string>

  constructor(doc: DocState, fields: readonly string[]) {
    this.#doc = doc
    this.#fields = new Set(fields)
  }

  get id(): string {
    return this.#doc.id
  }
  get seq(): number {
    return this.#doc.seq
  }
  get rev(): string {
    return this.#doc.rev
  }
  get deleted(): boolean {
    return this.#doc.deleted
  }
  get hasOneLeaf(): boolean {
    return this.#doc.hasOneLeaf
  }
  get branches(): readonly Branch[] {
    return this.#doc.branches
  }

  revisions(): readonly StoredRevision[] {
    return this.#doc.revisions()
  }

  retained(): readonly string[] {
    return this.#doc.retained()
  }

  isDeleted(rev: string): boolean | null {
    return this.#doc.isDeleted(rev)
  }

  body(rev: string): string | null {
    const text = this.#doc.body(rev)
    if (text === null) return null
    const { body } = splitMembers(text, (name) => !this.#fields.has(name))
    return body === '{}' ? null : body
  }

  attachments(): readonly StoredAttachment[] {
    return []
  }
}
