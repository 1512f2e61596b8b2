/**
 * Keeps an index store up to date with its database, from the feed. Other nodes may do the same to the same store: an
 * updater that another one has overtaken goes on from where that one is, and waits while that one is in a long update.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { CouchError } from '../core/errors.ts'
import { hasForegroundWrite } from '../core/event-loop.ts'
import { isDesignId } from '../core/ids.ts'
import { renderDocument, unlessDamaged } from '../documents/render.ts'
import type { DatabaseStore, DocState, StoreProgress, StoreView } from '../storage/engine.ts'
import {
  type IndexBuild,
  type IndexEntry,
  type IndexedDoc,
  type IndexPosition,
  type IndexStatus,
  type IndexStep,
  type IndexStore,
  isPositionOf,
} from '../storage/index-store.ts'

/** The maximum number of documents, and of their characters, whose rows are made at once. */
const PAGE_DOCS = 250
const PAGE_CHARS = 1024 * 1024
/** Pages whose rows are being made: so many that two sandbox threads are busy while a page is read. */
const PAGES_AT_ONCE = 3
/** With more documents than this, the first rows are sorted in one go (storage/sqlite/index-build.ts). */
const MANY_DOCS = 3000
/** How often to look how far another node's long update is, in ms: the first time, and at most. */
const FIRST_LOOK_MS = 20
const LAST_LOOK_MS = 500

/** A live document, as the functions see it. */
export interface IndexableDoc {
  readonly id: string
  /** JSON. */
  readonly text: string
}

/** Makes the rows of documents. */
export interface RowSource {
  /** The number of indexes. */
  readonly indexes: number
  /** Whether design documents are also indexed. */
  readonly includeDesign: boolean
  /** Whether documents have `_local_seq`. */
  readonly localSeq: boolean
  /**
   * @returns the rows of each document for each index, sorted by key
   * @throws the errors of the sandbox
   */
  rowsOf(docs: readonly IndexableDoc[]): Promise<IndexEntry[][][]>
  /** Is told of a document that has no rows, since it is damaged. */
  skip(id: string, reason: string): void
}

/**
 * Runs a step that makes an index grow.
 * @param bytes about how many it adds on disk
 * @throws forbidden beyond the quota of the database's owner; as `step`
 */
export type Grow = <T>(bytes: number, step: () => Promise<T>) => Promise<T>

const growFreely: Grow = (_bytes, step) => step()

/** Documents from the feed, up to and including the update `end`. */
interface FeedPage {
  readonly docs: readonly { readonly id: string; readonly text: string | null }[]
  readonly end: number
  /** The newest update of the state that they were read from. */
  readonly seen: number
  readonly more: boolean
}

/** Updates of the database that are in an index already, of those that are to come in. */
export interface IndexProgress {
  readonly done: number
  readonly total: number
}

export class IndexUpdater {
  readonly #store: DatabaseStore
  readonly #index: IndexStore
  readonly #source: RowSource
  readonly #grow: Grow
  #running: Promise<void> | undefined
  #progress: IndexProgress | null = null
  #lastUse: number | null = null
  #isUnfinished = false

  /** @param grow by default an index may grow at any time */
  constructor(store: DatabaseStore, index: IndexStore, source: RowSource, grow: Grow = growFreely) {
    this.#store = store
    this.#index = index
    this.#source = source
    this.#grow = grow
  }

  get index(): IndexStore {
    return this.#index
  }

  get isRunning(): boolean {
    return this.#running !== undefined
  }

  /** Whether the index was found empty, and no update has ended well since. */
  get isUnfinished(): boolean {
    return this.#isUnfinished
  }

  /** How far the update under way is; null: there is none, or it has not begun to read. */
  get progress(): IndexProgress | null {
    return this.#running === undefined ? null : this.#progress
  }

  /** When a query has last asked for an update, in ms since 1970; null: not since the database was opened. */
  get lastUse(): number | null {
    return this.#lastUse
  }

