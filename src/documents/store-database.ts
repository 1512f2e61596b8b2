/** A {@link Database} over its store, on the thread that owns the database. */
import { CouchError } from '../core/errors.ts'
import { checkDocId, type IdRules, isLocalId } from '../core/ids.ts'
import type { Limits, Rules, SecurityObject, Settings, Space, UserCtx } from '../core/types.ts'
import { uuidMaker } from '../core/uuids.ts'
import { formatRev, parseRev, type Rev } from '../revisions/rev.ts'
import type { Sandbox } from '../sandbox/messages.ts'
import type { DatabaseStore } from '../storage/engine.ts'
import type { VersionedStore } from '../storage/history-store.ts'
import { epochAt, sequenceToken } from '../storage/sequence.ts'
import { allDocs, allDocsQueries } from './all-docs.ts'
import { withUploads } from './attachment-uploads.ts'
import { brokenFunctions } from './broken-functions.ts'
import { bulkDocs } from './bulk-docs.ts'
import { bulkGet, bulkGetMixed } from './bulk-get.ts'
import { conflictList } from './conflict-list.ts'
import { withCopySource } from './copy.ts'
import type {
  Body,
  Database,
  DatabaseInfo,
  DocumentReader,
  DocumentRules,
  PutOptions,
  SavedDocument,
} from './database.ts'
import type { MassDeletion } from './deletion-watch.ts'
import { countDisallowed } from './document-policy.ts'
import { type EditResult, replicatedPath } from './edit.ts'
import { exportLines } from './export.ts'
import { giveUpCalls } from './give-up.ts'
import { checkAttachmentName } from './incoming-attachments.ts'
import { type IncomingDoc, namedRev, readDocument } from './incoming-document.ts'
import { copyLocals } from './local-copies.ts'
import { readForm, readMultipart, uploadFollowing, uploadForm } from './multipart-document.ts'
import { openAttachment, openDocument, openParts } from './open.ts'
import { openRevs, openRevsMixed } from './open-revisions.ts'
import { documentReader, partitionCalls } from './partition-calls.ts'
import { maintenance } from './purge.ts'
import { rememberTokens } from './remember-tokens.ts'
import { bodyLength, documentText } from './request-body.ts'
import { missingRevsAnswer, revsDiff } from './revs-diff.ts'
import { requireDatabaseAdmin, requireMember } from './security.ts'
import { readContent } from './stored-content.ts'
import { timeMachine } from './time-machine/rewind.ts'
import { type AnyEdit, writeEdits } from './write.ts'
import { WriteChecks } from './write-checks.ts'

/** The number of CouchDB 3.5's file format; clients read it but do not use it. */
const DISK_FORMAT_VERSION = 8

/** The dependencies of a database other than its store. */
export interface StoreDatabaseOptions {
  /** The database's name. */
  readonly name: string
  /** Called for each request, since limits can change while the server runs. */
  limits(): Limits
  rules(): Rules
  /** The free disk space; unlimited by default. */
  space?(): Space
  /** Called after a new security object is durable. */
  onSecured(security: SecurityObject): void
  /** Runs the functions of the database's design documents. */
  readonly sandbox: Sandbox
  readonly incarnation: number
  /** Starts a compaction, unless one runs. Resolves when it has begun; its result is reported elsewhere. */
  startCompaction(): Promise<void>
  /** The memory that the rows of the database's views take, in bytes; 0 by default. */
  viewBytes?(): Promise<number>
  /** The database's own rules, if not every member may read and write every document. */
  readonly documentRules?: DocumentRules
  /** Called when most of the database is deleted within a minute. */
  onMassDeletion?(found: MassDeletion): void
  /** Called when a client has shown that the database has lost updates. */
  onLost?(): void
  /** The time in ms since 1970; the system clock by default. */
  now?(): number
}

