/**
 * Purges of the primary, which no replication brings. What is purged there is purged here. Then the documents are copied once
 * more: a device may have sent a purged revision again.
 */

import { COPYING_USER } from '../auth/accounts.ts'
import type { Config } from '../config/config.ts'
import type { RemoteDatabase } from '../replication/remote/remote-database.ts'
import type { DatabaseHandle } from '../threads/databases.ts'
import { DocumentCopy, type DocumentCopyOptions } from './document-copy.ts'
import type { Primary, Purge } from './primary.ts'

export interface PurgeCopyOptions extends DocumentCopyOptions {
  readonly primary: Primary
  readonly config: Config
}

/** What one `_purge` may have (protocol.md 2.5). */
interface PurgeLimits {
  readonly documents: number
  readonly revisions: number
}

/** Documents that are copied again at once. */
const COPIED = 1000

/**
 * Repeats the newest purges of a database.
 * @param count how many purges are not known here yet
 * @returns how many of them the primary no longer remembers
 * @throws PeerError, CouchError
 */
export async function copyPurges(
  options: PurgeCopyOptions,
  database: DatabaseHandle,
  remote: RemoteDatabase,
  count: number,
  signal: AbortSignal,
): Promise<number> {
  const purges = await options.primary.purges(remote.name, count, signal)
  const limits = {
    documents: options.config.integer('purge', 'max_document_id_number'),
    revisions: options.config.integer('purge', 'max_revisions_number'),
  }
  for (const group of groupsOf(purges, limits)) {
    signal.throwIfAborted()
    await database.purge(COPYING_USER, { bytes: Buffer.from(JSON.stringify(Object.fromEntries(group))) })
  }
  const ids = [...new Set(purges.map(({ id }) => id))]
  for (let at = 0; at < ids.length; at += COPIED) {
    await new DocumentCopy(options, remote, { since: 0, docIds: ids.slice(at, at + COPIED) }, signal).run()
  }
  return Math.max(0, count - purges.length)
}

/** Requests of `_purge`: by id, within its limits. */
export function groupsOf(
  purges: readonly Purge[],
  limits: PurgeLimits,
): readonly ReadonlyMap<string, readonly string[]>[] {
  const groups: Map<string, string[]>[] = []
  let group = new Map<string, string[]>()
  let revisions = 0
  for (const { id, revs } of purges) {
    for (let at = 0; at < revs.length; at += limits.revisions) {
      const some = revs.slice(at, at + limits.revisions)
      const isFull = group.size >= limits.documents && !group.has(id)
      if (group.size === 0 || isFull || revisions + some.length > limits.revisions) {
        group = new Map()
        groups.push(group)
        revisions = 0
      }
      group.set(id, [...(group.get(id) ?? []), ...some])
      revisions += some.length
    }
  }
  return groups
}