  /**
   * Includes everything that was written before the call.
   * @throws the errors of {@link RowSource.rowsOf} and of the stores
   */
  async update(): Promise<void> {
    this.#lastUse = Date.now()
    if (await this.#isCurrent()) return
    // An update under way may have missed a write that the caller already knows.
    while (this.#running !== undefined) await this.#running.catch(() => undefined)
    this.#running = this.#update()
    try {
      await this.#running
      this.#isUnfinished = false
    } finally {
      this.#running = undefined
      this.#progress = null
    }
  }

  /** Whether the index includes the database as it is now. If it does, either order of the two reads shows it. */
  async #isCurrent(): Promise<boolean> {
    const [{ position }, progress] = await Promise.all([this.#index.status(), this.#store.progress()])
    return includes(position, progress)
  }

  async #update(): Promise<void> {
    let target: IndexPosition | null = null
    for (let pause = FIRST_LOOK_MS; ; ) {
      // The status comes first: another node's index may include more than an earlier look at the database has shown.
      const status = await this.#index.status()
      if (status.position === null) this.#isUnfinished = true
      const progress = await this.#store.progress()
      const now = positionAt(progress)
      target ??= now
      if (includes(status.position, progress, target)) return
      if (status.isUpdatedElsewhere) {
        this.#progress = { done: status.position?.seq ?? 0, total: target.seq }
        await sleep(pause)
        pause = Math.min(pause * 2, LAST_LOOK_MS)
      } else if (await this.#advance(status, progress, now)) return
    }
  }

  /** @returns false if the index has changed meanwhile: there is more to do, or another node has overtaken this one */
  async #advance(status: IndexStatus, progress: StoreProgress, target: IndexPosition): Promise<boolean> {
    const { position } = status
    let { version } = status
    if (position === null && progress.docCount > MANY_DOCS) {
      const build = await this.#index.build()
      if (build !== null) {
        await this.#build(build, progress, target)
        return true
      }
    }
    if (position !== null && !isPositionOf(progress, position)) return this.#empty(version)
    if (position !== null && position.purgeSeq !== target.purgeSeq)
      return this.#removePurged(status, position, target)
    const since = position?.seq ?? 0
    if (position !== null && since >= target.seq) return true
    let { seen } = position ?? target
    return this.#forEachPage(since, target.seq, async (docs, page) => {
      seen = Math.max(seen, page.seen)
      const { end: seq, more } = page
      const next = await this.#put(docs, { from: version, position: { ...target, seq, seen }, more })
      version = next ?? version
      return next !== null
    })
  }