/** @param store the database's documents */
export function storeDatabase(store: VersionedStore, options: StoreDatabaseOptions): Database {
  const { limits, onSecured, documentRules } = options
  const settings = (): Settings => ({ limits: limits(), rules: options.rules() })
  const checks = new WriteChecks(store, options)
  const shortageFor = (user: UserCtx) => () => checks.shortage(user)
  // Lane 0 is for `_uuids`, whose ids are for any database.
  const newId = uuidMaker(() => options.rules().uuids, 1)
  const ids = (): IdRules => ({ maxBytes: limits().maxDocumentIdLength, partitioned: store.partitioned })
  const documents = documentReader(store)
  const readable = (user: UserCtx): DocumentReader => documentRules?.reader(user) ?? documents
  /** Checks the right to write before a document's contents are received; the write itself checks it again. */
  const requireWriter = async (user: UserCtx, id: string): Promise<SecurityObject | null> => {
    const { security } = await store.view()
    requireMember(user, security)
    documentRules?.checkWriter(user, id, security, false)
    return security
  }
  const write = async (user: UserCtx, requested: AnyEdit): Promise<SavedDocument> => {
    checkDocId(requested.id, ids())
    let edit = requested
    // What is stored again was prepared when it was written.
    if (documentRules !== undefined && !requested.isRepair) {
      const { id, doc, newEdits, attachment } = requested
      const security = await requireWriter(user, id)
      const kind = newEdits ? 'edit' : 'replica'
      const ruled = { id, user, security, kind, isAttachment: attachment !== undefined } as const
      documentRules.checkDocument(doc, ruled)
      edit = { ...requested, doc: await documentRules.prepare(doc, ruled) }
    }
    const [result] = await writeEdits(store, user, [edit], checks)
    return saved(edit.id, result)
  }

  return {
    info: (user) => databaseInfo(store, user),
    ...partitionCalls(store),
    security: async () => (await store.view()).security,
    countDisallowed: () => countDisallowed(store, options.name),
    damagedLeaves: async () => (await store.damagedLeaves?.()) ?? [],
    rememberTokens: (tokens) => rememberTokens(store, tokens),
    exportLines: (user) => exportLines(store, user, limits()),
    setSecurity: async (user, security) => {
      await store.updateSettings((view) => {
        requireDatabaseAdmin(user, view.security)
        return { result: undefined, write: { security } }
      })
      onSecured(security)
    },
    revsLimit: async (user) => {
      const view = await store.view()
      requireMember(user, view.security)
      return view.revsLimit
    },
    setRevsLimit: async (user, limit) => {
      await store.updateSettings((view) => {
        requireDatabaseAdmin(user, view.security)
        return { result: undefined, write: { revsLimit: checkRevsLimit(limit) } }
      })
    },

    copyLocals: (user, docs, removed) => copyLocals(store, user, docs, removed, settings()),
    ...maintenance(store, options),
    conflicts: (user, page) => conflictList(store, user, page),
    // Where design documents are excluded, their functions do not run.
    brokenFunctions: async () =>
      checks.policy.designDocs ? brokenFunctions(store, options.incarnation, options.sandbox) : [],
    ...giveUpCalls(store),
    ...timeMachine(store, checks, options.now ?? Date.now),

    open: (user, id, options) => openDocument(readable(user), user, id, options),
    openRevs: (user, id, revs, options) => openRevs(readable(user), user, id, revs, options),
    openParts: (user, id, options, form) => openParts(readable(user), user, id, options, form),
    openRevsMixed: (user, id, revs, options, boundary) =>
      openRevsMixed(readable(user), user, id, revs, options, boundary),

    put: async (user, id, body, options) => {
      const newEdits = options.newEdits ?? true
      const read = (doc: IncomingDoc) => {
        checkOwnId(doc, ids())
        const withParent = readWithParent(doc, options)
        if (!newEdits && !isLocalId(id)) replicatedPath(withParent)
        return withParent
      }
      if (options.boundary === undefined) {
        const doc = read(await readBody(body, settings(), id))
        return write(user, { id, doc, newEdits, ...(options.isIndex && { isIndex: true }) })
      }
      checkDocId(id, ids())
      await requireWriter(user, id)
      const sent = await readMultipart(body, options.boundary, settings(), id)
      const leading = { ...sent, doc: read(sent.doc) }
      return withUploads(store, settings(), shortageFor(user), async (staging) =>
        write(user, {
          id,
          doc: await uploadFollowing(leading, body, staging),
          newEdits,
          ...(options.isRepair && { isRepair: true }),
        }),
      )
    },
    post: async (user, body) => {
      const doc = await readBody(body, settings())
      // As in CouchDB, what gets a new id begins a history, whatever `_rev` says.
      if (doc.id === undefined)
        return write(user, { id: newId(), doc: { ...doc, path: null }, newEdits: true })
      return write(user, { id: checkDocId(doc.id, ids()), doc, newEdits: true })
    },
    postForm: async (user, id, body, options) => {
      checkDocId(id, ids())
      await requireWriter(user, id)
      const form = await readForm(readable(user), body, options.boundary, settings(), id)
      checkOwnId(form.doc, ids())
      const doc = readWithParent(form.doc, options)
      return withUploads(store, settings(), shortageFor(user), async (staging) =>
        write(user, { id, doc: await uploadForm({ ...form, doc }, body, staging), newEdits: true }),
      )
    },
    remove: async (user, id, rev) => {
      const doc = tombstone(await revisionToDelete(readable(user), user, id, rev))
      return write(user, { id, doc, newEdits: true, mustBeLive: true, mustExist: true })
    },
    copy: async (user, source, target) => {
      checkDocId(target.id, ids())
      const parent = target.rev === undefined ? null : parseRev(target.rev)
      return withCopySource(readable(user), user, source, (copied) =>
        write(user, { id: target.id, doc: { ...copied, path: pathOf(parent) }, newEdits: true }),
      )
    },

    bulkDocs: (user, body) => bulkDocs(store, user, body, settings(), checks, newId),
    bulkGet: (user, body, options) => bulkGet(readable(user), user, body, options, limits()),
    bulkGetMixed: (user, body, options, boundary) =>
      bulkGetMixed(readable(user), user, body, options, limits(), boundary),
    revsDiff: (user, body) => revsDiff(store, user, body),
    missingRevs: (user, body) => missingRevsAnswer(store, user, body),
    allDocs: (user, kind, query, body) => allDocs(store, user, kind, query, body),
    allDocsQueries: (user, kind, query, body) => allDocsQueries(store, user, kind, query, body),

    openAttachment: (user, id, name, rev) => openAttachment(readable(user), user, id, name, rev),
    readAttachment: (found, start, end) => readContent(store, found, start, end),
    putAttachment: async (user, id, name, body, { type, rev, encoding }) => {
      const doc = attachmentEdit(id, name, rev)
      checkDocId(id, ids())
      await requireWriter(user, id)
      return withUploads(store, settings(), shortageFor(user), async (staging) => {
        const given = body ?? { bytes: new Uint8Array() }
        const content = await staging.receive(
          given,
          { start: 0, end: bodyLength(given) },
          { name, type, encoding },
        )
        const attachments = [{ name, type, revpos: undefined, content }]
        return write(user, { id, doc: { ...doc, attachments }, newEdits: true, attachment: name })
      })
    },
    removeAttachment: async (user, id, name, rev) =>
      write(user, { id, doc: attachmentEdit(id, name, rev), newEdits: true, attachment: name }),
  }
}

