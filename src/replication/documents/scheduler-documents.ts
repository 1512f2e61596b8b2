/** Documents of `_replicator` as `_scheduler/docs` shows them; protocol.md 14.4. */

import { decodeSendable } from '../../core/bytes.ts'
import { CouchError } from '../../core/errors.ts'
import { Yielder } from '../../core/event-loop.ts'
import { isJsonObject } from '../../core/json.ts'
import { SYSTEM_USER } from '../../core/types.ts'
import type { Databases } from '../../threads/databases.ts'
import type { ReplicationJob, ReplicatorDocument } from '../jobs/job.ts'
import { progressInfo, timestamp } from '../jobs/job-info.ts'
import { jsonParts, parsed } from '../json-parts.ts'
import { stateOf } from '../requests/replication-document.ts'
import { MASK } from '../requests/sealed-credentials.ts'
import type { DocumentReplication } from './document-replication.ts'
import type { DocumentReplications } from './document-replications.ts'
import type { DocumentMembers } from './replicator-feed.ts'

const STATES = ['initializing', 'error', 'running', 'pending', 'crashing', 'completed', 'failed'] as const

type State = (typeof STATES)[number]

interface Wanted {
  readonly limit: number
  readonly skip: number
  /** null: all of them. */
  readonly states: ReadonlySet<string> | null
}

/** The members of a row; the route adds the node. */
interface ShownDocument {
  readonly state: State
  readonly [member: string]: unknown
}

type Live = Pick<DocumentReplications, 'find' | 'shownEndpoint'>

/** @param text such as `failed,crashing`; empty or commas alone: all states @throws query_parse_error */
export function readStates(text: string): ReadonlySet<string> | null {
  const states = text
    .split(',')
    .filter((state) => state !== '')
    .map((state) => state.trim().toLowerCase())
  if (states.length === 0) return null
  const unknown = states.filter((state) => !(STATES as readonly string[]).includes(state))
  if (unknown.length === 0) return new Set(states)
  throw new CouchError('query_parse_error', `Unknown states [${unknown}]. Choose from: [${STATES}]`)
}

/**
 * The documents of some databases, in the order of their ids.
 * @returns a page of those with a wanted state, and how many documents there are in any state, as CouchDB counts them
 * @throws no_database
 */
export async function schedulerDocuments(
  live: Live,
  databases: Pick<Databases, 'get'>,
  names: readonly string[],
  { limit, skip, states }: Wanted,
): Promise<{ readonly total: number; readonly docs: readonly ShownDocument[] }> {
  const docs: ShownDocument[] = []
  let total = 0
  let matches = 0
  const yielder = new Yielder()
  for (const database of names) {
    const rows = (await databases.get(database)).allDocs(SYSTEM_USER, 'all', { includeDocs: true }, null)
    for await (const { member, bytes } of jsonParts(rows, { lists: ROWS })) {
      if (member !== 'rows') continue
      await yielder.yieldIfDue()
      const { id, doc } = parsed<{ readonly id: string; readonly doc: DocumentMembers | null }>(bytes)
      if (doc === null || id.startsWith('_')) continue
      const shown = shownDocument(live, { database, id }, doc)
      total += 1
      if (states !== null && !states.has(shown.state)) continue
      matches += 1
      if (matches > skip && docs.length < limit) docs.push(shown)
    }
  }
  return { total, docs }
}

const ROWS = new Set(['rows'])

/** One document. @throws not_found, no_database */
export async function schedulerDocument(
  live: Live,
  databases: Pick<Databases, 'get'>,
  place: ReplicatorDocument,
): Promise<ShownDocument> {
  if (place.id.startsWith('_')) throw new CouchError('not_found')
  const { json } = await (await databases.get(place.database)).open(SYSTEM_USER, place.id, {})
  return shownDocument(live, place, JSON.parse(decodeSendable(json)) as DocumentMembers)
}

function shownDocument(live: Live, place: ReplicatorDocument, doc: DocumentMembers): ShownDocument {
  const entry = live.find(place)
  return entry === undefined ? shownEnd(live, place, doc) : shownLive(live, place, entry)
}

function shownLive(live: Live, place: ReplicatorDocument, entry: DocumentReplication): ShownDocument {
  const { job, startedAt, updatedAt, wanted } = entry
  const { source, target, options } = wanted.request
  return {
    ...shownPlace(place),
    id: job?.id ?? null,
    source: live.shownEndpoint(source),
    target: live.shownEndpoint(target),
    state: job === null ? entry.state : stateOfJob(job),
    info: job === null ? errorInfo(entry.reason) : infoOfJob(job),
    error_count: job?.crashes ?? entry.errors,
    last_updated: timestamp(updatedAt),
    start_time: timestamp(startedAt),
    source_proxy: withoutPassword(options.sourceProxy),
    target_proxy: withoutPassword(options.targetProxy),
  }
}

function stateOfJob({ state }: ReplicationJob): State {
  // Cancelled: its document is about to be forgotten.
  return state === 'cancelled' ? 'pending' : state
}

function infoOfJob({ state, progress, history }: ReplicationJob): object | null {
  return state === 'crashing' ? errorInfo(history[0]?.reason ?? null) : progressInfo(progress)
}

function errorInfo(reason: string | null): object | null {
  return reason === null ? null : { error: reason }
}

/** A document that has ended, or that has not been looked at yet, by what it says itself. */
function shownEnd(live: Live, place: ReplicatorDocument, doc: DocumentMembers): ShownDocument {
  const state = stateOf(doc)
  const time = doc._replication_state_time ?? null
  const stats = isJsonObject(doc._replication_stats) ? doc._replication_stats : null
  const reason = typeof doc._replication_state_reason === 'string' ? doc._replication_state_reason : null
  const { start_time: startTime = time, ...info } = stats ?? {}
  const isFailed = state === 'failed'
  return {
    ...shownPlace(place),
    id: typeof doc._replication_id === 'string' ? doc._replication_id : null,
    source: shownText(live, doc.source),
    target: shownText(live, doc.target),
    state: isFailed || state === 'completed' ? state : 'initializing',
    info: isFailed ? errorInfo(reason) : stats === null ? null : info,
    error_count: isFailed ? 1 : 0,
    last_updated: time,
    start_time: startTime,
    source_proxy: doc.source_proxy ?? doc.proxy ?? null,
    target_proxy: doc.target_proxy ?? doc.proxy ?? null,
  }
}

function shownPlace({ database, id }: ReplicatorDocument): object {
  return { database, doc_id: id }
}

/** An endpoint as it is stored, without credentials. */
function shownText(live: Live, endpoint: unknown): unknown {
  const text = isJsonObject(endpoint) ? endpoint.url : endpoint
  if (typeof text !== 'string') return null
  if (URL.canParse(text) && text.includes('://')) return shownAddress(new URL(text))
  return live.shownEndpoint({ type: 'local', name: text })
}

function shownAddress({ protocol, host, pathname }: URL): string {
  return `${protocol}//${host}${pathname}${pathname.endsWith('/') ? '' : '/'}`
}

function withoutPassword(proxy: string | undefined): string | null {
  if (proxy === undefined) return null
  const url = new URL(proxy)
  if (url.password !== '') url.password = MASK
  return url.href
}
