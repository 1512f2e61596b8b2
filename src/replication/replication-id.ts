/**
 * The names of checkpoint documents: what makes two replications the same one. Pure. Sources: protocol.md 14.2;
 * generateReplicationId of PouchDB 9.
 */
import { createHash } from 'node:crypto'
import { LOCAL_PREFIX } from '../core/ids.ts'

/** A replication as PouchDB names it. Options that were not given are left out. */
export interface PouchReplication {
  /** `db.id()`: of a remote one `uuid` of `GET /` followed by the encoded name of the database. */
  readonly sourceId: string
  readonly targetId: string
  readonly docIds?: readonly string[]
  /** `design/filter`, `_view`, or a function's text. */
  readonly filter?: string
  /** Counts only where `filter` is `_view`. */
  readonly view?: string
  /** Counts only beside `filter`. */
  readonly queryParams?: Readonly<Record<string, unknown>>
  /** In the order of its members as they were given, which PouchDB does not change. */
  readonly selector?: unknown
}

/**
 * Computes the id of the document in which PouchDB keeps a replication's checkpoints.
 * @returns `_local/` and 24 characters of which the last two are `=`: to be percent-encoded in an address
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
  // latin1, as PouchDB on Node does it: of a character beyond U+00FF only the low byte counts.
  const digest = createHash('md5').update(text, 'latin1').digest('base64')
  return LOCAL_PREFIX + digest.replaceAll('/', '.').replaceAll('+', '_')
}

/** One end of a replication of CouchDB's. */
export interface Endpoint {
  /** With or without a user and a password. */
  readonly url: string
  /** Sent with every request, those of `auth` included. */
  readonly headers?: Readonly<Record<string, string>>
}

/** A replication as CouchDB names it; of `docIds`, `filter` and `selector` at most one is given. */
export interface CouchReplication {
  /** Of the server that replicates. */
  readonly serverUuid: string
  readonly source: Endpoint
  readonly target: Endpoint
  readonly docIds?: readonly string[]
  /** The filter function's text, so that an edited filter starts again; for a view filter, `design/view`. */
  readonly filter?: string
  readonly queryParams?: Readonly<Record<string, unknown>>
  readonly selector?: unknown
  readonly winningRevsOnly?: boolean
  readonly sinceSeq?: string | number
}

/**
 * What is hashed, by version. An id's ingredients are CouchDB's, but it is not CouchDB's id: that one is the hash of
 * an Erlang term, and no other server looks for it. When the ingredients have to change, add a version and keep the
 * old ones: their checkpoints are looked for too, so that an upgrade does not start replications again.
 */
const DERIVATIONS = { 4: version4 } as const

type CouchIdVersion = keyof typeof DERIVATIONS

/** Goes into checkpoints as `replication_id_version`. */
export const COUCH_ID_VERSION: CouchIdVersion = 4

/**
 * Computes the id of the document in which a replication of CouchDB's kind keeps its checkpoints.
 * @param version an older one, to find what was written before an upgrade
 * @returns `_local/` and 32 hex digits; without `+continuous`, which belongs to the job's id alone
 */
export function couchCheckpointId(
  replication: CouchReplication,
  version: CouchIdVersion = COUCH_ID_VERSION,
): string {
  const text = JSON.stringify(canonical(DERIVATIONS[version](replication)))
  return LOCAL_PREFIX + createHash('md5').update(text).digest('hex')
}

/** Members that are undefined are left out of the text, so that options may be added without a new version. */
function version4(replication: CouchReplication): object {
  const { serverUuid, source, target, docIds, filter, queryParams, selector } = replication
  return {
    serverUuid,
    source: endpointIdentity(source),
    target: endpointIdentity(target),
    docIds: docIds && [...new Set(docIds)].sort(),
    filter,
    queryParams: filter === undefined ? undefined : (queryParams ?? {}),
    selector,
    winningRevsOnly: replication.winningRevsOnly || undefined,
    sinceSeq: replication.sinceSeq,
  }
}

/**
 * What counts of an endpoint: user, host, port, path and headers. A new password is the same endpoint, and so is
 * one that has moved from http to https on either's usual port.
 */
function endpointIdentity({ url, headers = {} }: Endpoint): object {
  const names = Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value] as const)
  const basicUser = names.map(userOfBasic).find((user) => user !== null)
  const others = Object.fromEntries(names.filter((header) => userOfBasic(header) === null))
  // Not an address at all: the job will fail, but it has to have an id by which to tell of it.
  if (!URL.canParse(url)) return { host: url, user: basicUser, headers: others }
  const { username, hostname, port, pathname } = new URL(url)
  return {
    user: username === '' ? basicUser : decoded(username),
    host: hostname,
    // 5984 is CouchDB's own usual port; URL drops 80 and 443 itself.
    port: port === '5984' ? '' : port,
    path: pathname.replace(/\/*$/, '/'),
    headers: others,
  }
}

/** The user's name of a header with Basic credentials, null for every other header. */
function userOfBasic([name, value]: readonly [string, string]): string | null {
  const encoded = name === 'authorization' ? /^basic +(\S+)\s*$/i.exec(value)?.[1] : undefined
  if (encoded === undefined) return null
  const [user, password] = Buffer.from(encoded, 'base64').toString().split(':', 2)
  return password === undefined ? null : (user ?? null)
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

function sortedByName(object: object): [name: string, value: unknown][] {
  return Object.entries(object).sort(([a], [b]) => (a < b ? -1 : 1))
}

/** The same value with every object's members in one order, however they were given. */
function canonical(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(canonical)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(sortedByName(value).map(([name, member]) => [name, canonical(member)]))
}
