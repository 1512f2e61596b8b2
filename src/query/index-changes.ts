/** `_index` on the thread that owns the database: lists, makes and deletes json indexes; protocol.md 10.4. */
import { CouchError } from '../core/errors.ts'
import type { Allowance, UserCtx } from '../core/types.ts'
import type { Body, Database } from '../documents/database.ts'
import { MAX_PARSED_AT_ONCE, parseInSteps } from '../documents/json-parser.ts'
import { renderDocument } from '../documents/render.ts'
import { bodyObject } from '../documents/request-body.ts'
import { requireDatabaseAdmin, requireMember } from '../documents/security.ts'
import type { DatabaseStore } from '../storage/engine.ts'
import { ALL_DOCS_INDEX } from './explain.ts'
import {
  designId,
  type NewIndex,
  readBulkDelete,
  readNewIndex,
  withIndex,
  withoutIndexes,
} from './index-definition.ts'
import { type IndexList, requireRoom } from './index-list.ts'
import { shownIndex } from './mango-index.ts'

/** The methods of a database thread for its indexes. */
export interface IndexSource {
  /** The answer of GET `_index` as JSON. */
  indexes(user: UserCtx, skip: number, limit: number | undefined): Promise<Uint8Array>
  /**
   * Makes an index: the answer of POST `_index` as JSON. For database admins.
   * @throws the errors of `readNewIndex` and `withIndex`; forbidden beyond the number of indexes; the errors of
   *   {@link Database.put}
   */
  createIndex(user: UserCtx, body: Body): Promise<Uint8Array>
  /**
   * Deletes an index. For database admins.
   * @param ddoc the name of its design document, with or without `_design/`
   * @throws not_found; the errors of {@link Database.put}
   */
  deleteIndex(user: UserCtx, ddoc: string, type: string, name: string): Promise<void>
  /** Deletes all indexes of some design documents: the answer of `_bulk_delete` as JSON. For database admins. */
  deleteIndexes(user: UserCtx, body: Body): Promise<Uint8Array>
  /** The number of indexes, and their bytes on disk. For the server itself: no rights are checked. */
  indexUsage(): Promise<{ readonly indexes: number; readonly bytes: number }>
}

/** The maximum size of a body in bytes. */
const MAX_BODY = 1024 * 1024
/** How often a change is tried whose design document others write at the same time: each conflict is the success of another. */
const MAX_TRIES = 10

interface IndexContext {
  readonly store: DatabaseStore
  readonly indexes: IndexList
  /** Writes a design document. */
  readonly put: Database['put']
  /** Removes the rows of indexes that no design document has any more. */
  cleanUp(): Promise<void>
  /** The bytes of all rows on disk. */
  fileBytes(): Promise<number>
}

export function storeIndexes(context: IndexContext): IndexSource {
  const { store, indexes } = context
  const turns = new Turns()
  const requireAdmin = async (user: UserCtx) => requireDatabaseAdmin(user, (await store.view()).security)
  return {
    indexes: async (user, skip, limit) => {
      requireMember(user, (await store.view()).security)
      const all = [ALL_DOCS_INDEX, ...(await indexes.read()).map(shownIndex)]
      const listed = all.slice(skip, limit === undefined ? undefined : skip + limit)
      return jsonLine({ total_rows: all.length, indexes: listed })
    },
    createIndex: async (user, body) => {
      await requireAdmin(user)
      const index = readNewIndex(await bodyObject(body, {}, MAX_BODY))
      return turns.run(async () => {
        const result = (await withRetries(() => create(context, user, index))) ? 'created' : 'exists'
        return jsonLine({ result, id: index.ddoc, name: index.name })
      })
    },
    deleteIndex: async (user, ddoc, type, name) => {
      await requireAdmin(user)
      const isRemoved =
        type === 'json' &&
        (await turns.run(() => withRetries(() => remove(context, user, designId(ddoc), name))))
      if (!isRemoved) throw new CouchError('not_found')
      await context.cleanUp()
    },
    deleteIndexes: async (user, body) => {
      await requireAdmin(user)
      const ids = readBulkDelete(await bodyObject(body, {}, MAX_BODY))
      const answer = await turns.run(() => removeAll(context, user, ids))
      await context.cleanUp()
      return jsonLine(answer)
    },
    indexUsage: async () => ({ indexes: (await indexes.read()).length, bytes: await context.fileBytes() }),
  }
}

