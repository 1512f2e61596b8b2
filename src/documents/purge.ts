/**
 * `_purge` (protocol.md 4.7) removes leaves, and ancestors that no other leaf has. This file also has the compaction,
 * sizes and purge settings of a database (protocol.md 4.6).
 */
import { asCouchError, CouchError } from '../core/errors.ts'
import { isDesignId, isLocalId } from '../core/ids.ts'
import { checkSoughtId } from '../core/partitions.ts'
import type { Limits, UserCtx } from '../core/types.ts'
import { leafRev, winner } from '../revisions/branch.ts'
import { isKnown } from '../revisions/branch-index.ts'
import { formatRev, parseRev } from '../revisions/rev.ts'
import type { DatabaseStore, DocState, Outcome, PurgeUpdate, PurgeWrite } from '../storage/engine.ts'
import type { Body, Database } from './database.ts'
import type { Schema } from './json-parser.ts'
import { bodyObject } from './request-body.ts'
import { requireDatabaseAdmin, requireMaintainer, requireMember, requireServerAdmin } from './security.ts'

/**
 * Decides which revisions of a document to remove. Only leaves can be purged; other revisions are ignored.
 * @param doc the document as stored; null if it never existed
 * @param revs the revisions of the request, in any order
 * @returns the purged leaves, in the order of the request, and the write
 */
export function decidePurge(
  doc: DocState | null,
  revs: readonly string[],
): { readonly result: readonly string[]; readonly write?: PurgeWrite } {
  if (doc === null) return { result: [] }
  const branches = [...doc.branches]
  const leaves = new Set(branches.map(leafRev))
  const purged = [...new Set(revs)].filter((rev) => leaves.has(rev))
  if (purged.length === 0) return { result: [] }
  const gone = new Set(purged)
  const left = branches.filter((branch) => !gone.has(leafRev(branch)))
  const removed = [...doc.revisions().map(({ rev }) => rev), ...doc.retained()].filter(
    (rev) => gone.has(rev) || !isKnown(left, parseRev(rev)),
  )
  const best = winner(left)
  const rest =
    best === undefined ? null : { rev: leafRev(best), deleted: best.deleted, sequenced: true, revisions: [] }
  return { result: purged, write: { purged, removed, rest, ...(isDesignId(doc.id) && { design: true }) } }
}

/**
 * Carries out `_purge`.
 * @param body `{id: [rev, ...], ...}`
 * @returns the answer's JSON; for a document that the store failed to purge, the error
 * @throws not_server_admin; bad_request for too many ids or revisions, body_not_object, invalid_revs_list, invalid_rev;
 * the store's error if it failed for every document
 */
async function purge(store: DatabaseStore, user: UserCtx, body: Body, limits: Limits): Promise<Uint8Array> {
  requireServerAdmin(user)
  const requested = readRequest(await bodyObject(body, schemaOf(limits)), limits)
  if (store.partitioned) for (const [id] of requested) checkSoughtId(id)
  const stored = requested.filter(([id]) => mayBeStored(id))
  const outcomes = await store.purgeDocs(stored.map(([id, revs]) => purgeUpdate(id, revs)))
  const failures = outcomes.flatMap((outcome) => ('error' in outcome ? [outcome.error] : []))
  if (failures.length > 0 && failures.length === requested.length) throw asCouchError(failures[0])
  const results = new Map(stored.map(([id], at) => [id, outcomes[at]]))
  const rows = requested.map(([id]) => `${JSON.stringify(id)}:${JSON.stringify(resultOf(results.get(id)))}`)
  return Buffer.from(`{"purge_seq":null,"purged":{${rows.join(',')}}}\n`)
}

function purgeUpdate(id: string, revs: readonly string[]): PurgeUpdate<readonly string[]> {
  return {
    id,
    readSet: { branches: true, ancestry: 'leaves', revisions: true, retained: true },
    decide: (doc) => decidePurge(doc, revs),
  }
}

