/** Everything that reads documents of one database: the members of DatabaseStore and its history (history-store.ts). */
import { CouchError } from '../../core/errors.ts'
import type { DocState, ForkedPage, IdRange, Page, Paging, RangeSizes, StoreView } from '../engine.ts'
import type { DocHistory, HistoryStore, HistoryTouches, StoreHorizon } from '../history-store.ts'
import type { DocTouches } from '../touches.ts'
import { DocumentLoader } from './document-loader.ts'
import { DocumentPages, type FeedRange, resultOf } from './document-pages.ts'
import type { LoadedDocument } from './loaded-document.ts'
import type { OpenDatabase } from './open-database.ts'
import { RangeTotals } from './range-totals.ts'

/** Documents that are read by id at once, if there is a bound for their bodies. */
const BOUNDED_IDS = 1000
/** Numbers of the feed that are counted together: the table `feed_count`. */
const STRETCH = 1024

/** The rows of the feed above $2: those up to the end of its stretch, $3, and those of all later stretches. */
const COUNT_CHANGES = {
  name: 'count_changes',
  text:
    'SELECT (SELECT count(*) FROM doc x WHERE x.db = $1 AND x.seq > $2 AND x.seq < $3), ' +
    '(SELECT coalesce(sum(c.rows), 0)::bigint FROM feed_count c WHERE c.db = $1 AND c.stretch >= $4)',
}

/**
 * A content of a revision may stand for several attachments of it. Their revisions are found by it, and their attachments
 * counted.
 */
const COUNT_ATTACHMENTS = {
  name: 'count_attachments',
  text:
    'SELECT coalesce(sum((SELECT json_array_length(coalesce(' +
    '(SELECT x.attachments FROM doc x WHERE x.db = $1 AND x.id = u.id AND x.rev = u.rev), ' +
    "(SELECT r.attachments FROM revision r WHERE r.db = $1 AND r.id = u.id AND r.rev = u.rev), '[]')::json))), 0)::bigint " +
    'FROM (SELECT DISTINCT b.id, b.rev FROM (SELECT b.id, b.rev FROM blob_use b WHERE b.db = $1 LIMIT $2) b) u',
}

const HORIZON = {
  name: 'horizon',
  text: 'SELECT d.history_since, d.created_at FROM database d WHERE d.db = $1',
}

export class DocumentReads {
  readonly history: HistoryStore
  readonly #database: OpenDatabase
  readonly #refuseIfClosed: () => void
  readonly #loader: DocumentLoader
  readonly #totals: RangeTotals
  readonly #pages: DocumentPages

  /** @param refuseIfClosed throws once the store is closed or its database gone */
  constructor(database: OpenDatabase, refuseIfClosed: () => void) {
    this.#database = database
    this.#refuseIfClosed = refuseIfClosed
    this.#loader = new DocumentLoader(database)
    this.#totals = new RangeTotals(database)
    this.#pages = new DocumentPages(this.#loader, this.#totals)
    this.history = new DocumentHistories(database, refuseIfClosed)
  }

