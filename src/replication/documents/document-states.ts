/** Writes the states of replications into their documents; update_rep_doc in couch_replicator_docs. */

import { findDatabase } from '../../auth/users.ts'
import { decodeSendable } from '../../core/bytes.ts'
import { CouchError } from '../../core/errors.ts'
import { SYSTEM_USER } from '../../core/types.ts'
import { splitMembers } from '../../documents/body.ts'
import type { Databases } from '../../threads/databases.ts'
import type { ReplicatorDocument } from '../jobs/job.ts'
import { timestamp } from '../jobs/job-info.ts'
import type { DocumentState } from '../requests/replication-document.ts'
import type { DocumentMembers } from './replicator-feed.ts'

/** What a document is to say about its replication. */
export interface WrittenState {
  /** null: nothing, since it is to start anew. */
  readonly state: DocumentState
  readonly id?: string
  readonly reason?: string
  readonly stats?: object
}

const ID_MEMBER = '_replication_id'
const STATE_MEMBERS: ReadonlySet<string> = new Set([
  '_replication_state',
  '_replication_state_time',
  '_replication_state_reason',
  '_replication_stats',
])
const TRIES = 5

/**
 * Writes a state, unless the document has become another replication meanwhile.
 * @param isSame whether the document as stored still asks for the replication
 * @throws as a write of the document, conflicts aside
 */
export async function writeState(
  databases: Pick<Databases, 'get'>,
  place: ReplicatorDocument,
  written: WrittenState,
  isSame: (doc: DocumentMembers) => boolean,
): Promise<void> {
  for (let tries = 1; ; tries++) {
    try {
      await writeOnce(databases, place, written, isSame)
      return
    } catch (error) {
      const isLate = error instanceof CouchError && error.code === 'conflict'
      if (!isLate || tries === TRIES) throw error
    }
  }
}

async function writeOnce(
  databases: Pick<Databases, 'get'>,
  { database: name, id }: ReplicatorDocument,
  { state, id: replicationId, reason, stats }: WrittenState,
  isSame: (doc: DocumentMembers) => boolean,
): Promise<void> {
  const database = await findDatabase(databases, name)
  const text = database === null ? null : await readText(() => database.open(SYSTEM_USER, id, {}))
  if (database === null || text === null) return
  const doc = JSON.parse(text) as DocumentMembers
  if (!isSame(doc)) return
  // The time tells since when the document has its state.
  const isNew = doc._replication_state !== state
  const time = isNew ? timestamp(Date.now()) : doc._replication_state_time
  const members = {
    ...(replicationId !== undefined && { [ID_MEMBER]: replicationId }),
    ...(state !== null && { _replication_state: state, _replication_state_time: time }),
    ...(reason !== undefined && { _replication_state_reason: reason }),
    ...(stats !== undefined && { _replication_stats: stats }),
  }
  // The id stays with the states that follow.
  const hasOtherId = replicationId !== undefined || state === null
  const isOld = (member: string) => STATE_MEMBERS.has(member) || (hasOtherId && member === ID_MEMBER)
  const { body } = splitMembers(text.trim(), isOld)
  const added = JSON.stringify(members)
  const json = added === '{}' ? body : `${body.slice(0, -1)},${added.slice(1)}`
  if (json === text.trim()) return
  await database.put(SYSTEM_USER, id, { bytes: Buffer.from(json) }, {})
}

/** @returns null without the document */
async function readText(
  open: () => Promise<{ readonly json: Parameters<typeof decodeSendable>[0] }>,
): Promise<string | null> {
  try {
    return decodeSendable((await open()).json)
  } catch (error) {
    if (error instanceof CouchError && error.status === 404) return null
    throw error
  }
}
