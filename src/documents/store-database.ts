/** A database over its store: the interface of database.ts, on the thread that owns the database. */
import { CouchError } from '../core/errors.ts'
import { checkDocId, isLocalId, newUuid } from '../core/ids.ts'
import type { Limits, SecurityObject, UserCtx } from '../core/types.ts'
import { formatRev, parseRev, type Rev } from '../revisions/rev.ts'
import type { DatabaseStore } from '../storage/engine.ts'
import { sequenceToken } from '../storage/sequence.ts'
import { allDocs } from './all-docs.ts'
import { bulkDocs } from './bulk-docs.ts'
import { bulkGet } from './bulk-get.ts'
import { copySource } from './copy.ts'
import type { Body, Database, DatabaseInfo, PutOptions, SavedDocument } from './database.ts'
import { missingRevsAnswer, revsDiff } from './diff.ts'
import { type EditResult, replicatedPath } from './edit.ts'
import { type IncomingDoc, namedRev, readDocument } from './incoming.ts'
import { type LocalEdit, updateLocals } from './local-docs.ts'
import { openAttachment, openDocument, openRevs, readAttachment } from './open.ts'
import { bodyLength, bodyText } from './request-body.ts'
import { requireDatabaseAdmin, requireMember } from './security.ts'
import { type NamedEdit, updateDocuments } from './update.ts'

/** What CouchDB 3.5 calls its file format; clients read it and do nothing with it. */
const DISK_FORMAT_VERSION = 8

/**
 * @param store the database's documents
 * @param limits asked anew for each request, since they can change while the server runs
 * @param onSecured called after a new security object is durable
 */
export function storeDatabase(
  store: DatabaseStore,
  limits: () => Limits,
  onSecured: (security: SecurityObject) => void,
): Database {
  const write = async (user: UserCtx, edit: NamedEdit & LocalEdit): Promise<SavedDocument> => {
    checkDocId(edit.id, limits().maxDocumentIdLength)
    const results: EditResult[] = isLocalId(edit.id)
      ? await updateLocals(store, user, [edit])
      : await updateDocuments(store, user, [edit])
    return saved(edit.id, results[0])
  }

  return {
    info: (user) => databaseInfo(store, user),
    security: async () => (await store.view()).security,
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

    open: (user, id, options) => openDocument(store, user, id, options),
    openRevs: (user, id, revs, options) => openRevs(store, user, id, revs, options),

    put: async (user, id, body, options) => {
      const doc = readWithParent(await readBody(body, limits(), id), options)
      const newEdits = options.newEdits ?? true
      if (!newEdits && !isLocalId(id)) replicatedPath(doc)
      return write(user, { id, doc, newEdits })
    },
    post: async (user, body) => {
      const doc = await readBody(body, limits())
      const id = doc.id === undefined ? newUuid() : checkDocId(doc.id, limits().maxDocumentIdLength)
      return write(user, { id, doc, newEdits: true })
    },
    remove: async (user, id, rev) => {
      const doc = tombstone(rev === undefined ? null : parseRev(rev))
      return write(user, { id, doc, newEdits: true, mustBeLive: true, mustExist: true })
    },
    copy: async (user, source, target) => {
      checkDocId(target.id, limits().maxDocumentIdLength)
      const copied = await copySource(store, user, source)
      const parent = target.rev === undefined ? null : parseRev(target.rev)
      return write(user, { id: target.id, doc: { ...copied, path: pathOf(parent) }, newEdits: true })
    },

    bulkDocs: (user, body) => bulkDocs(store, user, body, limits()),
    bulkGet: (user, body, options) => bulkGet(store, user, body, options, limits()),
    revsDiff: (user, body) => revsDiff(store, user, body),
    missingRevs: (user, body) => missingRevsAnswer(store, user, body),
    allDocs: (user, kind, query, body) => allDocs(store, user, kind, query, body),

    openAttachment: (user, id, name, rev) => openAttachment(store, user, id, name, rev),
    readAttachment: (blob, start, end) => readAttachment(store, blob, start, end),
  }
}

async function databaseInfo(store: DatabaseStore, user: UserCtx): Promise<DatabaseInfo> {
  const info = await store.info()
  requireMember(user, info.security)
  return {
    instance_start_time: String(info.createdAt),
    db_name: info.name,
    purge_seq: sequenceToken(info.epochs, info.purgeSeq),
    update_seq: sequenceToken(info.epochs, info.updateSeq),
    sizes: { file: info.sizes.file, external: info.sizes.external, active: info.sizes.active },
    props: {},
    doc_del_count: info.deletedCount,
    doc_count: info.docCount,
    disk_format_version: DISK_FORMAT_VERSION,
    compact_running: false,
    cluster: { q: 1, n: 1, w: 1, r: 1 },
  }
}

function checkRevsLimit(limit: unknown): number {
  if (!Number.isSafeInteger(limit) || (limit as number) < 1) {
    throw new CouchError('bad_request', '`revs_limit` must be a positive integer')
  }
  return limit as number
}

async function readBody(body: Body, limits: Limits, id?: string): Promise<IncomingDoc> {
  if (bodyLength(body) === 0) throw new CouchError('invalid_json')
  return readDocument(bodyText(body), limits, id)
}

/** The parent may stand in the body, the query or If-Match; they must agree (protocol.md 3.3). */
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

function tombstone(parent: Rev | null): IncomingDoc {
  return { id: undefined, path: pathOf(parent), deleted: true, body: '{}', attachments: [] }
}

function saved(id: string, result: EditResult | undefined): SavedDocument {
  if (result === undefined || result instanceof CouchError) throw result
  return { id, rev: result.rev, deleted: result.deleted }
}
