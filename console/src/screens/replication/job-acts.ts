/** Starts, stops and repeats replications. */
import { ask, pathOf } from '../../api/client.ts'
import { Failure } from '../../api/failure.ts'
import { type JobInput, jobBody } from './job-body.ts'
import type { ReplicationRow } from './job-rows.ts'

const REPLICATOR = '_replicator'

type Doc = Readonly<Record<string, unknown>>

/** How long the page waits for a first failure of a replication that is not kept, in ms. */
const FIRST_WAIT_MS = 2500

/**
 * Starts a replication.
 * @param onEnd called when one that is neither kept nor continuous ends later than that
 * @returns whether it has ended already
 * @throws Failure
 */
export async function startReplication(
  input: JobInput,
  onEnd: (failure: unknown) => void,
): Promise<'started' | 'ended'> {
  if (input.isKept) {
    await storeDocument(jobBody(input))
    return 'started'
  }
  const ended = ask('_replicate', { json: jobBody(input) })
  if (input.isContinuous) {
    await ended
    return 'started'
  }
  const first = await Promise.race([ended.then(() => 'ended' as const), delay(FIRST_WAIT_MS)])
  if (first === 'ended') return first
  ended.then(() => onEnd(null), onEnd)
  return 'started'
}

async function delay(ms: number): Promise<'started'> {
  await new Promise((resolve) => setTimeout(resolve, ms))
  return 'started'
}

async function storeDocument(doc: Doc): Promise<void> {
  try {
    await ask(REPLICATOR, { json: doc })
  } catch (error) {
    if (!(error instanceof Failure) || error.status !== 404) throw error
    await ask(REPLICATOR, { method: 'PUT' })
    await ask(REPLICATOR, { json: doc })
  }
}

/** Ends a replication. What it has copied stays. @throws Failure */
export async function stopReplication({ document, jobId }: ReplicationRow): Promise<void> {
  if (document === null) {
    await ask('_replicate', { json: { cancel: true, id: jobId } })
    return
  }
  const path = pathOf(document.database, document.id)
  const { _rev: rev } = await ask<Doc>(path)
  await ask(path, { method: 'DELETE', query: { rev: String(rev) } })
}

/** Lets a replication that has ended begin again: its document is stored without what the server has added. @throws Failure */
export async function repeatReplication({
  database,
  id,
}: NonNullable<ReplicationRow['document']>): Promise<void> {
  const path = pathOf(database, id)
  const doc = await ask<Doc>(path)
  const kept = Object.entries(doc).filter(([name]) => !name.startsWith('_replication_'))
  await ask(path, { method: 'PUT', json: Object.fromEntries(kept) })
}
