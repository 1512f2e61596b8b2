/** The rows of the views of a design document: its map functions, and the bytes of the keys that they emit. */
import { CouchError } from '../core/errors.ts'
import { Yielder } from '../core/event-loop.ts'
import { splitId } from '../core/partitions.ts'
import type { Sandbox, UserFunction } from '../sandbox/messages.ts'
import type { IndexEntry } from '../storage/index-store.ts'
import { compareRaw } from './collation.ts'
import type { IndexableDoc, RowSource } from './index-updater.ts'
import { encodeKey, type KeyOrder, partitionPrefix } from './sort-keys.ts'

/** Rows whose keys are encoded between two checks of the clock. */
const STEP = 64

export interface ViewDefinition {
  readonly name: string
  readonly order: KeyOrder
}

/** A document without rows in a view, because the view's function or one of its keys failed. */
export interface SkippedDocument {
  readonly view: string
  readonly id: string
  readonly reason: string
}

interface ViewRowsOptions {
  readonly sandbox: Sandbox
  /** All map functions of the design document, whose path is `['views']`. */
  readonly maps: UserFunction
  /** In the order of the members of `views`. */
  readonly views: readonly ViewDefinition[]
  readonly includeDesign: boolean
  readonly localSeq: boolean
  /** Whether the rows are in the order of their partitions. Then no design document has rows. */
  readonly partitioned: boolean
  readonly onSkipped: (skipped: SkippedDocument) => void
}

/** The rows that the map functions of a design document emit. */
export function viewRows(options: ViewRowsOptions): RowSource {
  const { sandbox, maps, views, localSeq, partitioned, onSkipped } = options
  const includeDesign = options.includeDesign && !partitioned
  return {
    indexes: views.length,
    includeDesign,
    localSeq,
    async rowsOf(docs: readonly IndexableDoc[]): Promise<IndexEntry[][][]> {
      const results = await sandbox.mapViews(
        maps,
        docs.map(({ text }) => text),
      )
      const rows: IndexEntry[][][] = []
      const yielder = new Yielder()
      for (const [at, { id }] of docs.entries()) {
        await yielder.yieldIfDue()
        const emitted = JSON.parse(results[at] as string) as Emissions[]
        const prefix = partitioned ? partitionPrefix(splitId(id).partition) : null
        const lists: IndexEntry[][] = []
        for (const [index, { name, order }] of views.entries()) {
          const pairs = emitted[index] ?? []
          const encode = encoder(order, prefix)
          lists.push(typeof pairs === 'string' ? [] : await entriesOf(pairs, encode, yielder, skip(name)))
          if (typeof pairs === 'string') onSkipped({ view: name, id, reason: pairs })
        }
        rows.push(lists)
        function skip(view: string): (reason: string) => void {
          return (reason) => onSkipped({ view, id, reason })
        }
      }
      return rows
    },
    skip(id, reason) {
      for (const { name } of views) onSkipped({ view: name, id, reason })
    },
  }
}

type Emitted = readonly [key: unknown, value: unknown]

/** What a function has emitted for a document, or why it has failed. */
type Emissions = readonly Emitted[] | string

interface Sortable {
  readonly entry: IndexEntry
  readonly emitted: Emitted
}

/** @param prefix of all keys; null without one */
function encoder(order: KeyOrder, prefix: Uint8Array | null): (key: unknown) => Uint8Array {
  if (prefix === null) return (key) => encodeKey(key, order)
  return (key) => Buffer.concat([prefix, encodeKey(key, order)])
}

/** @returns the rows sorted by key; none if a key is too long */
async function entriesOf(
  pairs: readonly Emitted[],
  encode: (key: unknown) => Uint8Array,
  yielder: Yielder,
  onSkipped: (reason: string) => void,
): Promise<IndexEntry[]> {
  const rows: Sortable[] = []
  for (const [at, emitted] of pairs.entries()) {
    if (at % STEP === STEP - 1) await yielder.yieldIfDue()
    const [key, value] = emitted
    try {
      const entry = {
        key: encode(key),
        keyText: JSON.stringify(key),
        valueText: JSON.stringify(value),
      }
      rows.push({ entry, emitted })
    } catch (error) {
      if (!(error instanceof CouchError)) throw error
      onSkipped(error.message)
      return []
    }
  }
  return rows.sort(compareRows).map(({ entry }) => entry)
}

/**
 * Rows with equal keys stand in the order of couch_mrview_updater: Erlang's order of terms, first of the keys, which may
 * differ and still be equal in the collation, then of the values.
 */
function compareRows(a: Sortable, b: Sortable): number {
  return (
    Buffer.compare(a.entry.key, b.entry.key) ||
    compareRaw(a.emitted[0], b.emitted[0]) ||
    compareRaw(a.emitted[1], b.emitted[1])
  )
}
