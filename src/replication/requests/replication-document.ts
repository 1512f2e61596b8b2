/** Documents of `_replicator` as requests for replications, and their states; protocol.md 14.3. Pure. */
import { createHash } from 'node:crypto'
import { CouchError } from '../../core/errors.ts'
import { isJsonObject } from '../../core/json.ts'
import { compileSelector } from '../../query/selector.ts'
import { type ReplicationDefaults, type ReplicationRequest, readReplication } from './replication-request.ts'
import { unsealCredentials } from './sealed-credentials.ts'

type Members = Readonly<Record<string, unknown>>

/** What a document says about its replication; null: nothing yet. `triggered` and `error` are not final. */
export type DocumentState = 'triggered' | 'completed' | 'failed' | 'error' | null

/** The member `user_ctx`: fewer rights than the owner's, or, for server admins, those of somebody else. */
export interface GivenUser {
  /** null: the owner. */
  readonly name: string | null
  /** null: all roles of the user. */
  readonly roles: readonly string[] | null
}

/** A replication that a document asks for. */
export interface DocumentRequest {
  readonly request: ReplicationRequest
  /** With whose rights it runs; null: there was no admin. */
  readonly owner: string | null
  readonly userCtx: GivenUser
  /** Changes when a change of the document makes it another replication. */
  readonly fingerprint: string
}

/** For a check, which does not depend on them. */
const ANY_DEFAULTS: ReplicationDefaults = {
  usesCheckpoints: true,
  checkpointInterval: 30_000,
  usesBulkGet: true,
  batchSize: 500,
  batches: 4,
  timeout: 30_000,
  retries: 5,
}

/**
 * Checks a document when it is written, on the thread of its database. One that has failed is not checked, as in CouchDB.
 * @param key of sealed credentials
 * @throws forbidden, with CouchDB's words for what is wrong
 */
export function checkReplication(members: Members, key: string | null): void {
  if (stateOf(members) === 'failed') return
  try {
    const { filter } = readDocumentRequest(members, key, ANY_DEFAULTS).request.options
    if (filter.selector !== undefined) compileSelector(filter.selector)
  } catch (error) {
    if (error instanceof CouchError) throw new CouchError('forbidden', error.message)
    throw error
  }
}

/** @throws bad_request and others of {@link readReplication}; forbidden for credentials that cannot be read */
export function readDocumentRequest(
  members: Members,
  key: string | null,
  defaults: ReplicationDefaults,
): DocumentRequest {
  const owner = ownerOf(members)
  const userCtx = readUserCtx(members.user_ctx)
  const request = readReplication(unsealCredentials(members, owner, key), defaults)
  return { request, owner, userCtx, fingerprint: digestOf([request, owner, userCtx]) }
}

/** The server writes it. A file that was made by other means may lack it. */
function ownerOf({ owner }: Members): string | null {
  if (typeof owner === 'string' || owner === null) return owner
  throw new CouchError('bad_request', 'The document has no owner: write it again.')
}

function readUserCtx(value: unknown): GivenUser {
  if (value === undefined || value === null) return { name: null, roles: null }
  const { name = null, roles = null } = isJsonObject(value) ? value : { name: 0 }
  const isName = name === null || typeof name === 'string'
  const isList = roles === null || (Array.isArray(roles) && roles.every((role) => typeof role === 'string'))
  if (!isName || !isList) {
    throw new CouchError('bad_request', '`user_ctx` must be an object with a name and a list of roles')
  }
  return { name, roles }
}

function digestOf(value: unknown): string {
  return createHash('sha256').update(JSON.stringify(value)).digest('base64')
}

/** @returns the state in a document; null for an unknown one, since CouchDB starts it as well */
export function stateOf({ _replication_state: state }: Members): DocumentState {
  return state === 'triggered' || state === 'completed' || state === 'failed' || state === 'error'
    ? state
    : null
}
