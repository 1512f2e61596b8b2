/** Reads documents by their ids, and in pages: by their ids, by their places in the feed, and those with several leaves. */
import { CouchError } from '../../core/errors.ts'
import type { ForkedPage, IdRange, Page, StoreView } from '../engine.ts'
import type { HistoryPaging, HistoryReadSet } from '../history-store.ts'
import type { DocReadSet } from '../read-set.ts'
import type { Called, DocumentLoader, Loaded } from './document-loader.ts'
import type { Source } from './document-statements.ts'
import { after, idCondition } from './id-conditions.ts'
import type { LoadedDocument } from './loaded-document.ts'
import { MAX_STRETCH, type RangeTotals } from './range-totals.ts'
import { TurnReads } from './turn-reads.ts'

/** Documents that are read by id at once, if there is a bound for their bodies. */
const BOUNDED_IDS = 1000
/** The maximum number of rows of a page, whatever its limit. */
const MAX_ROWS = 10_000
/** With so many deleted documents, a page of live ones is read in stretches. */
const MANY_DELETED = 10_000

const GENERATIONS = { winner: '0', leaf: '0' }

export class DocumentPages {
  readonly #loader: DocumentLoader
  readonly #totals: RangeTotals
  readonly #turn: TurnReads
  /** How many documents were deleted when it was last read. */
  #deletedCount = Number.POSITIVE_INFINITY

  constructor(loader: DocumentLoader, totals: RangeTotals) {
    this.#loader = loader
    this.#totals = totals
    this.#turn = new TurnReads((requests, options) => loader.load(requests, options))
  }