  /** Empties an index of another history. @returns false: it is to be filled again */
  async #empty(version: number): Promise<false> {
    await this.#index.clear(version)
    return false
  }

  /** Removes the rows of purged documents. @returns false: the index has a new position */
  async #removePurged(
    status: IndexStatus,
    position: IndexPosition,
    { purgeSeq, epoch }: IndexPosition,
  ): Promise<false> {
    let { version } = status
    const all = await this.#store.readPurges()
    const purges = all.filter(({ seq }) => seq > position.purgeSeq && seq <= purgeSeq)
    // The log of purges is bounded, and a restored database may have fewer than the index.
    if (purges.length !== purgeSeq - position.purgeSeq) return this.#empty(version)
    const ids = [...new Set(purges.map(({ id }) => id))]
    let { seen } = position
    for (let at = 0; at < ids.length; at += PAGE_DOCS) {
      const some = ids.slice(at, at + PAGE_DOCS)
      const read = (doc: DocState | null, _id: string, { updateSeq }: StoreView) => {
        seen = Math.max(seen, updateSeq)
        return doc === null ? null : this.#textOf(doc)
      }
      const texts = await this.#store.readDocs(some, read, { body: true, branches: true })
      const docs = await this.#rowsOf(some.map((id, n) => ({ id, text: texts[n] ?? null })))
      const more = at + PAGE_DOCS < ids.length
      const next = await this.#put(docs, {
        from: version,
        position: { ...position, seen, epoch, ...(!more && { purgeSeq }) },
        more,
      })
      if (next === null) return false
      version = next
    }
    return false
  }

  /** As {@link IndexStore.update}. A step that only removes rows needs no room; a new index does, even without rows. */
  #put(docs: readonly IndexedDoc[], step: IndexStep): Promise<number | null> {
    const bytes = bytesOf(docs) + (this.#isUnfinished ? EMPTY_BYTES : 0)
    const put = () => this.#index.update(docs, step)
    return bytes === 0 ? put() : this.#grow(bytes, put)
  }

  async #build(build: IndexBuild, progress: StoreProgress, target: IndexPosition): Promise<void> {
    try {
      await this.#fill(build, progress, target)
    } finally {
      build.close()
    }
  }

  async #fill(build: IndexBuild, progress: StoreProgress, target: IndexPosition): Promise<void> {
    const begun = build.target
    const goesOn = begun !== null && isPositionOf(progress, begun) && begun.purgeSeq === target.purgeSeq
    if (!goesOn) await build.restart(target)
    const end = goesOn ? begun.seq : target.seq
    if (build.seq < end) {
      await this.#forEachPage(build.seq, end, async (docs, page) => {
        await this.#grow(bytesOf(docs), () => build.add(docs, page.end, page.seen))
        return true
      })
    }
    // The sorted rows are a second copy.
    await this.#grow(build.bytes(), () => build.finish())
  }

  /**
   * Passes the rows of all documents of a part of the feed to a function, in the order of the feed.
   * @param since the update before the first @param last the last update, which exists
   * @param apply returns whether to go on
   * @returns whether it has gone on to the end
   */
  async #forEachPage(
    since: number,
    last: number,
    apply: (docs: readonly IndexedDoc[], page: Omit<FeedPage, 'docs'>) => Promise<boolean>,
  ): Promise<boolean> {
    const underWay: { readonly rows: Promise<IndexedDoc[]>; readonly page: FeedPage }[] = []
    let read = since
    let more = true
    while (more || underWay.length > 0) {
      // While somebody saves, the cores are not all for the index.
      while (more && underWay.length < (hasForegroundWrite() ? 1 : PAGES_AT_ONCE)) {
        const page = await this.#page(read, last)
        const rows = this.#rowsOf(page.docs)
        // If an earlier page fails, nobody waits for this one.
        rows.catch(() => undefined)
        underWay.push({ rows, page })
        read = page.end
        more = page.more
      }
      const next = underWay.shift()
      if (next === undefined) continue
      if (!(await apply(await next.rows, next.page))) return false
      this.#progress = { done: next.page.end - since, total: last - since }
    }
    return true
  }

  async #page(since: number, last: number): Promise<FeedPage> {
    const { rows, more, view } = await this.#store.readChanges(
      // Later updates have their own turn: a document must not come twice.
      { since, before: last + 1 },
      { limit: PAGE_DOCS, chars: PAGE_CHARS, readSet: { body: true, branches: true } },
      (doc) => ({ id: doc.id, seq: doc.seq, text: this.#textOf(doc) }),
    )
    return { docs: rows, end: more ? (rows.at(-1)?.seq ?? since) : last, seen: view.updateSeq, more }
  }

  #textOf(doc: DocState): string | null {
    const { includeDesign, localSeq } = this.#source
    const skip = ({ message }: CouchError) => {
      this.#source.skip(doc.id, message)
      return null
    }
    if (doc.deleted || (isDesignId(doc.id) && !includeDesign)) return null
    // The options with which couch_mrview opens documents for map functions.
    const options = { localSeq, conflicts: true, deletedConflicts: true }
    return unlessDamaged(() => renderDocument(doc, doc.rev, options), skip)
  }

  async #rowsOf(docs: FeedPage['docs']): Promise<IndexedDoc[]> {
    const live = docs.filter((doc): doc is IndexableDoc => doc.text !== null)
    const rows = live.length === 0 ? [] : await this.#source.rowsOf(live)
    if (rows.length !== live.length) throw new CouchError('internal_server_error')
    const byId = new Map(live.map(({ id }, at) => [id, rows[at] as IndexEntry[][]]))
    const none = Array.from({ length: this.#source.indexes }, (): IndexEntry[] => [])
    return docs.map(({ id }) => ({ id, rows: byId.get(id) ?? none }))
  }
}

/** What an open index without rows takes on disk, in bytes: SQLite's file, its log, and what it shares in memory. */
const EMPTY_BYTES = 112 * 1024
/** What a row takes beside its place and its texts, about, in bytes; and the same of a document. */
const ROW_BYTES = 64

/** About how many bytes the rows of documents take on disk; 0 without rows. */
function bytesOf(docs: readonly IndexedDoc[]): number {
  let bytes = 0
  for (const { id, rows } of docs) {
    for (const list of rows) {
      // A place has the key and the id; the key is also kept with its document.
      for (const { key, keyText, valueText } of list)
        bytes +=
          ROW_BYTES + 2 * key.length + id.length + Buffer.byteLength(keyText) + Buffer.byteLength(valueText)
      if (list.length > 0) bytes += ROW_BYTES + id.length
    }
  }
  return bytes
}

function positionAt({ updateSeq, epochs, purgeSeq }: StoreProgress): IndexPosition {
  return { seq: updateSeq, seen: updateSeq, epoch: epochs.at(-1)?.id ?? '', purgeSeq }
}

/**
 * Whether an index with this position includes a state of the database.
 * @param target that state, which is not newer than `progress`
 */
function includes(
  position: IndexPosition | null,
  progress: StoreProgress,
  target: IndexPosition = positionAt(progress),
): boolean {
  return (
    position !== null &&
    isPositionOf(progress, position) &&
    position.seq >= target.seq &&
    position.purgeSeq >= target.purgeSeq &&
    position.purgeSeq <= progress.purgeSeq
  )
}
