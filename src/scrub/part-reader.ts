/** Reads a damaged part as a client does. */
import { SYSTEM_USER } from '../core/types.ts'
import type { DamagedPart } from '../storage/damage.ts'
import type { DatabaseHandle } from '../threads/databases.ts'

/**
 * Reads what a check has found damaged.
 * @throws damaged_document, and the errors of the documents' methods
 */
export async function readPart(
  database: Pick<DatabaseHandle, 'open' | 'openAttachment' | 'readAttachment'>,
  id: string,
  part: DamagedPart,
): Promise<void> {
  const rev = 'rev' in part && part.rev !== null ? { rev: part.rev } : {}
  if (part.kind !== 'attachment' || part.name === null) {
    await database.open(SYSTEM_USER, id, { ...rev, revs: true })
    return
  }
  const found = await database.openAttachment(SYSTEM_USER, id, part.name, rev.rev)
  for await (const _ of database.readAttachment(found, 0, found.storedLength));
}