  /** As {@link DatabaseStore.readDocs}. */
  async readDocs<R>(
    ids: readonly string[],
    read: (doc: LoadedDocument | null, id: string, view: StoreView, place: number) => R,
    readSet?: ReadSetById,
    chars?: number,
  ): Promise<R[]> {
    if (ids.length === 0) return []
    const asked = chars === undefined ? ids : ids.slice(0, BOUNDED_IDS)
    return this.#loader.loadAndCall(
      () => this.#load(asked, readSet, chars),
      async ({ docs }, view, callEach) => {
        const byId = new Map(docs.map((doc) => [doc.id, doc]))
        const placed = asked.map((id) => byId.get(id) ?? null)
        const outcomes = await callEach(
          placed,
          (doc, place) => read(doc, asked[place] as string, view, place),
          chars,
        )
        return outcomes.map(resultOf)
      },
    )
  }

  #load(ids: readonly string[], readSet?: ReadSetById, chars?: number): Promise<Loaded> {
    const [only] = ids
    if (only !== undefined && ids.length === 1 && readSet?.of === undefined)
      return this.#turn.read(only, readSet)
    const requests = ids.map((id, place) => ({ id, readSet: readSetAt(readSet, place) }))
    return this.#loader.load(requests, { bytes: chars === undefined ? undefined : Math.max(chars, 1) })
  }

  /** As {@link DatabaseStore.readRange}. @param withDeleted whether deleted documents are included */
  async readRange<R>(
    range: IdRange,
    paging: HistoryPaging,
    read: (doc: LoadedDocument, view: StoreView) => R,
    withDeleted = false,
  ): Promise<Page<R>> {
    if (withDeleted || this.#deletedCount < MANY_DELETED)
      return this.#readIds(range, paging, read, withDeleted)
    return this.#readSparse(range, paging, read)
  }

  /** Reads a page of a range in stretches, which grow until one has as many live documents as the page may have. */
  async #readSparse<R>(
    range: IdRange,
    paging: HistoryPaging,
    read: (doc: LoadedDocument, view: StoreView) => R,
  ): Promise<Page<R>> {
    let size = Math.min(MAX_STRETCH, 4 * paging.limit + 100)
    for (let rest = range; ; ) {
      const stretch = await this.#totals.stretchOf(rest, size)
      const page = await this.#readIds(stretch, paging, read, false)
      if (page.more || stretch === rest) return page
      const next = after(range, stretch.end?.id as string)
      const isShort = page.rows.length < paging.limit && size < MAX_STRETCH
      if (!isShort && (page.rows.length > 0 || paging.limit === 0)) {
        return { ...page, more: await this.#totals.hasLive(next) }
      }
      if (page.rows.length === 0) rest = next
      size = Math.min(MAX_STRETCH, 4 * size)
    }
  }

  #readIds<R>(
    range: IdRange,
    paging: HistoryPaging,
    read: (doc: LoadedDocument, view: StoreView) => R,
    withDeleted: boolean,
  ): Promise<Page<R>> {
    const { name, where, order, values } = idCondition(range)
    const live = withDeleted ? '' : ' AND NOT x.deleted'
    return this.#read(
      { name: `${withDeleted ? 'all' : 'live'}${name}`, where: `${where}${live}`, order },
      { values, paging },
      read,
    )
  }

  /** As {@link DatabaseStore.readChanges}. */
  readChanges<R>(
    { since, before = Number.MAX_SAFE_INTEGER, descending = false }: FeedRange,
    paging: HistoryPaging,
    read: (doc: LoadedDocument, view: StoreView) => R,
  ): Promise<Page<R>> {
    const order = descending ? 'x.seq DESC' : 'x.seq'
    const where = 'x.db = {db} AND x.seq > {since} AND x.seq < {before}'
    const name = descending ? 'feeddown' : 'feedup'
    return this.#read({ name, where, order }, { values: { since, before }, paging }, read)
  }

  /**
   * As {@link DatabaseStore.readForked}. The index has these documents alone, in the order of their first sequence numbers. How
   * many documents lie between them is estimated from those numbers; over all pages the sum is right.
   */
  async readForked<R>(
    from: number,
    paging: HistoryPaging,
    read: (doc: LoadedDocument, view: StoreView) => R,
  ): Promise<ForkedPage<R>> {
    const where = 'x.db = {db} AND x.leaves > 1 AND x.first_seq > {since}'
    const page = await this.#read(
      { name: 'forked', where, order: 'x.first_seq' },
      { values: { since: from }, paging },
      (doc, view) => ({ row: read(doc, view), place: doc.firstSeq }),
    )
    const { docCount, deletedCount, updateSeq } = page.view
    const upTo = (seq: number) =>
      updateSeq === 0 ? 0 : Math.floor((docCount + deletedCount) * Math.min(1, seq / updateSeq))
    const last = page.more ? (page.rows.at(-1)?.place ?? from) : null
    return {
      rows: page.rows.map(({ row }) => row),
      view: page.view,
      next: last,
      searched: upTo(last ?? updateSeq) - upTo(from),
    }
  }

  async #read<R>(
    { name, where, order }: { readonly name: string; readonly where: string; readonly order: string },
    {
      values,
      paging,
    }: { readonly values: Readonly<Record<string, unknown>>; readonly paging: HistoryPaging },
    read: (doc: LoadedDocument, view: StoreView) => R,
  ): Promise<Page<R>> {
    const { readSet, chars } = paging
    const isBounded = chars !== undefined && isHeavy(readSet)
    const source: Source = {
      name: `${name}${isBounded ? '_bytes' : ''}`,
      from: 'doc x',
      where,
      page: { order, bound: isBounded ? 'bytes' : 'rows' },
      generations: GENERATIONS,
    }
    const readPage = (limit: number, bytes: number) =>
      this.#loader.loadAndCall(
        () => this.#loader.loadPage(source, readSet, { ...values, limit: Math.max(limit, 1), bytes }),
        async ({ docs, more }, view, callEach): Promise<Page<R>> => {
          this.#deletedCount = view.deletedCount
          const some = docs.slice(0, limit)
          const sound = some.filter(({ isDamaged }) => !isDamaged)
          const outcomes = await callEach(sound, (doc) => read(doc as LoadedDocument, view), chars)
          const rows = outcomes.map(resultOf)
          const isCut = rows.length < sound.length
          const last = isCut ? some.indexOf(sound[rows.length] as LoadedDocument) : some.length
          const page = { rows, more: isCut || some.length < docs.length || more === true, view }
          return last === rows.length ? page : { ...page, damaged: last - rows.length }
        },
      )
    let limit = Math.min(paging.limit, MAX_ROWS)
    let bytes = Math.max(chars ?? 0, 1)
    for (;;) {
      const page = await readPage(limit, bytes)
      if (page.rows.length > 0 || !page.more || limit === 0) return page
      // Damaged rows alone, from whose places the next page could not begin.
      if (limit === MAX_ROWS) throw new CouchError('damaged_file')
      limit = Math.min(2 * limit, MAX_ROWS)
      bytes *= 2
    }
  }
}

export interface FeedRange {
  readonly since: number
  readonly before?: number
  readonly descending?: boolean
}

type ReadSetById = HistoryReadSet & Pick<DocReadSet, 'of'>

function readSetAt(readSet: ReadSetById | undefined, place: number): HistoryReadSet | undefined {
  return readSet?.of === undefined ? readSet : { ...readSet, ...readSet.of(place) }
}

/** Whether more than the rows of documents is read, so that a page is bounded by its bytes. */
function isHeavy({ body, bodies, branches, ancestry }: HistoryReadSet = {}): boolean {
  return Boolean(body || bodies || branches || ancestry)
}

/** @throws the error of the callback */
function resultOf<R>(outcome: Called<R>): R {
  if ('error' in outcome) throw outcome.error
  return outcome.result
}
