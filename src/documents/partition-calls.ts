/** The calls about partitions, and reading in a partitioned database; protocol.md 4.10. */
import { CouchError } from '../core/errors.ts'
import { checkPartition, checkSoughtId } from '../core/partitions.ts'
import type { UserCtx } from '../core/types.ts'
import type { DatabaseStore } from '../storage/engine.ts'
import { partitionRange } from './all-docs-query.ts'
import type { Database, DocumentReader, PartitionInfo } from './database.ts'
import { requireMember } from './security.ts'

/** @param store the database's documents */
export function partitionCalls(store: DatabaseStore): Pick<Database, 'partitionInfo' | 'checkPartition'> {
  return {
    partitionInfo: async (user, partition) => {
      requireMember(user, (await store.view()).security)
      checkPartition(partition)
      requirePartitioned(store)
      return partitionInfo(store, user, partition)
    },
    checkPartition: async (user, partition) => {
      requireMember(user, (await store.view()).security)
      requirePartitioned(store)
      checkPartition(partition)
    },
  }
}

function requirePartitioned({ partitioned }: DatabaseStore): void {
  if (!partitioned) throw new CouchError('bad_request', 'database is not partitioned')
}

async function partitionInfo(store: DatabaseStore, user: UserCtx, partition: string): Promise<PartitionInfo> {
  const { docCount, deletedCount, active, external } = await store.measureRange(partitionRange(partition))
  const { name, security } = await store.info()
  requireMember(user, security)
  return {
    db_name: name,
    sizes: { active, external },
    partition,
    doc_count: docCount,
    doc_del_count: deletedCount,
  }
}

/** Reads single documents. In a partitioned database, an id without a partition is refused, as in CouchDB. */
export function documentReader(store: DocumentReader): DocumentReader {
  if (!store.partitioned) return store
  return {
    partitioned: true,
    view: () => store.view(),
    readDocs: async (ids, read, readSet, chars) => {
      for (const id of ids) checkSoughtId(id)
      return store.readDocs(ids, read, readSet, chars)
    },
    readLocals: (ids) => store.readLocals(ids),
    readBlob: (blob, offset, length) => store.readBlob(blob, offset, length),
    referenceBlob: (blob) => store.referenceBlob(blob),
  }
}