/** The member of `purged` for a document: the purged revisions, or the error. */
function resultOf(outcome: Outcome<readonly string[]> | undefined): unknown {
  if (outcome === undefined) return []
  if ('error' in outcome) return asCouchError(outcome.error).toBody()
  return 'result' in outcome ? outcome.result : []
}

/** `_local` documents have no revisions to purge, and engines store only UTF-8 ids. */
function mayBeStored(id: string): boolean {
  return !isLocalId(id) && id.isWellFormed()
}

/** Too many revisions are reported before an invalid revision. */
function schemaOf({ maxPurgedDocuments, maxPurgedRevisions }: Limits): Schema {
  return {
    maxCount: maxPurgedDocuments,
    tooMany: () => new CouchError('bad_request', 'Exceeded maximum number of documents.'),
    others: {
      check: (revs) => {
        if (!Array.isArray(revs)) throw new CouchError('invalid_revs_list')
      },
      maxCount: maxPurgedRevisions,
      tooMany: tooManyRevisions,
    },
  }
}

function tooManyRevisions(): CouchError {
  return new CouchError('bad_request', 'Exceeded maximum number of revisions.')
}

function readRequest(
  request: Record<string, unknown>,
  { maxPurgedRevisions }: Limits,
): [id: string, revs: string[]][] {
  const requested = Object.entries(request) as [string, unknown[]][]
  if (requested.reduce((sum, [, revs]) => sum + revs.length, 0) > maxPurgedRevisions) throw tooManyRevisions()
  return requested.map(([id, revs]) => [id, revs.map(revOf)])
}

function revOf(value: unknown): string {
  const { pos, id } = parseRev(value)
  return formatRev(pos, id)
}

/** `_purged_infos`: the recorded purges, oldest first. */
async function purgedInfos(store: DatabaseStore, user: UserCtx): Promise<Uint8Array> {
  requireMember(user, (await store.view()).security)
  const infos = (await store.readPurges()).map(({ id, revs }) => ({ id, revs }))
  return Buffer.from(`${JSON.stringify({ purged_infos: infos })}\n`)
}

/** The maximum of recorded purges. @throws not_server_admin */
async function purgedInfosLimit(store: DatabaseStore, user: UserCtx): Promise<number> {
  requireServerAdmin(user)
  return (await store.view()).purgedInfosLimit
}

/** @throws not_server_admin, bad_request unless a positive integer */
async function setPurgedInfosLimit(store: DatabaseStore, user: UserCtx, limit: unknown): Promise<void> {
  requireServerAdmin(user)
  if (!Number.isSafeInteger(limit) || (limit as number) < 1) {
    throw new CouchError('bad_request', '`purged_infos_limit` must be positive integer')
  }
  await store.updateSettings(() => ({ result: undefined, write: { purgedInfosLimit: limit as number } }))
}

type Maintenance = Pick<
  Database,
  'compact' | 'size' | 'purge' | 'purgedInfos' | 'purgedInfosLimit' | 'setPurgedInfosLimit'
>

interface MaintenanceOptions {
  limits(): Limits
  /** Starts a compaction, unless one runs. Resolves when it has begun; its result is reported elsewhere. */
  startCompaction(): Promise<void>
  /** The bytes on disk of the database's indexes; 0 by default. */
  viewBytes?(): Promise<number>
}

/** @param store the database's documents */
export function maintenance(
  store: DatabaseStore,
  { limits, startCompaction, viewBytes }: MaintenanceOptions,
): Maintenance {
  return {
    compact: async (user) => {
      requireMaintainer(user, (await store.view()).security)
      await startCompaction()
    },
    size: async (user) => {
      requireDatabaseAdmin(user, (await store.view()).security)
      return { ...(await store.sizes()), views: { bytes: (await viewBytes?.()) ?? 0 } }
    },
    purge: (user, body) => purge(store, user, body, limits()),
    purgedInfos: (user) => purgedInfos(store, user),
    purgedInfosLimit: (user) => purgedInfosLimit(store, user),
    setPurgedInfosLimit: (user, limit) => setPurgedInfosLimit(store, user, limit),
  }
}