/** Runs the changes of a database's indexes one after the other, so that each sees the indexes of those before it. */
class Turns {
  #last: Promise<unknown> = Promise.resolve()

  run<T>(change: () => Promise<T>): Promise<T> {
    const running = this.#last.then(change)
    this.#last = running.catch(() => undefined)
    return running
  }
}

function jsonLine(value: unknown): Uint8Array {
  return Buffer.from(`${JSON.stringify(value)}\n`)
}

/**
 * Makes a change of a design document, and makes it again if another client or node has written the document since it was
 * read. Devices of an app often make the same index at the same time.
 * @throws conflict after {@link MAX_TRIES}
 */
async function withRetries<T>(change: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await change()
    } catch (error) {
      const isConflict = error instanceof CouchError && error.code === 'conflict'
      if (!isConflict || tries === MAX_TRIES) throw error
    }
  }
}

/** @returns false if the database has the index already */
async function create(
  { store, indexes, put }: IndexContext,
  user: UserCtx,
  index: NewIndex,
): Promise<boolean> {
  const { ddoc, name } = index
  const changed = withIndex(await readDesign(store, ddoc), index)
  if (changed === null) return false
  const all = await indexes.read()
  const others = all.filter((other) => other.ddoc !== ddoc || other.name !== name)
  requireRoom(others, index.view.map, changed)
  if (others.length === all.length) checkCount(user.allowance, all.length)
  await put(user, ddoc, jsonBody(changed), { isIndex: true })
  return true
}

/** @throws forbidden if the owner of the database may not have one index more */
function checkCount(allowance: Allowance | undefined, stored: number): void {
  if (allowance === undefined) return
  const { limit, others } = allowance.indexes
  if (others + stored < limit) return
  throw new CouchError(
    'forbidden',
    `The owner of this database may have ${limit} indexes and has ${others + stored}. ` +
      'New indexes are refused until some are deleted.',
  )
}

/**
 * Deletes an index of a design document, or all of them.
 * @param only null: all of them
 * @returns whether there were any
 */
async function remove(
  { store, indexes, put }: IndexContext,
  user: UserCtx,
  ddoc: string,
  only: string | null,
): Promise<boolean> {
  const all = (await indexes.read()).filter((index) => index.ddoc === ddoc)
  const names = all.map(({ name }) => name).filter((name) => only === null || name === only)
  const doc = names.length === 0 ? null : await readDesign(store, ddoc)
  if (doc === null) return false
  const rest = withoutIndexes(doc, names) ?? { _id: ddoc, _rev: doc._rev, _deleted: true }
  await put(user, ddoc, jsonBody(rest), { isIndex: true })
  return true
}

interface Deletions {
  readonly success: readonly object[]
  readonly fail: readonly object[]
}

/** In the order of CouchDB's answer, in which the last comes first. An index that cannot be deleted stops nothing. */
async function removeAll(context: IndexContext, user: UserCtx, ids: readonly string[]): Promise<Deletions> {
  const success: object[] = []
  const fail: object[] = []
  for (const id of ids) {
    try {
      const isRemoved = await withRetries(() => remove(context, user, id, null))
      if (isRemoved) success.unshift({ id, ok: true })
      else fail.unshift({ id, error: 'not_found' })
    } catch (error) {
      if (!(error instanceof CouchError)) throw error
      fail.unshift({ id, error: error.error, reason: error.reason })
    }
  }
  return { success, fail }
}

/** The members of a design document, also `_rev` and stubs of attachments; null if it does not exist. */
async function readDesign(store: DatabaseStore, id: string): Promise<Record<string, unknown> | null> {
  const [text] = await store.readDocs(
    [id],
    (doc) => (doc === null || doc.deleted ? null : renderDocument(doc, doc.rev)),
    { body: true },
  )
  if (text == null) return null
  const parsed = text.length > MAX_PARSED_AT_ONCE ? await parseInSteps(text) : JSON.parse(text)
  return parsed as Record<string, unknown>
}

function jsonBody(members: object): Body {
  return { bytes: Buffer.from(JSON.stringify(members)) }
}
