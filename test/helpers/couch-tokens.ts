/** Sequence tokens as CouchDB makes them. */
import { deflateSync } from 'node:zlib'
import { atom, binary, integer, list, tuple } from '../../src/replication/erlang-term.ts'

interface TokenOptions {
  readonly isCompressed?: boolean
  /** Bytes of a term that no token has. */
  readonly padding?: number
  /** The size of the term as the token states it, in bytes. */
  readonly statedBytes?: number
}

const NODE = 'couchdb@127.0.0.1'

/**
 * @param counts the updates of each shard
 * @param files the uuids of the shards' files
 */
export function couchToken(
  counts: readonly number[],
  files: readonly string[] = counts.map((_, shard) => `file${shard}`),
  { isCompressed = true, padding = 0, statedBytes }: TokenOptions = {},
): string {
  const width = Math.floor(2 ** 32 / counts.length)
  const elements = counts.map((count, shard) => {
    const range = [shard * width, (shard + 1) * width - 1].map((end) => integer(end))
    const seq = tuple(integer(count), binary(files[shard] as string), atom(NODE))
    return tuple(atom(NODE), list(range), seq)
  })
  if (padding > 0) elements.push(binary(' '.repeat(padding)))
  const term = list(elements)
  const size = Buffer.alloc(4)
  size.writeUInt32BE(statedBytes ?? term.length)
  const bytes = isCompressed
    ? Buffer.concat([Buffer.from([131, 80]), size, deflateSync(term)])
    : Buffer.concat([Buffer.from([131]), term])
  const total = counts.reduce((sum, count) => sum + count, 0)
  return `${total}-${bytes.toString('base64url')}`
}