  async readDocs<R>(
    ids: readonly string[],
    read: (doc: DocState | null, id: string, view: StoreView, place: number) => R,
    touches?: DocTouches,
    chars?: number,
  ): Promise<R[]> {
    this.#refuseIfClosed()
    return readById(this.#loader, ids, read, { touches, chars })
  }

  async readRange<R>(
    range: IdRange,
    paging: Paging,
    read: (doc: DocState, view: StoreView) => R,
  ): Promise<Page<R>> {
    this.#refuseIfClosed()
    return this.#pages.readRange(range, paging, read)
  }

  async countRange(range: IdRange): Promise<number> {
    this.#refuseIfClosed()
    return this.#totals.count(range)
  }

  async skipRange(range: IdRange, documents: number): Promise<IdRange | null> {
    this.#refuseIfClosed()
    return this.#totals.skip(range, documents)
  }

  async measureRange(range: IdRange): Promise<RangeSizes> {
    this.#refuseIfClosed()
    return this.#totals.measure(range)
  }

  async readChanges<R>(
    range: FeedRange,
    paging: Paging,
    read: (doc: DocState, view: StoreView) => R,
  ): Promise<Page<R>> {
    this.#refuseIfClosed()
    return this.#pages.readChanges(range, paging, read)
  }

  async readForked<R>(
    after: number,
    paging: Paging,
    read: (doc: DocState, view: StoreView) => R,
  ): Promise<ForkedPage<R>> {
    this.#refuseIfClosed()
    return this.#pages.readForked(after, paging, read)
  }

  async countChanges(seq: number): Promise<number> {
    this.#refuseIfClosed()
    const next = Math.floor(seq / STRETCH) + 1
    const values = [this.#database.db, seq, next * STRETCH, next]
    const [row] = await this.#database.connections.read<[number, number]>({ ...COUNT_CHANGES, values })
    const [first, later] = row as [number, number]
    return first + later
  }

  async countAttachments(most: number): Promise<number> {
    this.#refuseIfClosed()
    const values = [this.#database.db, most]
    const [row] = await this.#database.connections.read<[number]>({ ...COUNT_ATTACHMENTS, values })
    return Math.min(most, row?.[0] ?? 0)
  }
}

/** Documents with their earlier versions. */
class DocumentHistories implements HistoryStore {
  readonly #database: OpenDatabase
  readonly #refuseIfClosed: () => void
  readonly #loader: DocumentLoader
  readonly #pages: DocumentPages

  constructor(database: OpenDatabase, refuseIfClosed: () => void) {
    this.#database = database
    this.#refuseIfClosed = refuseIfClosed
    this.#loader = new DocumentLoader(database, true)
    this.#pages = new DocumentPages(this.#loader, new RangeTotals(database))
  }

  /** All versions have times. */
  async horizon(): Promise<StoreHorizon> {
    this.#refuseIfClosed()
    const values = [this.#database.db]
    const [row] = await this.#database.connections.read<[number, number]>({ ...HORIZON, values })
    if (row === undefined) throw new CouchError('no_database')
    const [whole, createdAt] = row
    return { whole, timed: 0, begun: createdAt * 1000 }
  }

  async readDocs<R>(
    ids: readonly string[],
    read: (doc: DocHistory | null, id: string, view: StoreView) => R,
    touches?: HistoryTouches,
  ): Promise<R[]> {
    this.#refuseIfClosed()
    return readById(this.#loader, ids, read, { touches })
  }

  async readRange<R>(
    range: IdRange,
    paging: Paging & { readonly touches?: HistoryTouches },
    read: (doc: DocHistory, view: StoreView) => R,
  ): Promise<Page<R>> {
    this.#refuseIfClosed()
    return this.#pages.readRange(range, paging, read, true)
  }

  async readNewest<R>(
    before: number,
    paging: Paging & { readonly touches?: HistoryTouches },
    read: (doc: DocHistory, view: StoreView) => R,
  ): Promise<Page<R>> {
    this.#refuseIfClosed()
    return this.#pages.readChanges({ since: 0, before, descending: true }, paging, read)
  }
}

interface ByIdOptions {
  readonly touches: (HistoryTouches & Pick<DocTouches, 'of'>) | undefined
  readonly chars?: number | undefined
}

/** As {@link DatabaseStore.readDocs}. */
async function readById<R>(
  loader: DocumentLoader,
  ids: readonly string[],
  read: (doc: LoadedDocument | null, id: string, view: StoreView, place: number) => R,
  { touches, chars }: ByIdOptions,
): Promise<R[]> {
  if (ids.length === 0) return []
  const asked = chars === undefined ? ids : ids.slice(0, BOUNDED_IDS)
  const wanted = asked.map((id, place) => ({ id, touches: touchesAt(touches, place) }))
  return loader.settled(
    () => loader.load(wanted, { bytes: chars === undefined ? undefined : Math.max(chars, 1) }),
    async ({ docs }, view, lend) => {
      const byId = new Map(docs.map((doc) => [doc.id, doc]))
      const placed = asked.map((id) => byId.get(id) ?? null)
      const outcomes = await lend(
        placed,
        (doc, place) => read(doc, asked[place] as string, view, place),
        chars,
      )
      return outcomes.map(resultOf)
    },
  )
}

function touchesAt(touches: ByIdOptions['touches'], place: number): HistoryTouches | undefined {
  return touches?.of === undefined ? touches : { ...touches, ...touches.of(place) }
}
