/** Removes blobs that no revision names and nobody holds, in short statements. */
import { lapsed } from '../blob-leases.ts'
import type { Statement } from './connections.ts'
import type { OpenDatabase } from './open-database.ts'

/** Chunks of a blob that one statement removes: 4 MB. */
const CHUNKS = 16
/** Bytes of blobs that one statement removes. */
const BYTES = 4 * 1024 * 1024
/** Blobs that one statement marks and removes. */
const BLOBS = 64
/** Blobs that one statement lists. */
const PAGE = 1000

const ABANDON = {
  name: 'abandon_blobs',
  text: 'SELECT abandon_blobs($1, $2::bigint[], $3, $4)',
}

const REMOVE = {
  name: 'remove_blobs',
  text: 'SELECT remove_blobs($1, $2::bigint[], $3, $4)',
}

const UNNAMED = {
  name: 'unnamed_blobs',
  text: `SELECT blob, CASE WHEN sha256 IS NOT NULL THEN length END FROM blob WHERE db = $1 AND blob > $2 AND NOT named ORDER BY blob LIMIT ${PAGE}`,
}

export interface RemovableBlob {
  readonly blob: number
  /** In bytes; absent if it is not known. */
  readonly length?: number
}

type Numbers = readonly [blobs: readonly number[]]

export class BlobRemoval {
  readonly #database: OpenDatabase

  constructor(database: OpenDatabase) {
    this.#database = database
  }

  /**
   * Removes those of some blobs that nobody holds and no revision names.
   * @param even whether blobs go that a revision has named before
   * @param pause awaited after each statement, which took so many ms; what it throws ends the removal
   * @throws as {@link Connections.write}; what remains is removed by a later call, or by {@link sweep}
   */
  async remove(
    blobs: readonly RemovableBlob[],
    even: 'named' | 'unnamed',
    pause: (worked: number) => Promise<void> = async () => undefined,
  ): Promise<void> {
    const { db, now } = this.#database
    const run = async (statement: Statement, values: readonly unknown[]) => {
      const began = performance.now()
      const [row] = await this.#database.connections.write<Numbers>({ ...statement, values: [db, ...values] })
      await pause(performance.now() - began)
      return row?.[0] ?? []
    }
    for (const group of groupsOf(blobs)) {
      let left = await run(ABANDON, [group, lapsed(now()), even === 'named'])
      for (let position = 0; left.length > 0; position += CHUNKS) {
        left = await run(REMOVE, [left, position, CHUNKS])
      }
    }
  }

  /**
   * Removes what ended uploads and interrupted removals have left.
   * @throws as {@link remove}
   */
  async sweep(pause?: (worked: number) => Promise<void>): Promise<void> {
    const { connections, db } = this.#database
    for (let last: number | undefined = 0; last !== undefined; ) {
      const rows: (readonly [number, number | null])[] = await connections.read({
        ...UNNAMED,
        values: [db, last],
      })
      const blobs = rows.map(([blob, length]) => ({ blob, ...(length !== null && { length }) }))
      await this.remove(blobs, 'unnamed', pause)
      last = rows.length < PAGE ? undefined : rows.at(-1)?.[0]
    }
  }
}

/** Blobs that are removed together. */
function groupsOf(blobs: readonly RemovableBlob[]): number[][] {
  const groups: number[][] = []
  let group: number[] = []
  let bytes = 0
  for (const { blob, length = BYTES } of blobs) {
    if (group.length >= BLOBS || (group.length > 0 && bytes + length > BYTES)) {
      groups.push(group)
      group = []
      bytes = 0
    }
    group.push(blob)
    bytes += length
  }
  return group.length === 0 ? groups : [...groups, group]
}
