/** The key of the credentials in `_replicator`, which this server has made for itself. */
import type { Databases } from '../threads/databases.ts'
import { newSealingKey } from './requests/sealed-credentials.ts'

const RECORD = { kind: 'replication', key: 'sealing key' }

/**
 * Reads the key, or makes it. It is in server.sqlite, apart from the databases, so the file of a database alone opens
 * no credentials.
 * @throws as the catalog
 */
export async function openSealingKey(
  records: Pick<Databases, 'readRecords' | 'writeRecords'>,
): Promise<string> {
  const found = (await records.readRecords(RECORD.kind)).find(({ key }) => key === RECORD.key)
  if (found !== undefined) return found.value
  const value = newSealingKey()
  await records.writeRecords([{ ...RECORD, value }])
  return value
}
