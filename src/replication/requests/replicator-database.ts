/**
 * The database `_replicator`, and others whose name ends with `/_replicator`: their documents are replications. They are
 * checked when they are written, belong to an owner, and are stored without readable credentials. protocol.md 14.3;
 * before_doc_update in couch_replicator_docs.
 */
import { CouchError } from '../../core/errors.ts'
import { isDesignId, isLocalId } from '../../core/ids.ts'
import type { UserCtx } from '../../core/types.ts'
import { memberValue, splitMembers } from '../../documents/body.ts'
import type { Database, DocumentRules, RuledWrite } from '../../documents/database.ts'
import type { IncomingDoc } from '../../documents/incoming-document.ts'
import { databaseRole } from '../../documents/security.ts'
import { type StoreDatabaseOptions, storeDatabase } from '../../documents/store-database.ts'
import type { DocState } from '../../storage/engine.ts'
import type { VersionedStore } from '../../storage/history-store.ts'
import { checkReplication } from './replication-document.ts'
import { maskCredentials, SEALED_MEMBER, SECRET_MEMBERS, sealCredentials } from './sealed-credentials.ts'

/** The most characters of a document, as of a body of `_replicate`: it is parsed in one step. */
const MAX_CHARS = 1024 * 1024
/** The most characters of an endpoint, and of the sealed values of all. */
const MAX_MEMBER_CHARS = 64 * 1024
const MAX_SEALED_CHARS = 512 * 1024
type Members = Readonly<Record<string, unknown>>

const OWNER = 'owner'
const REWRITTEN: ReadonlySet<string> = new Set([...SECRET_MEMBERS, SEALED_MEMBER, OWNER])

/** Opens a database of replications over its store. */
export function replicatorDatabase(store: VersionedStore, options: StoreDatabaseOptions): Database {
  return storeDatabase(store, { ...options, documentRules: replicatorRules(store, options) })
}

function replicatorRules(store: VersionedStore, { rules }: StoreDatabaseOptions): DocumentRules {
  const sealingKey = () => rules().replicator.sealingKey
  return {
    reader: () => store,
    checkWriter: (user, id) => {
      if (isReplication(id)) requireReplicator(user, rules().replicator.isForAdminsOnly)
    },
    checkDocument: (doc, write) => {
      if (!hasOwnBody(write)) return
      checkSize(doc)
      const { owner: given } = writtenMembers(doc)
      if (doc.deleted) return
      const owner = ownerFor(given, write.user)
      if (write.kind !== 'edit') return
      const members = JSON.parse(doc.body) as Members
      checkReplication({ ...members, owner }, sealingKey())
    },
    prepare: async (doc, write) => {
      if (!hasOwnBody(write)) return doc
      const members = writtenMembers(doc)
      // A tombstone asks for nothing, but may repeat the document.
      if (doc.deleted) return rewritten(doc, { ...ownerMember(members), ...maskCredentials(members) })
      const owner = ownerFor(members.owner, write.user)
      return rewritten(doc, { owner, ...sealCredentials(members, owner, sealingKey()) })
    },
    checkStored: (stored, write) => {
      if (isReplication(write.id)) requireOwner(stored, write)
    },
  }
}

function isReplication(id: string): boolean {
  return !isDesignId(id) && !isLocalId(id)
}

/** Design documents and `_local` ones are ordinary, and a rewind writes what was stored. */
function hasOwnBody({ id, kind, isAttachment }: RuledWrite): boolean {
  return isReplication(id) && !isAttachment && kind !== 'rewind'
}

/** @throws unauthorized for anonymous users; hosted_replication */
function requireReplicator({ name, roles }: UserCtx, isForAdminsOnly: boolean): void {
  if (roles.includes('_admin')) return
  if (name === null) throw new CouchError('unauthorized', 'Log in to replicate.')
  if (isForAdminsOnly) throw new CouchError('hosted_replication')
}

/**
 * The owner of a document that a user writes, with whose rights it will run.
 * @throws forbidden
 */
function ownerFor(given: unknown, { name, roles }: UserCtx): string | null {
  if (given === undefined || given === name) return name
  if (!roles.includes('_admin')) throw othersDocument()
  if (given === null) return name
  if (typeof given === 'string') return given
  throw new CouchError('forbidden', '`owner` must be a string')
}

/** Only its owner and admins of the database replace or delete a document. @throws forbidden */
function requireOwner(
  stored: DocState | null,
  { user, security, isAttachment }: Pick<RuledWrite, 'user' | 'security' | 'isAttachment'>,
): void {
  if (stored === null || stored.deleted) {
    if (isAttachment) throw new CouchError('forbidden', 'A replication begins without attachments.')
    return
  }
  const text = stored.body(stored.rev)
  const owner = text === null ? null : memberValue(splitMembers(text, isOwnerName).special, OWNER)
  if (owner === user.name || databaseRole(user, security) === 'admin') return
  throw othersDocument()
}

function isOwnerName(name: string): boolean {
  return name === OWNER
}

function othersDocument(): CouchError {
  return new CouchError('forbidden', "Can't update replication documents from other users.")
}

/** @throws document_too_large */
function checkSize({ body }: IncomingDoc): void {
  if (body.length <= MAX_CHARS) return
  throw new CouchError('document_too_large', `a replication holds more than ${MAX_CHARS} characters`)
}

/** The members that depend on the writer, which no other kind of write may leave as they are. @throws document_too_large */
function writtenMembers({ body }: IncomingDoc): Members {
  const { special } = splitMembers(body, (name) => REWRITTEN.has(name))
  const members: Record<string, unknown> = {}
  for (const [name, json] of special) {
    const most = name === SEALED_MEMBER ? MAX_SEALED_CHARS : MAX_MEMBER_CHARS
    if (json.length > most) {
      const reason = `\`${name}\` of a replication holds more than ${most} characters`
      throw new CouchError('document_too_large', reason)
    }
    members[name] = JSON.parse(json)
  }
  return members
}

function ownerMember({ owner }: Members): Members {
  return owner === undefined ? {} : { owner }
}

/** Replaces the members that depend on the writer; the text of all others stays. */
function rewritten(doc: IncomingDoc, members: Members): IncomingDoc {
  const { body } = splitMembers(doc.body, (name) => REWRITTEN.has(name))
  const added = JSON.stringify(members)
  if (added === '{}') return { ...doc, body }
  return { ...doc, body: body === '{}' ? added : `${added.slice(0, -1)},${body.slice(1)}` }
}
