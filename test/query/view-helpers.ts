/** A database with views, on the memory engine; their indexes are files. */
import { Buffer } from 'node:buffer'
import { join } from 'node:path'
import type { Test } from 'tap'
import type { UserCtx } from '../../src/core/types.ts'
import type { Body } from '../../src/documents/database.ts'
import { DesignIndexes } from '../../src/query/design-indexes.ts'
import type { SkippedDocument } from '../../src/query/view-map.ts'
import { type Parameters, storeViews, type ViewSource } from '../../src/query/views.ts'
import type { Sandbox } from '../../src/sandbox/messages.ts'
import { FileErrors, PageCaches } from '../../src/storage/sqlite/database-access.ts'
import { SqliteIndexStores } from '../../src/storage/sqlite/index-stores.ts'
import { ADMIN, type Json, type Opened, openDatabase } from '../documents/helpers.ts'
import { localSandbox } from '../helpers/local-sandbox.ts'
import { temporaryFolder } from '../helpers/server.ts'

export interface WithViews extends Opened {
  readonly views: ViewSource
  /** The documents that a map function was called with. */
  readonly mapped: string[]
  readonly indexes: DesignIndexes
  /** The documents that a view has skipped. */
  readonly skipped: SkippedDocument[]
  /** The answer of `_design/d/_view/<name>`. */
  query(name: string, parameters?: Record<string, unknown>, body?: unknown, user?: UserCtx): Promise<Json>
}

/** @param opening by default that of an empty database */
export async function openViews(
  t: Pick<Test, 'teardown'>,
  opening: Promise<Opened> = openDatabase(),
): Promise<WithViews> {
  const opened = await opening
  const { store } = opened
  const real = localSandbox()
  const mapped: string[] = []
  const sandbox: Sandbox = {
    ...real,
    mapViews: (maps, docs) => {
      for (const doc of docs) mapped.push(JSON.parse(doc)._id)
      return real.mapViews(maps, docs)
    },
  }
  const folder = join(await temporaryFolder(t), 'indexes')
  const stores = new SqliteIndexStores({ folder, caches: new PageCaches(), errors: new FileErrors() })
  t.teardown(() => stores.close())
  const skipped: SkippedDocument[] = []
  const indexes = new DesignIndexes(store, stores)
  const onSkipped = (_ddoc: string, found: SkippedDocument) => skipped.push(found)
  const views = storeViews({ store, sandbox, incarnation: 1, indexes, onSkipped, cleanUp: async () => {} })
  const query: WithViews['query'] = async (name, parameters = {}, body, user = ADMIN) => {
    const request = body === undefined ? null : bodyOf(body)
    return JSON.parse(await textOf(views.view(user, '_design/d', name, texts(parameters), request)))
  }
  return { ...opened, views, indexes, mapped, skipped, query }
}

const JSON_VALUED = new Set(['key', 'keys', 'startkey', 'endkey', 'start_key', 'end_key'])

/** Query parameters as text, as in an address. */
function texts(parameters: Record<string, unknown>): Parameters {
  return Object.entries(parameters).map(([name, value]) => [
    name,
    JSON_VALUED.has(name) ? JSON.stringify(value) : String(value),
  ])
}

export function bodyOf(value: unknown): Body {
  return { bytes: Buffer.from(JSON.stringify(value)) }
}

export async function textOf(chunks: AsyncIterable<Uint8Array>): Promise<string> {
  const parts: Uint8Array[] = []
  for await (const chunk of chunks) parts.push(chunk)
  return Buffer.concat(parts).toString()
}
