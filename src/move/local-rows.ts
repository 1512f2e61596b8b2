/** Rows of a local database's feed, for comparisons with another server. */

import { type ChangesOptions, PLAIN_CHANGES } from '../changes/rows.ts'
import { SYSTEM_USER } from '../core/types.ts'
import type { DatabaseHandle } from '../threads/databases.ts'

export interface LocalRow {
  readonly id: string
  /** The document's number in the local feed. */
  readonly seq: number
  /** The winner first. */
  readonly leaves: readonly string[]
  readonly isDeleted: boolean
}

const OPTIONS: ChangesOptions = { ...PLAIN_CHANGES, style: 'all_docs', framing: 'json' }

/** The rows of some documents; those that do not exist have none. */
export async function localRowsOf(
  handle: DatabaseHandle,
  ids: readonly string[],
): Promise<ReadonlyMap<string, LocalRow>> {
  const rows = new Map<string, LocalRow>()
  for await (const page of localPages(handle, { ...OPTIONS, docIds: ids })) {
    for (const row of page) rows.set(row.id, row)
  }
  return rows
}

/** All rows, in pages. */
export async function* localPages(
  handle: DatabaseHandle,
  options: ChangesOptions = OPTIONS,
): AsyncGenerator<readonly LocalRow[]> {
  for (let since = 0; ; ) {
    const limit = Number.POSITIVE_INFINITY
    const page = await handle.changes(SYSTEM_USER, { options, since, limit })
    if (page.rows > 0) yield rowsIn(page.bytes)
    if (page.atTip) return
    since = page.lastSeq
  }
}

function rowsIn(bytes: Uint8Array): LocalRow[] {
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString()
  const rows = JSON.parse(`[${text}]`) as {
    readonly seq: string
    readonly id: string
    readonly changes: readonly { readonly rev: string }[]
    readonly deleted?: boolean
  }[]
  return rows.map(({ seq, id, changes, deleted }) => ({
    id,
    seq: Number.parseInt(seq, 10),
    leaves: changes.map(({ rev }) => rev),
    isDeleted: deleted === true,
  }))
}
