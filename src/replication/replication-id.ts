/**
 * The ids of checkpoint documents, which decide whether two replications are the same. Pure. Sources: protocol.md 14.2;
 * generateReplicationId of PouchDB 9.
 */
import { createHash } from 'node:crypto'
import { compareUtf8 } from '../core/bytes.ts'
import { LOCAL_PREFIX } from '../core/ids.ts'
import type { NormalSelector } from '../query/normal-selector.ts'
import { atom, binary, charList, ejson, integer, list, termToBinary, tuple } from './erlang-term.ts'

/** The options from which PouchDB computes an id. Options that were not given are absent. */
export interface PouchReplication {
  /** `db.id()`: for a remote database, `uuid` of `GET /` followed by the encoded database name. */
  readonly sourceId: string
  readonly targetId: string
  readonly docIds?: readonly string[]
  /** `design/filter`, `_view`, or the text of a function. */
  readonly filter?: string
  /** Ignored unless `filter` is `_view`. */
  readonly view?: string
  /** Ignored without `filter`. */
  readonly queryParams?: Readonly<Record<string, unknown>>
  /** PouchDB keeps the order of its members. */
  readonly selector?: unknown
}

/**
 * Computes the id of PouchDB's checkpoint document.
 * @returns `_local/` and 24 characters, the last two of which are `=`; percent-encode it in a URL
 */
export function pouchCheckpointId(replication: PouchReplication): string {
  const { sourceId, targetId, docIds = [], filter = '', view = '', queryParams, selector } = replication
  const text = [
    sourceId,
    targetId,
    filter,
    filter === '_view' ? view : '',
    filter !== '' && queryParams ? JSON.stringify(Object.fromEntries(sortedByName(queryParams))) : '',
    [...docIds].sort().join(),
    selector ? JSON.stringify(selector) : '',
  ].join('')
  // latin1, as in PouchDB on Node: only the low byte of a character beyond U+00FF counts.
  const digest = createHash('md5').update(text, 'latin1').digest('base64')
  return LOCAL_PREFIX + digest.replaceAll('/', '.').replaceAll('+', '_')
}

/** One end of a CouchDB replication. */
export interface Endpoint {
  /** Without credentials. */
  readonly url: string
  /** The user of Basic authentication, as it was given; null without one. */
  readonly user: string | null
  /** As they were given, without Basic credentials, in CouchDB's order (replication-request.ts). */
  readonly headers: Readonly<Record<string, string>>
}

/** The options from which CouchDB computes an id; at most one of `docIds`, `filter` and `selector` is given. */
export interface CouchReplication {
  /** That of the server that replicates. */
  readonly serverUuid: string
  readonly source: Endpoint
  readonly target: Endpoint
  readonly docIds?: readonly string[]
  /** The text of a filter function, so that an edited filter starts from 0, or the name of a built-in filter. */
  readonly filter?: { readonly code: string } | { readonly name: string }
  readonly queryParams?: Readonly<Record<string, unknown>>
  /** In CouchDB's normal form. */
  readonly selector?: NormalSelector
  readonly winningRevsOnly?: boolean
}

/** Stored in checkpoints as `replication_id_version`. */
export const COUCH_ID_VERSION = 4

/**
 * Computes the id of the checkpoint document of a CouchDB replication: CouchDB's own, so that either server continues
 * what the other has begun under the same uuid (replication_id in couch_replicator_ids). It differs from CouchDB's for
 * addresses that WHATWG's URL changes, and for numbers such as `1.0` in a selector.
 * @returns `_local/` and 32 hex digits, without `+continuous`, which only job ids have
 */
export function couchCheckpointId(replication: CouchReplication): string {
  const { serverUuid, source, target } = replication
  const parts = [
    binary(serverUuid),
    endpointTerm(source),
    endpointTerm(target),
    ...filterTerms(replication),
    ...(replication.winningRevsOnly ? [binary('winning_revs_only')] : []),
  ]
  return (
    LOCAL_PREFIX +
    createHash('md5')
      .update(termToBinary(list(parts)))
      .digest('hex')
  )
}

function filterTerms({ docIds, filter, queryParams = {}, selector }: CouchReplication): Buffer[] {
  if (docIds !== undefined) return [list([...new Set(docIds)].sort(compareUtf8).map(binary))]
  if (selector !== undefined) return [ejson(canonical(selector))]
  if (filter === undefined) return []
  const text = 'name' in filter ? filter.name : trimmed(filter.code)
  return [binary(text), ejson(queryParams)]
}

/** CouchDB trims spaces, and only of functions in one line. The text may be another server's, so no pattern backtracks. */
function trimmed(code: string): string {
  const hasEnd = code.endsWith('\n')
  let end = code.length - (hasEnd ? 1 : 0)
  if (code.lastIndexOf('\n', end - 1) >= 0) return code
  let start = 0
  while (code[start] === ' ') start += 1
  while (end > start && code[end - 1] === ' ') end -= 1
  return code.slice(start, end) + (hasEnd ? '\n' : '')
}

/** The same with another password, and for http and https on their default ports. */
function endpointTerm({ url, user, headers }: Endpoint): Buffer {
  const { hostname, port, pathname, search, protocol } = new URL(url)
  const isDefault = port === '' || (protocol === 'http:' && port === '5984')
  const path = search !== '' || pathname.endsWith('/') ? pathname : `${pathname}/`
  const others = Object.entries(headers).filter(
    ([name, value]) => !(name === 'Accept' && value === 'application/json'),
  )
  return tuple(
    atom('remote'),
    user === null ? atom('undefined') : charList(user),
    charList(hostname.replace(/^\[(.*)\]$/, '$1')),
    isDefault ? atom('default') : integer(Number(port)),
    charList(path + search),
    list(others.map(([name, value]) => tuple(charList(name), charList(value)))),
    atom('undefined'),
  )
}

function sortedByName(object: object): [name: string, value: unknown][] {
  return Object.entries(object).sort(([a], [b]) => (a < b ? -1 : 1))
}

/** The same value with the members of every object sorted. */
function canonical(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(canonical)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(sortedByName(value).map(([name, member]) => [name, canonical(member)]))
}
