/** What the tables about lists share: their database, and their rows. */

import type { Answer } from './answers.ts'
import { DELETED, of } from './histories.ts'
import { stored } from './table.ts'

export const live = (id: string, rev: string | RegExp = '1-a', more = {}) => ({
  id,
  key: id,
  value: { rev },
  ...more,
})
export const gone = (id: string, rev: string) => ({ id, key: id, value: { rev, deleted: true } })
export const unknown = (key: unknown) => ({ key, error: 'not_found' })

/** Four documents, and a fifth that is deleted. */
export const ABCD = stored(...['a', 'b', 'c', 'd'].map((id) => of(id, '1-a')), of('bb', '1-a', DELETED))
export const ALL = 'GET /{db}/_all_docs'

/** The rows of `ABCD` that come, and how many stand before them. */
export function rows(ids: string, offset: number | null): Answer {
  const listed = [...ids].map((id) => live(id))
  return { json: { total_rows: 4, offset, rows: listed } }
}
