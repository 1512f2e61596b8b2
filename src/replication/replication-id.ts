/**
 * The ids of checkpoint documents, which decide whether two replications are the same. Pure. Sources: protocol.md 14.2;
 * generateReplicationId of PouchDB 9.
 */
import { createHash } from 'node:crypto'
import { LOCAL_PREFIX } from '../core/ids.ts'

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
  /** With or without a user and a password. */
  readonly url: string
  /** The headers of every request, including those from `auth`. */
  readonly headers?: Readonly<Record<string, string>>
}

/** The options from which CouchDB computes an id; at most one of `docIds`, `filter` and `selector` is given. */
export interface CouchReplication {
  /** That of the server that replicates. */
  readonly serverUuid: string
  readonly source: Endpoint
  readonly target: Endpoint
  readonly docIds?: readonly string[]
  /** The text of the filter function, so that an edited filter starts from 0; for a view filter, `design/view`. */
  readonly filter?: string
  readonly queryParams?: Readonly<Record<string, unknown>>
  readonly selector?: unknown
  readonly winningRevsOnly?: boolean
  readonly sinceSeq?: string | number
}

/**
 * The hashed values, by version. They are CouchDB's, but the id differs: CouchDB hashes an Erlang term, and no other
 * server looks for its id. If the values must change, add a version and keep the old ones. Their checkpoints are read
 * too, so that replications continue after an upgrade.
 */
const DERIVATIONS = { 4: version4 } as const

type CouchIdVersion = keyof typeof DERIVATIONS

/** Stored in checkpoints as `replication_id_version`. */
export const COUCH_ID_VERSION: CouchIdVersion = 4

/**
 * Computes the id of the checkpoint document of a CouchDB replication.
 * @param version an older version finds checkpoints from before an upgrade
 * @returns `_local/` and 32 hex digits, without `+continuous`, which only job ids have
 */
export function couchCheckpointId(
  replication: CouchReplication,
  version: CouchIdVersion = COUCH_ID_VERSION,
): string {
  const text = JSON.stringify(canonical(DERIVATIONS[version](replication)))
  return LOCAL_PREFIX + createHash('md5').update(text).digest('hex')
}

/** The text omits undefined members, so that new options need no new version. */
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
 * Identifies an endpoint by user, host, port, path and headers. It stays the same with a new password, and after a move
 * from http to https on the default ports.
 */
function endpointIdentity({ url, headers = {} }: Endpoint): object {
  const names = Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value] as const)
  const basicUser = names.map(userOfBasic).find((user) => user !== null)
  const others = Object.fromEntries(names.filter((header) => userOfBasic(header) === null))
  // The URL is not valid: the job will fail, but its report needs an id.
  if (!URL.canParse(url)) return { host: url, user: basicUser, headers: others }
  const { username, hostname, port, pathname } = new URL(url)
  return {
    user: username === '' ? basicUser : decoded(username),
    host: hostname,
    // 5984 is CouchDB's default port; URL itself drops 80 and 443.
    port: port === '5984' ? '' : port,
    path: pathname.replace(/\/*$/, '/'),
    headers: others,
  }
}

/** The user name of a header with Basic credentials; null for any other header. */
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

/** The same value with the members of every object sorted. */
function canonical(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(canonical)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(sortedByName(value).map(([name, member]) => [name, canonical(member)]))
}
