/** What a call about one document says in its path, query and headers; protocol.md 2.2, 3.1, 3.3, 3.6. */
import type { IncomingHttpHeaders } from 'node:http'
import type { FastifyRequest } from 'fastify'
import { CouchError } from '../core/errors.ts'
import { DESIGN_PREFIX, LOCAL_PREFIX } from '../core/ids.ts'
import type { OpenOptions, PutOptions } from '../documents/database.ts'
import { isOn, jsonParam, type Query, queryOf, textParam } from './query-params.ts'

interface DocumentParams {
  readonly docid?: string
  readonly ddoc?: string
  readonly local?: string
}

/**
 * The document's id, from whichever parameter of the route holds it. Whether it is legal is for the database to
 * say, but for a `_local` without a name.
 * @throws bad_request
 */
export function idOf(request: FastifyRequest): string {
  const { docid = '', ddoc, local } = request.params as DocumentParams
  if (ddoc !== undefined) return DESIGN_PREFIX + ddoc
  if (local !== undefined) return LOCAL_PREFIX + local
  if (docid === '_local' || docid === LOCAL_PREFIX) {
    throw new CouchError('bad_request', 'Invalid _local document id.')
  }
  return docid
}

/** What a parameter switches on when it is `true`. */
const SWITCHES: Readonly<Record<string, readonly (keyof OpenOptions)[]>> = {
  latest: ['latest'],
  revs: ['revs'],
  revs_info: ['revsInfo'],
  conflicts: ['conflicts'],
  deleted_conflicts: ['deletedConflicts'],
  meta: ['revsInfo', 'conflicts', 'deletedConflicts'],
  local_seq: ['localSeq'],
  attachments: ['attachments'],
  att_encoding_info: ['attEncodingInfo'],
  deleted: ['deleted'],
}

/**
 * The options of reading a document; only those that are asked for, since each is named in the message to the
 * database's thread.
 * @throws invalid_json, invalid_revs_list, invalid_rev for a bad `atts_since`
 */
export function openOptions(query: Query): OpenOptions {
  const options: { -readonly [Name in keyof OpenOptions]: unknown } = {}
  for (const name of Object.keys(query)) {
    if (!Object.hasOwn(SWITCHES, name) || !isOn(query, name)) continue
    for (const option of SWITCHES[name] ?? []) options[option] = true
  }
  const rev = textParam(query, 'rev')
  const attsSince = attsSinceParam(query)
  if (rev !== undefined) options.rev = rev
  if (attsSince !== undefined) options.attsSince = attsSince
  return options as OpenOptions
}

function attsSinceParam(query: Query): readonly string[] | undefined {
  const revs = jsonParam(query, 'atts_since')
  if (revs === undefined) return undefined
  if (!Array.isArray(revs)) throw new CouchError('invalid_revs_list')
  if (!revs.every((rev) => typeof rev === 'string')) throw new CouchError('invalid_rev')
  return revs
}

/**
 * `open_revs`: `all`, bare as Fauxton sends it or as JSON, or a list; undefined when it is not asked for.
 * @throws invalid_json, invalid_revs_list
 */
export function openRevsParam(query: Query): readonly unknown[] | 'all' | undefined {
  if (query.open_revs === 'all') return 'all'
  const revs = jsonParam(query, 'open_revs')
  if (revs === undefined || revs === 'all' || Array.isArray(revs)) return revs
  throw new CouchError('invalid_revs_list')
}

/**
 * The revision that the query or If-Match names.
 * @throws bad_request when both do, and differ
 */
export function parentRev(request: FastifyRequest): Pick<PutOptions, 'rev' | 'revFrom'> {
  const inQuery = textParam(queryOf(request), 'rev')
  const inHeader = request.headers['if-match']?.trim().replace(/^"|"$/g, '')
  if (inHeader === undefined) return inQuery === undefined ? {} : { rev: inQuery, revFrom: 'query' }
  if (inQuery === undefined || inQuery === inHeader) return { rev: inHeader, revFrom: 'etag' }
  throw new CouchError('bad_request', 'Document rev and etag have different values')
}

/**
 * The header Destination of COPY: an id, percent-encoded, and maybe `?rev=`.
 * @throws bad_request, invalid_url
 */
export function copyTarget({ destination }: IncomingHttpHeaders): { id: string; rev?: string } {
  if (typeof destination !== 'string' || destination === '') {
    throw new CouchError('bad_request', 'Destination header is mandatory for COPY.')
  }
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(destination)) {
    throw new CouchError('bad_request', 'Destination URL must be relative.')
  }
  const [id = '', query = ''] = destination.split('?', 2)
  const rev = /^rev=(.+)$/.exec(query)?.[1]
  return { id: decoded(id), ...(rev !== undefined && { rev: decoded(rev) }) }
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    throw new CouchError('invalid_url')
  }
}
