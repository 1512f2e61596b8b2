/** Contents of attachments as they are stored in PostgreSQL. */
import { agrees } from '../checksum.ts'
import type { Connections } from './connections.ts'
import { type BlobFacts, blobSum, chunkSum, ofBlob } from './row-checksums.ts'

/** The chunks of a complete content. One row without a chunk: it has none of these. */
const READ = {
  name: 'read_chunks',
  text: `SELECT b.sha256, b.digest, b.length, b.checksum, c.position, c.data, c.checksum
    FROM blob b LEFT JOIN chunk c ON c.db = $1 AND c.blob = $2 AND c.position >= $3 AND c.position < $4
    WHERE b.db = $1 AND b.blob = $2 AND b.sha256 IS NOT NULL ORDER BY c.position`,
}
type ChunkRow = readonly [
  ...blob: readonly [sha256: Buffer, digest: string, length: number, checksum: number | null],
  ...chunk: readonly [position: number | null, data: Buffer, checksum: number | null],
]

/** A part of a content. */
export interface StoredChunks extends BlobFacts {
  /** Whether these facts are what was written. */
  readonly isSound: boolean
  /** As many as were asked for; null for one that is missing or is not what was written. */
  readonly chunks: readonly (Buffer | null)[]
}

/**
 * @param first the position of the first of them
 * @returns null if there is no such content
 * @throws as `Connections.read`
 */
export async function readChunks(
  { connections, db }: { readonly connections: Pick<Connections, 'read'>; readonly db: number },
  blob: number,
  first: number,
  count: number,
): Promise<StoredChunks | null> {
  const rows = await connections.read<ChunkRow>({ ...READ, values: [db, blob, first, first + count] })
  const [row] = rows
  if (row === undefined) return null
  const [sha256, digest, length, checksum] = row
  const chunks: (Buffer | null)[] = Array.from({ length: Math.max(count, 0) }, () => null)
  for (const [, , , , position, data, sum] of rows) {
    if (position === null || !agrees(sum, ofBlob(chunkSum(position, data), blob), true)) continue
    chunks[position - first] = data
  }
  const facts = { sha256, digest, length }
  return { ...facts, isSound: agrees(checksum, ofBlob(blobSum(facts), blob), true), chunks }
}
