/** Who reads and who writes what in `_users`, protocol.md 11.7. Pure. */
import { CouchError } from '../core/errors.ts'
import { isDesignId } from '../core/ids.ts'
import type { SecurityObject, UserCtx } from '../core/types.ts'
import { userNameOf } from '../core/user-ids.ts'
import type { Branch } from '../revisions/branch.ts'
import type { DocState, StoredAttachment, StoredRevision } from '../storage/engine.ts'
import { splitMembers } from './body.ts'
import { databaseRole, requireMember } from './security.ts'

/** Characters of a document: it is read at once, and by everybody's logins. */
const MAX_USER_DOCUMENT = 128 * 1024

/** @throws document_too_large */
export function checkUserDocumentSize(body: string): void {
  if (body.length <= MAX_USER_DOCUMENT) return
  const reason = `a document of the users database holds more than ${MAX_USER_DOCUMENT} characters`
  throw new CouchError('document_too_large', reason)
}

/** @returns whether the caller may do everything in `_users`: its admins, and those of the server */
export function isUsersAdmin(user: UserCtx, security: SecurityObject | null): boolean {
  return databaseRole(user, security) === 'admin'
}

/** Whether the document describes the caller's own account. */
function isOwn(user: UserCtx, id: string): boolean {
  return user.name !== null && userNameOf(id) === user.name
}

/**
 * Who may write a document, as far as that does not depend on what is written (that is for `_design/_auth` to say).
 * Somebody without a name may make an account, where the security object lets him in at all, and only make it: as a
 * replicator he could otherwise put a revision of his own beside another's, whose account could not be used then.
 * @throws not_found; conflict
 */
export function checkUsersWriter(
  user: UserCtx,
  id: string,
  security: SecurityObject | null,
  isLive: boolean,
): void {
  if (isUsersAdmin(user, security) || isOwn(user, id)) return
  // What is neither an account nor a design document, `_local` ones among it, is for admins.
  if (user.name === null && userNameOf(id) !== null) {
    if (isLive) throw new CouchError('conflict')
    return
  }
  // That rights to design documents are missing is said where they are checked.
  if (!isDesignId(id)) throw new CouchError('not_found')
}

/**
 * A document as the caller may see it.
 * @param publicFields the members that everybody may see
 * @returns null: it is not there for him
 * @throws forbidden for design documents; unauthorized, forbidden for whoever is no member
 */
export function visibleDocument(
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

/** A document of which only some members can be seen, and nothing where a revision has none of them. */
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

  kept(): readonly string[] {
    return this.#doc.kept()
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

  bytes(): Uint8Array {
    throw new CouchError('no_attachment')
  }
}
