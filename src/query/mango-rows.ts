/** The rows of json indexes in their stores: the keys of documents, and the ranges that queries read. */
import { CouchError } from '../core/errors.ts'
import { Yielder } from '../core/event-loop.ts'
import { splitId } from '../core/partitions.ts'
import { type IndexEntry, type IndexStore, idOfRow, keyAfter, keyBefore } from '../storage/index-store.ts'
import { type DesignIndexes, signatureOf } from './design-indexes.ts'
import type { IndexRange, IndexRow, OpenIndex } from './index-scan.ts'
import type { RowSource } from './index-updater.ts'
import { columnsOf, type IndexKey, indexKeys, type MangoIndex } from './mango-index.ts'
import { arrayPrefix, encodeKey, partitionPrefix } from './sort-keys.ts'
import type { SkippedDocument } from './view-map.ts'
import { rowAfter } from './view-rows.ts'

type OnSkipped = (ddoc: string, skipped: SkippedDocument) => void

/** Identifies the rows of an index. Indexes of equal definitions share them, whatever their names are. */
export function signatureOfIndex(index: MangoIndex): string {
  return signatureOf(['query', columnsOf(index), index.partialFilter, index.partitioned])
}

/** Opens the json indexes of a database. */
export function openMangoIndexes(indexes: DesignIndexes, onSkipped: OnSkipped): OpenIndex {
  return async (index, isCurrent) => {
    const signature = signatureOfIndex(index)
    const updater = indexes.use(signature, () => fieldRows(index, onSkipped))
    if (isCurrent) await indexes.update(signature, updater)
    return { rows: (range, most) => pagesOf(updater.index, range, most) }
  }
}

/** @throws the errors of `compileSelector` for a filter that is not valid */
function fieldRows(index: MangoIndex, onSkipped: OnSkipped): RowSource {
  const keyOf = indexKeys(index)
  const skip = (id: string, reason: string) => onSkipped(index.ddoc, { view: index.name, id, reason })
  return {
    indexes: 1,
    includeDesign: false,
    localSeq: false,
    async rowsOf(docs) {
      const rows: IndexEntry[][][] = []
      const yielder = new Yielder()
      for (const { id, text } of docs) {
        await yielder.yieldIfDue()
        const prefix = prefixOf(index.partitioned ? splitId(id).partition : '')
        rows.push([entriesOf(keyOf(id, text), prefix, (reason) => skip(id, reason))])
      }
      return rows
    },
    skip,
  }
}

const NO_PREFIX = new Uint8Array(0)

/** @param partition empty for an index without partitions */
function prefixOf(partition: string): Uint8Array {
  return partition === '' ? NO_PREFIX : partitionPrefix(partition)
}

function entriesOf(
  found: IndexKey | null,
  prefix: Uint8Array,
  onSkipped: (reason: string) => void,
): IndexEntry[] {
  if (found === null) return []
  try {
    const key = Buffer.concat([prefix, encodeKey(found.values, 'json')])
    return [{ key, keyText: found.text, valueText: 'null' }]
  } catch (error) {
    if (!(error instanceof CouchError)) throw error
    onSkipped(error.message)
    return []
  }
}

async function* pagesOf(
  store: IndexStore,
  { partition, low, high, descending, after }: IndexRange,
  most: number,
): AsyncGenerator<readonly IndexRow[]> {
  const yielder = new Yielder()
  const prefix = prefixOf(partition)
  const within = (key: Uint8Array) => Buffer.concat([prefix, key])
  let from: Uint8Array = within(encodeKey(low, 'json'))
  let to: Uint8Array = keyAfter(within(arrayPrefix(high, 'json')))
  if (after !== null) {
    const key = within(encodeKey(JSON.parse(after.key ?? 'null'), 'json'))
    if (descending) to = keyBefore(key, after.id)
    else from = keyAfter(key, after.id)
  }
  for (;;) {
    const { rows, more } = await store.read(0, { from, to, descending }, most)
    const last = rows.at(-1)
    if (last === undefined) return
    yield rows.map((row) => ({ id: idOfRow(row), key: row.keyText }))
    if (!more) return
    if (descending) to = last.rowKey
    else from = rowAfter(last)
    await yielder.yieldIfDue()
  }
}
