/** The `_local` documents of a database: the checkpoints of its devices, and what apps keep there. */
import { isDeepStrictEqual } from 'node:util'
import { decodeSendable } from '../core/bytes.ts'
import { CouchError } from '../core/errors.ts'
import { SYSTEM_USER } from '../core/types.ts'
import { parsed } from '../replication/json-parts.ts'
import type { RemoteDatabase } from '../replication/remote/remote-database.ts'
import type { DatabaseHandle } from '../threads/databases.ts'
import type { CheckpointTokens } from './checkpoint-tokens.ts'
import type { LocalDoc, LocalDocSpool } from './local-doc-spool.ts'
import { type LoggedIds, localIdsToTry } from './logged-ids.ts'
import { repeated } from './old-server.ts'

/**
 * @param logged the ids to ask for if the old server does not list them
 * @returns whether the old server lists them
 */
export async function readLocalDocs(
  old: RemoteDatabase,
  spool: LocalDocSpool,
  tokens: CheckpointTokens,
  logged: LoggedIds,
  signal: AbortSignal,
): Promise<boolean> {
  return repeated(signal, async () => {
    await spool.empty()
    const listed = await old.localDocs(signal)
    for await (const doc of listed ?? docsOf(old, localIdsToTry(logged, old.name), signal)) {
      await spool.add(doc)
      if (doc.length <= MAX_CHECKPOINT) tokens.note(parsed(doc))
    }
    return listed !== null
  })
}

async function* docsOf(
  old: RemoteDatabase,
  ids: readonly string[],
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  for (const id of ids) {
    const doc = await old.localDoc(id, signal)
    if (doc !== null) yield doc
  }
}

/** The most bytes of a checkpoint: CouchDB's has 50 sessions. */
const MAX_CHECKPOINT = 256 * 1024

/**
 * @param wasUsed devices have used the database here, so what they have stored counts
 * @returns how many documents here were kept instead of those of the old server
 */
export async function storeLocalDocs(
  here: DatabaseHandle,
  spool: LocalDocSpool,
  wasUsed: boolean,
  { signal, onProgress }: { readonly signal: AbortSignal; onProgress(stored: number, total: number): void },
): Promise<number> {
  let kept = 0
  let stored = 0
  for await (const doc of spool.read()) {
    signal.throwIfAborted()
    if (!(await storeLocalDoc(here, doc, wasUsed))) kept += 1
    stored += 1
    if (stored % 100 === 0) onProgress(stored, spool.count)
  }
  return kept
}

/** @returns false if another document was kept */
async function storeLocalDoc(
  here: DatabaseHandle,
  { id, text }: LocalDoc,
  isKept: boolean,
): Promise<boolean> {
  const existing = await here.open(SYSTEM_USER, id, {}).catch((error: unknown) => {
    if (error instanceof CouchError && error.status === 404) return null
    throw error
  })
  const stored = existing === null ? null : decodeSendable(existing.json)
  if (stored !== null && isSame(stored, text)) return true
  if (stored !== null && isKept) return false
  // Behind the id, which comes first.
  const rev = /"_rev":"(0-\d+)"/.exec(stored?.slice(0, MAX_HEAD) ?? '')?.[1]
  await here.put(SYSTEM_USER, id, { bytes: Buffer.from(text) }, rev === undefined ? {} : { rev })
  return true
}

/** The most characters of an id and a revision. */
const MAX_HEAD = 64 * 1024
/** Larger documents are written again, since comparing them would hold the thread for long. */
const MAX_COMPARED = 256 * 1024

function isSame(stored: string, text: string): boolean {
  if (stored.length > MAX_COMPARED || text.length > MAX_COMPARED) return false
  const { _rev, ...content } = JSON.parse(stored) as Record<string, unknown>
  return isDeepStrictEqual(content, JSON.parse(text))
}
