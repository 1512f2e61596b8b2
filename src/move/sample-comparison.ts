/** Compares the content of some documents of both servers, which their revisions do not prove. */
import { isDeepStrictEqual } from 'node:util'
import { decodeSendable } from '../core/bytes.ts'
import { isJsonObject } from '../core/json.ts'
import { SYSTEM_USER } from '../core/types.ts'
import { PeerError } from '../replication/peer-error.ts'
import type { RemoteDatabase } from '../replication/remote/remote-database.ts'
import type { DatabaseHandle } from '../threads/databases.ts'
import type { FeedComparison } from './feed-comparison.ts'
import { repeated } from './old-server.ts'

export interface SampleOutcome {
  readonly compared: number
  /** The ids of documents whose content or attachments differ. */
  readonly different: readonly string[]
}

/** Compares members, and name, type and length of attachments. @throws PeerError */
export async function compareSample(
  old: RemoteDatabase,
  here: DatabaseHandle,
  { sample, missing }: FeedComparison,
  signal: AbortSignal,
): Promise<SampleOutcome> {
  const different: string[] = []
  let compared = 0
  for (const { id, rev } of sample) {
    if (missing.ids.includes(id)) continue
    const there = await repeated(signal, () => readSmall(old, id, signal))
    // It may have changed meanwhile.
    if (!isJsonObject(there) || there._rev !== rev) continue
    const local = await here.open(SYSTEM_USER, id, { rev }).catch(() => null)
    compared += 1
    const found: unknown = local === null ? null : JSON.parse(decodeSendable(local.json))
    if (!isJsonObject(found) || !isDeepStrictEqual(comparable(there), comparable(found))) different.push(id)
  }
  return { compared, different }
}

/** @returns null for a document with a member of more than 1 MB, which would hold the thread for long */
async function readSmall(old: RemoteDatabase, id: string, signal: AbortSignal): Promise<unknown> {
  try {
    return await old.peer.readDocument(id, signal)
  } catch (error) {
    if (error instanceof PeerError && error.fault === 'invalid_answer') return null
    throw error
  }
}

/** CouchDB's digests of compressible attachments are of their compressed form (protocol.md 7.1). */
function comparable({ _attachments, ...members }: Record<string, unknown>): unknown {
  const attachments = Object.entries(isJsonObject(_attachments) ? _attachments : {}).map(([name, stub]) => {
    const { content_type, length } = (stub ?? {}) as Record<string, unknown>
    return [name, { content_type, length }] as const
  })
  return { ...members, _attachments: Object.fromEntries(attachments) }
}