async function databaseInfo(store: DatabaseStore, user: UserCtx): Promise<DatabaseInfo> {
  const info = await store.info()
  requireMember(user, info.security)
  return {
    instance_start_time: String(info.createdAt),
    db_name: info.name,
    // Without a code: it is not a number of the feed.
    purge_seq: `${info.purgeSeq}-${epochAt(info.epochs, info.purgeSeq)}`,
    update_seq: sequenceToken(info.epochs, info.updateSeq),
    sizes: { file: info.sizes.file, external: info.sizes.external, active: info.sizes.active },
    props: store.partitioned ? { partitioned: true } : {},
    doc_del_count: info.deletedCount,
    doc_count: info.docCount,
    disk_format_version: DISK_FORMAT_VERSION,
    compact_running: info.compacting,
    cluster: { q: store.shards, n: 1, w: 1, r: 1 },
  }
}

function checkRevsLimit(limit: unknown): number {
  if (!Number.isSafeInteger(limit) || (limit as number) < 1) {
    throw new CouchError('bad_request', '`revs_limit` must be a positive integer')
  }
  return limit as number
}

async function readBody(body: Body, settings: Settings, id?: string): Promise<IncomingDoc> {
  if (bodyLength(body) === 0) throw new CouchError('invalid_json')
  return readDocument(await documentText(body, settings.limits, id), settings, id)
}

