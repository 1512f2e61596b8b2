/** What a function of a design document says of documents, for filters; protocol.md 5.5, 5.6. */

import { CouchError } from '../core/errors.ts'
import { isJsonObject } from '../core/json-object.ts'
import type { SecurityObject, UserCtx } from '../core/types.ts'
import { languageOf, requireJavascript } from '../documents/design-docs.ts'
import { requireMember } from '../documents/security.ts'
import type { Sandbox } from '../sandbox/sandbox.ts'
import type { DatabaseStore } from '../storage/engine.ts'
import type { FunctionFilter } from './filter-kinds.ts'
import { completeRequest } from './filter-request.ts'

/** Whether each document, given as JSON text, passes. Rejects as the sandbox does. */
export type Judge = (docs: readonly string[]) => Promise<readonly boolean[]>

/** Whose design documents hold the functions, and where they are run. */
export interface FunctionHouse {
  readonly sandbox: Sandbox
  /** The database's name, and its incarnation. */
  readonly name: string
  readonly incarnation: number
}

interface Design {
  readonly rev: string
  /** JSON text of the design document's own members. */
  readonly source: string
  readonly security: SecurityObject | null
}

/** A function as its design document has it. */
export interface FoundFunction extends Design {
  readonly path: readonly string[]
  /** What stands at the path. */
  readonly value: unknown
}

/**
 * Finds the function of a filter. It is looked up for every page, so that a change of its design document counts.
 * @throws unauthorized, forbidden; not_found, deleted, with the texts of protocol.md 5.6; function_error
 */
export async function findFunction(
  store: DatabaseStore,
  user: UserCtx,
  filter: FunctionFilter,
): Promise<FoundFunction> {
  const design = await readDesign(store, user, filter.ddoc)
  const path = [filter.kind === 'view' ? 'views' : 'filters', filter.name]
  const members = JSON.parse(design.source) as Record<string, unknown>
  const value = valueOfKeys(members, path)
  requireJavascript(languageOf(members))
  return { ...design, path, value }
}

/** @param user who asks: functions are told */
export function openJudge(
  { rev, source, security, path }: FoundFunction,
  user: UserCtx,
  filter: FunctionFilter,
  { sandbox, name, incarnation }: FunctionHouse,
): Judge {
  const fn = { database: incarnation, ddoc: filter.ddoc, rev, source }
  if (filter.kind === 'view') {
    const map = { ...fn, path: [...path, 'map'] }
    return async (docs) => (docs.length === 0 ? [] : (await sandbox.map(map, docs)).map(hasEmitted))
  }
  const request = completeRequest(filter.request, name, user, security)
  return async (docs) => (docs.length === 0 ? [] : sandbox.filter({ ...fn, path }, docs, request))
}

async function readDesign(store: DatabaseStore, user: UserCtx, ddoc: string): Promise<Design> {
  const [design] = await store.readDocs(
    [ddoc],
    (doc, _id, { security }) => {
      requireMember(user, security)
      const source = doc?.body(doc.rev) ?? null
      if (doc === null || source === null) throw new CouchError('not_found')
      if (doc.deleted) throw new CouchError('deleted')
      return { rev: doc.rev, source, security }
    },
    { body: true },
  )
  return design as Design
}

/** @throws not_found for the first key that is not there */
function valueOfKeys(members: Record<string, unknown>, path: readonly string[]): unknown {
  let value: unknown = members
  for (const key of path) {
    if (!isJsonObject(value)) {
      throw new CouchError('not_found', 'json_mismatch')
    }
    if (!Object.hasOwn(value, key)) throw new CouchError('not_found', `missing json key: ${key}`)
    value = value[key]
  }
  return value
}

function hasEmitted(emitted: string): boolean {
  return emitted !== '[]'
}
