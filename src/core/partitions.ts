/**
 * The rules of partitioned databases (couch_partition): the id of each document, except design and local documents, is
 * the name of its partition, a colon, and a name that is a legal id itself.
 */
import { CouchError } from './errors.ts'

/**
 * Checks the name of a partition.
 * @throws illegal_partition
 */
export function checkPartition(name: unknown): string {
  if (typeof name !== 'string') throw new CouchError('illegal_partition')
  if (name === '') throw new CouchError('illegal_partition', 'Partition must not be empty')
  if (name.startsWith('_')) {
    throw new CouchError('illegal_partition', 'Partition must not start with an underscore')
  }
  if (!name.isWellFormed()) throw new CouchError('illegal_partition', 'Partition must be valid UTF-8')
  if (name.includes(':')) throw new CouchError('illegal_partition', 'Partition must not contain a colon')
  return name
}

/** The partition of an id, and the rest of the id. @throws illegal_docid for an id without a colon */
export function splitId(id: string): { readonly partition: string; readonly rest: string } {
  const colon = id.indexOf(':')
  if (colon === -1) throw new CouchError('illegal_docid', 'Doc id must be of form partition:id')
  return { partition: id.slice(0, colon), rest: id.slice(colon + 1) }
}

/**
 * Checks an id by which somebody looks for a document in a partitioned database. As in CouchDB, a partition and a rest
 * that no document could have are just not found.
 * @throws illegal_docid
 */
export function checkSoughtId(id: string): void {
  if (!id.startsWith('_')) splitId(id)
}

/** The ids of a partition, from the first on and up to the last, which is none of them. */
export function partitionIds(partition: string): { readonly first: string; readonly last: string } {
  return { first: `${partition}:`, last: `${partition};` }
}
