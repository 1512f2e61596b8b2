/** Json indexes in memory, for tests of queries: each opening reads all documents. */
import { compareUtf8 } from '../../src/core/bytes.ts'
import { renderDocument } from '../../src/documents/render.ts'
import { compareJson } from '../../src/query/collation.ts'
import type { IndexRange, IndexRow, OpenIndex } from '../../src/query/index-scan.ts'
import { type IndexKey, indexKeys } from '../../src/query/mango-index.ts'
import type { DatabaseStore } from '../../src/storage/engine.ts'

type Row = IndexRow & Pick<IndexKey, 'values'>

/** @param pageRows the most rows of a page, beside what the query asks for */
export function memoryIndexes(store: DatabaseStore, pageRows = 100): OpenIndex {
  return async (index) => {
    const keyOf = indexKeys(index)
    const paging = { limit: 100_000, readSet: { body: true } }
    const page = await store.readRange({}, paging, (doc): Row | null => {
      const key = keyOf(doc.id, renderDocument(doc, doc.rev))
      return key && { id: doc.id, key: key.text, values: key.values }
    })
    const found = page.rows.filter((row) => row !== null).sort(order)
    return {
      rows: async function* (range, most) {
        const rows = rowsOf(found, range)
        const size = Math.min(most, pageRows)
        for (let at = 0; at < rows.length; at += size) yield rows.slice(at, at + size)
      },
    }
  }
}

function order(a: Pick<Row, 'id' | 'values'>, b: Pick<Row, 'id' | 'values'>): number {
  return compareJson(a.values, b.values) || compareUtf8(a.id, b.id)
}

function rowsOf(all: readonly Row[], { low, high, descending, after }: IndexRange): Row[] {
  const direction = descending ? -1 : 1
  const last = after === null ? null : { id: after.id, values: JSON.parse(after.key ?? 'null') as unknown[] }
  const rows = all.filter((row) => {
    const isInRange =
      compareJson(row.values, low) >= 0 && compareJson(row.values.slice(0, high.length), high) <= 0
    return isInRange && (last === null || order(row, last) * direction > 0)
  })
  return descending ? rows.reverse() : rows
}
