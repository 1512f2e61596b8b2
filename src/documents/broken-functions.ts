/** Finds functions of stored design documents that do not compile: copies are stored as they are, without a check. */
import { CouchError } from '../core/errors.ts'
import type { Sandbox } from '../sandbox/messages.ts'
import type { DatabaseStore } from '../storage/engine.ts'
import { kindRange } from './all-docs-query.ts'
import { spliceDocument } from './body.ts'
import type { BrokenFunction } from './database.ts'
import { checkDesignDoc, languageOf } from './design-docs.ts'

/** After so many broken functions the search ends: each may take as long as a function may run. */
const MAX_FOUND = 10
const PAGE = { limit: 10, chars: 1024 * 1024, readSet: { body: true } } as const
const VALIDATE = 'validate_doc_update'

/**
 * Compiles the validate and view functions of all design documents.
 * @param incarnation of the database whose documents `store` holds
 * @returns the first ones that do not compile, at most 10; validate functions first
 * @throws unavailable if the sandbox is overloaded
 */
export async function brokenFunctions(
  store: DatabaseStore,
  incarnation: number,
  sandbox: Sandbox,
): Promise<BrokenFunction[]> {
  const broken = [
    ...(await brokenOf(store, incarnation, sandbox, validatePaths)),
    ...(await brokenOf(store, incarnation, sandbox, (body) => viewPaths(body, store.partitioned))),
  ]
  return broken.slice(0, MAX_FOUND)
}

async function brokenOf(
  store: DatabaseStore,
  incarnation: number,
  sandbox: Sandbox,
  pathsOf: (body: string) => readonly (readonly string[])[],
): Promise<BrokenFunction[]> {
  const broken: BrokenFunction[] = []
  let range = kindRange('design')
  for (;;) {
    const { rows, more } = await store.readRange(range, PAGE, (doc) => ({
      id: doc.id,
      rev: doc.rev,
      body: doc.body(doc.rev) ?? '{}',
    }))
    for (const { id, rev, body } of rows) {
      for (const path of pathsOf(body)) {
        const fn = { database: incarnation, ddoc: id, rev, path, source: spliceDocument({ id, rev, body }) }
        const reason = await sandbox.compile(fn).then(() => null, faultOf)
        if (reason !== null) broken.push({ ddoc: id, path, reason })
        if (broken.length === MAX_FOUND) return broken
      }
    }
    const last = rows.at(-1)
    if (!more || last === undefined) return broken
    range = { ...range, start: { id: last.id, inclusive: false } }
  }
}

function validatePaths(body: string): readonly (readonly string[])[] {
  const members = JSON.parse(body) as Record<string, unknown>
  return typeof members[VALIDATE] === 'string' && languageOf(members) === 'javascript' ? [[VALIDATE]] : []
}

function viewPaths(body: string, partitioned: boolean): readonly (readonly string[])[] {
  try {
    return checkDesignDoc(body, partitioned).map(({ view, member }) => ['views', view, member])
  } catch (error) {
    if (error instanceof CouchError) return []
    throw error
  }
}

const FAULTS: ReadonlySet<string> = new Set([
  'compilation_error',
  'not_found',
  'function_timeout',
  'function_memory',
])

function faultOf(error: unknown): string {
  if (error instanceof CouchError && FAULTS.has(error.code)) return String(error.reason)
  throw error
}