/** The address has the document's id; an `_id` in the body must still be a valid id (protocol.md 2.2). */
function checkOwnId(doc: IncomingDoc, ids: IdRules): void {
  if (doc.id !== undefined) checkDocId(doc.id, ids)
}

/** The body, the query and If-Match can each name the parent; they must agree (protocol.md 3.3). */
function readWithParent(doc: IncomingDoc, { rev, revFrom }: PutOptions): IncomingDoc {
  if (rev === undefined) return doc
  const given = parseRev(rev)
  const named = namedRev(doc)
  if (named === null) return { ...doc, path: pathOf(given) }
  if (formatRev(named.pos, named.id) === formatRev(given.pos, given.id)) return doc
  throw new CouchError(
    'bad_request',
    revFrom === 'etag'
      ? 'Document rev and etag have different values'
      : 'Document rev from request body and query string have different values',
  )
}

function pathOf(rev: Rev | null): IncomingDoc['path'] {
  return rev === null ? null : { pos: rev.pos, ids: [rev.id] }
}

/**
 * An edit of one attachment, still without its content.
 * @throws bad_request for a bad name, and for a `_local` document; invalid_rev
 */
function attachmentEdit(id: string, name: string, rev: string | undefined): IncomingDoc {
  if (isLocalId(id)) throw new CouchError('bad_request', '_local documents do not accept attachments.')
  checkAttachmentName(name)
  const path = pathOf(rev === undefined ? null : parseRev(rev))
  return { id: undefined, path, deleted: false, body: '{}', attachments: [] }
}

/**
 * Parses the revision that a DELETE names, protocol.md 3.4; null without one. A missing document is reported before a
 * malformed revision.
 * @throws invalid_rev; not_found, deleted; unauthorized, forbidden
 */
async function revisionToDelete(
  store: DocumentReader,
  user: UserCtx,
  id: string,
  rev: string | undefined,
): Promise<Rev | null> {
  if (rev === undefined) return null
  try {
    return parseRev(rev)
  } catch (malformed) {
    await requireDocument(store, user, id)
    throw malformed
  }
}

async function requireDocument(store: DocumentReader, user: UserCtx, id: string): Promise<void> {
  requireMember(user, (await store.view()).security)
  if (isLocalId(id)) {
    const [local] = await store.readLocals([id])
    if (!local) throw new CouchError('not_found')
    return
  }
  const [isDeleted] = await store.readDocs([id], (doc) => doc?.deleted)
  if (isDeleted !== false) throw new CouchError(isDeleted ? 'deleted' : 'not_found')
}

function tombstone(parent: Rev | null): IncomingDoc {
  return { id: undefined, path: pathOf(parent), deleted: true, body: '{}', attachments: [] }
}

function saved(id: string, result: EditResult | undefined): SavedDocument {
  if (result === undefined || result instanceof CouchError) throw result
  return { id, rev: result.rev, deleted: result.deleted }
}
