/** One open database of the engine in memory. */
import { CouchError } from '../../../src/core/errors.ts'
import type { BlobReference, BlobUpload } from '../../../src/storage/blob-leases.ts'
import type { DatabaseEntry } from '../../../src/storage/catalog.ts'
import type {
  ChangesRange,
  DocState,
  DocUpdate,
  ForkedPage,
  IdRange,
  LocalDoc,
  LocalUpdate,
  Outcome,
  Page,
  Paging,
  PurgeInfo,
  PurgeUpdate,
  RangeSizes,
  SettingsChange,
  StoreInfo,
  StoreProgress,
  StoreView,
} from '../../../src/storage/engine.ts'
import type {
  DocHistory,
  HistoryReadSet,
  HistoryStore,
  VersionedStore,
} from '../../../src/storage/history-store.ts'
import type { DocReadSet, ReadSet } from '../../../src/storage/read-set.ts'
import { type Epoch, isRolledBack } from '../../../src/storage/sequence.ts'
import type { OpenOptions } from '../../../src/storage/storage-engine.ts'
import type { StoreEvent } from '../../../src/storage/store-events.ts'
import { forgotten, type RememberedPoint } from '../../../src/storage/token-position.ts'
import type {
  CompactionProgress,
  CompactOptions,
  GarbageCounts,
  StoreSizes,
} from '../../../src/storage/upkeep.ts'
import { type Decided, MemoryCommits } from './commits.ts'
import type { WithDocument } from './document-scope.ts'
import { memoryHistory } from './history.ts'
import type { MemoryLeases, MemoryOpener } from './opener.ts'
import { dropForsaken, dropSuperseded, purgeDoc } from './purge.ts'
import { measured, sinceWhen, sizesOf, wearOf } from './sizes.ts'
import {
  begunAnew,
  checkContents,
  draftOf,
  dropAbandoned,
  externalSize,
  feedAbove,
  idsInRange,
  type State,
  type StoredDoc,
  viewOf,
  writeDoc,
} from './state.ts'
import { MemoryStaging } from './uploads.ts'

/** Called before every operation; what it throws is a fault of the disk. */
export type Operate = (operation: string) => void

export interface DatabaseRecord extends DatabaseEntry {
  readonly createdAt: number
  state: State
  /** Whether it was deleted or replaced. */
  isGone: boolean
  /** The last number that a mutant took. */
  readonly numbers: { last: number }
  /** Of uploads and references. */
  readonly leases: MemoryLeases
  /** The open stores of all openers. */
  readonly stores: Set<MemoryStore>
  /** The time, in ms since 1970. */
  now(): number
}

/** The change of one document. */
type Change = Omit<Decided, 'answer'>

export class MemoryStore implements VersionedStore {
  readonly history: HistoryStore
  readonly #record: DatabaseRecord
  readonly #operate: Operate
  readonly #withDocument: WithDocument
  readonly #staging: MemoryStaging
  readonly wasRolledBack: boolean
  readonly #listeners: ((event: StoreEvent) => void)[] = []
  readonly #opener: MemoryOpener
  readonly #commits: MemoryCommits
  /** What the listeners were told of. */
  #told: State
  readonly #endPoll: () => void
  #closing: Promise<void> | null = null
  #compacting: Promise<void> | null = null
  readonly #watchers = new Set<(progress: CompactionProgress) => void>()

  constructor(
    record: DatabaseRecord,
    operate: Operate,
    withDocument: WithDocument,
    { lastKnown: mark, opener }: OpenOptions & { readonly opener: MemoryOpener },
  ) {
    this.#record = record
    this.#operate = operate
    this.#withDocument = withDocument
    this.#opener = opener
    this.wasRolledBack = mark !== undefined && isRolledBack(record.state, mark)
    if (!opener.network.isShared) record.leases.endAll(() => true)
    record.state = this.wasRolledBack ? begunAnew(record.state) : draftOf(record.state)
    dropAbandoned(record.state, (blob) => this.#isHeld(blob))
    this.#told = record.state
    record.stores.add(this)
    this.#endPoll = opener.network.poll(() => this.#tellOthers())
    this.#commits = new MemoryCommits({
      ...{ record, opener, operate },
      before: (state) => this.#tell(state),
      committed: (from, to) => this.#committed(from, to),
    })
    const reads = {
      read: <T>(read: (state: State, view: StoreView) => T) => this.#read(read),
      page: <T, R>(rows: readonly T[], paging: Paging, view: StoreView, read: PageRead<T, R>) =>
        this.#page(rows, paging, view, read),
      callWith: <R>(
        doc: StoredDoc | undefined,
        readSet: HistoryReadSet | undefined,
        use: (doc: DocHistory | null) => R,
        countChars: (chars: number) => void = () => undefined,
      ) => withDocument(doc, { load: operate, showsKept: true, countChars }, readSet, use),
    }
    this.history = memoryHistory(reads, record.createdAt * 1000)
    this.#staging = new MemoryStaging(record.leases, opener, {
      now: () => record.now(),
      read: (read) => this.#read(read),
      write: (operation, change) =>
        this.#write((draft) => {
          operate(operation)
          return change(draft)
        }),
    })
  }

  get partitioned(): boolean {
    return this.#record.state.partitioned
  }

  get shards(): number {
    return this.#record.state.shards
  }

  /** Who writes, for epochs and times. */
  get #by() {
    return { now: () => this.#record.now() }
  }

  view(): Promise<StoreView> {
    return this.#read((_, view) => view)
  }

  progress(): Promise<StoreProgress> {
    return this.#read(({ purgeSeq }, view) => ({ ...view, purgeSeq }))
  }

  info(): Promise<StoreInfo> {
    const { name, createdAt } = this.#record
    return this.#read((state, view) => {
      const { file, kept } = sizesOf(state)
      const sizes = { file, active: file - kept.bytes, external: externalSize(state) }
      const { purgeSeq } = state
      return { ...view, name, createdAt, purgeSeq, compacting: this.#compacting !== null, sizes }
    })
  }

  readDocs<R>(
    ids: readonly string[],
    read: (doc: DocState | null, id: string, view: StoreView, place: number) => R,
    readSet?: DocReadSet,
    chars?: number,
  ) {
    return this.#read((state, view) => {
      const bound = new CharsBound(chars)
      const results: R[] = []
      for (const [place, id] of ids.entries()) {
        const doc = state.docs.get(id)
        results.push(
          this.#callWith(
            doc,
            readSetAt(readSet, place),
            (scoped) => read(scoped, id, view, place),
            bound.count,
          ),
        )
        if (bound.isReached) break
      }
      return results
    })
  }

  readRange<R>(
    range: IdRange,
    paging: Paging,
    read: (doc: DocState, view: StoreView) => R,
  ): Promise<Page<R>> {
    return this.#read((state, view) =>
      this.#page(idsInRange(liveIds(state), range), paging, view, (id, count) =>
        this.#callWith(state.docs.get(id), paging.readSet, (doc) => read(doc as DocState, view), count),
      ),
    )
  }

  countRange(range: IdRange): Promise<number> {
    return this.#read((state) => idsInRange(liveIds(state), range).length)
  }

  skipRange(range: IdRange, documents: number): Promise<IdRange | null> {
    return this.#read((state) => {
      if (documents === 0) return range
      const id = idsInRange(liveIds(state), range)[documents - 1]
      return id === undefined ? null : { ...range, start: { id, inclusive: false } }
    })
  }

  measureRange(range: IdRange): Promise<RangeSizes> {
    return this.#read((state) => measured(state, range))
  }

  async readChanges<R>(
    range: ChangesRange,
    paging: Paging,
    read: (doc: DocState, view: StoreView) => R,
  ): Promise<Page<R>> {
    const page = await this.#read((state, view) => {
      const rows = feedAbove(state, range.since).filter((doc) => doc.seq < (range.before ?? Infinity))
      if (range.descending === true) rows.reverse()
      return this.#page(rows, paging, view, (row, count) =>
        this.#callWith(row, paging.readSet, (doc) => read(doc as DocState, view), count),
      )
    })
    if (this.#opener.mutant !== 'view after page') return page
    await this.#opener.network.ask()
    return { ...page, view: viewOf(this.#record.state) }
  }

  countChanges(seq: number): Promise<number> {
    return this.#read((state) => feedAbove(state, seq).length)
  }

  readForked<R>(
    after: number,
    paging: Paging,
    read: (doc: DocState, view: StoreView) => R,
  ): Promise<ForkedPage<R>> {
    return this.#read((state, view) => {
      const docs = [...state.docs.values()].filter(({ num }) => num > after).sort((a, b) => a.num - b.num)
      const forked = docs.filter(({ rows }) => [...rows.values()].filter(({ leaf }) => leaf).length > 1)
      const { rows, more } = this.#page(forked, paging, view, (row, count) =>
        this.#callWith(row, paging.readSet, (doc) => read(doc as DocState, view), count),
      )
      const last = more ? (forked[rows.length - 1]?.num ?? after) : null
      const searched = last === null ? docs.length : docs.filter(({ num }) => num <= last).length
      return { rows, view, next: last, searched }
    })
  }

  countAttachments(most: number): Promise<number> {
    return this.#read((state) => {
      const rows = [...state.docs.values()].flatMap((doc) => [...doc.rows.values()])
      return Math.min(
        most,
        rows.reduce((sum, { attachments }) => sum + attachments.length, 0),
      )
    })
  }

  readBlob(blob: number, offset: number, length: number): Promise<Uint8Array | null> {
    return this.#read((state) => state.blobs.get(blob)?.slice(offset, offset + length) ?? null)
  }

  referenceBlob(blob: number): Promise<BlobReference | null> {
    return this.#staging.pin(blob)
  }

  uploadBlob(): Promise<BlobUpload> {
    return this.#staging.begin()
  }

  updateDocs<R, N = never>(updates: readonly DocUpdate<R, N>[]): Promise<Outcome<R, N>[]> {
    const changes: Change[] = []
    return this.#write(
      (draft) => {
        changes.length = 0
        return updates.map((update) => caught(() => this.#updateDoc(draft, update, changes)))
      },
      { ids: updates.map(({ id }) => id), changes },
    )
  }

  /** @param changes to make again on another draft, if the decision holds there */
  #updateDoc<R, N>(draft: State, { id, readSet, decide }: DocUpdate<R, N>, changes: Change[]): Outcome<R, N> {
    this.#operate('read document')
    const decision = this.#callWith(draft.docs.get(id), readSet, (doc) => decide(doc, viewOf(draft)))
    if ('needs' in decision) return { needs: decision.needs }
    if (decision.write !== undefined) {
      const { write } = decision
      checkContents(draft, write)
      for (const { rev } of write.revisions) this.#operate(`write revision ${rev}`)
      this.#operate('write document')
      const by = { ...this.#by, ...this.#earlyNumber() }
      writeDoc(draft, by, id, write)
      const carryOut = (other: State) => {
        checkContents(other, write)
        writeDoc(other, by, id, write)
      }
      changes.push({ carryOut, dependsOnCounts: decision.dependsOnCounts === true })
    }
    return { result: decision.result }
  }

  /** The mutant that takes a number before the commit keeps it, whatever was committed since. */
  #earlyNumber(): { takeSeq?: (draft: State) => number } {
    if (this.#opener.mutant !== 'number before commit') return {}
    this.#record.numbers.last = Math.max(this.#record.numbers.last, this.#record.state.updateSeq) + 1
    const seq = this.#record.numbers.last
    return {
      takeSeq: (draft) => {
        draft.updateSeq = Math.max(draft.updateSeq, seq)
        return seq
      },
    }
  }

  purgeDocs<R>(updates: readonly PurgeUpdate<R>[]): Promise<Outcome<R>[]> {
    return this.#write((draft) => updates.map((update) => caught(() => this.#purgeDoc(draft, update))))
  }

  #purgeDoc<R>(draft: State, { id, readSet, decide }: PurgeUpdate<R>): Outcome<R> {
    this.#operate('read document')
    const { result, write } = this.#callWith(draft.docs.get(id), readSet, (doc) => decide(doc, viewOf(draft)))
    if (write !== undefined) {
      this.#operate('purge document')
      purgeDoc(draft, this.#by, id, write)
    }
    return { result }
  }

  readPurges(): Promise<PurgeInfo[]> {
    return this.#read(({ purges }, { purgedInfosLimit }) => purges.slice(-purgedInfosLimit))
  }

  compact({ keepSince = Infinity, keepBytes = Infinity, onProgress }: CompactOptions = {}): Promise<void> {
    if (onProgress !== undefined) this.#watchers.add(onProgress)
    this.#compacting ??= this.#compact(keepSince, keepBytes).finally(() => {
      this.#compacting = null
      this.#watchers.clear()
    })
    return this.#compacting
  }

  async #compact(keepSince: number, keepBytes: number): Promise<void> {
    const { ids, purgeSeq, revsLimit } = await this.#read(({ docs, purgeSeq, revsLimit }) => {
      return { ids: [...docs.keys()], purgeSeq, revsLimit }
    })
    const total = ids.length + 1
    for (let done = 0; done < ids.length; done += 10) {
      for (const tell of this.#watchers) tell({ done, total })
      await this.#compactStep((draft) => dropSuperseded(draft, ids.slice(done, done + 10), keepSince))
    }
    await this.#compactStep((draft) => {
      const since = sinceWhen(draft, keepBytes)
      if (since > 0) dropSuperseded(draft, ids, since)
      if (this.#opener.network.isShared) dropAbandoned(draft, (blob) => this.#isHeld(blob))
      dropForsaken(draft, (blob) => this.#isHeld(blob))
      const longestAncestry = Math.max(revsLimit, draft.revsLimit)
      Object.assign(draft, { compactedAt: this.#record.now(), compactedPurge: purgeSeq, longestAncestry })
    })
    for (const tell of this.#watchers) tell({ done: total, total })
  }

  garbage(): Promise<GarbageCounts> {
    return this.#read((state) => wearOf(state))
  }

  sizes(): Promise<StoreSizes> {
    return this.#read((state) => sizesOf(state))
  }

  #compactStep(change: (draft: State) => void): Promise<void> {
    return this.#write((draft) => {
      this.#operate('compact')
      change(draft)
    })
  }

  readLocals(ids: readonly string[]): Promise<(LocalDoc | null)[]> {
    return this.#read((state) => ids.map((id) => state.locals.get(id) ?? null))
  }

  readLocalRange(range: IdRange, paging: Paging): Promise<Page<LocalDoc>> {
    return this.#read((state, view) =>
      this.#page(idsInRange(state.locals.keys(), range), paging, view, (id, count) => {
        const doc = state.locals.get(id) as LocalDoc
        count(doc.body.length)
        return doc
      }),
    )
  }

  countLocals(range: IdRange): Promise<number> {
    return this.#read((state) => idsInRange(state.locals.keys(), range).length)
  }

  updateLocals<R>(updates: readonly LocalUpdate<R>[]): Promise<Outcome<R>[]> {
    return this.#write((draft) => updates.map((update) => caught(() => this.#updateLocal(draft, update))))
  }

  #updateLocal<R>(draft: State, { id, decide }: LocalUpdate<R>): Outcome<R> {
    const wasChecked = draft.checked?.has(id) === true
    const { result, write, checked } = decide(draft.locals.get(id) ?? null, viewOf(draft), wasChecked)
    if (checked) draft.checked?.add(id)
    if (write !== undefined) this.#operate('write local document')
    if (write === null) draft.locals.delete(id)
    else if (write !== undefined) draft.locals.set(id, { id, rev: write.rev, body: write.body })
    return { result }
  }

  rememberPoints(points: readonly RememberedPoint[]): Promise<void> {
    return this.#write((draft) => {
      this.#operate('remember tokens')
      for (const point of points) {
        const key = JSON.stringify([point.family, point.parts])
        const seq = Math.min(point.seq, draft.points.get(key)?.seq ?? Infinity)
        draft.points.set(key, { ...point, seq })
      }
      const stored = [...draft.points].map(([key, { family, seq }]) => ({ key, family, seq }))
      for (const { key } of forgotten(stored, draft.updateSeq)) draft.points.delete(key)
    })
  }

  findPoint(
    family: string,
    total: number,
    passes: (point: RememberedPoint) => boolean,
  ): Promise<RememberedPoint | null> {
    return this.#read(({ points }) => {
      const candidates = [...points.values()].filter((point) => point.family === family)
      return (
        candidates
          .filter((point) => point.total <= total)
          .reverse()
          .sort((a, b) => b.total - a.total)
          .find(passes) ?? null
      )
    })
  }

  updateSettings<R>(decide: (view: StoreView) => { result: R; write?: SettingsChange }): Promise<R> {
    return this.#write((draft) => {
      const { result, write } = decide(viewOf(draft))
      if (write !== undefined) this.#operate('write settings')
      if (Object.keys(write ?? {}).length > 0) draft.settingsVersion += 1
      if (write?.security !== undefined) draft.security = write.security
      if (write?.revsLimit !== undefined) {
        draft.revsLimit = write.revsLimit
        draft.longestAncestry = Math.max(draft.longestAncestry, write.revsLimit)
      }
      if (write?.wasRestored) draft.checked ??= new Set()
      if (write?.purgedInfosLimit !== undefined) draft.purgedInfosLimit = write.purgedInfosLimit
      return result
    })
  }

  onEvent(listener: (event: StoreEvent) => void): void {
    this.#listeners.push(listener)
  }

  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    this.#endPoll()
    await this.#commits.drained()
    this.#record.stores.delete(this)
    if (!this.#opener.isDead) this.#record.leases.endAll((opener) => opener === this.#opener)
  }

  /** @param by who has changed the database; null if it is gone */
  hear(by: MemoryOpener | null): void {
    if (by !== this.#opener) this.#opener.network.notify(() => this.#tellOthers())
  }

  #isHeld(blob: number): boolean {
    return this.#record.leases.isHeld(blob, this.#opener, this.#record.now())
  }

  #tellOthers(): void {
    if (this.#closing !== null || this.#opener.isDead) return
    this.#tell(this.#record.state)
    if (!this.#record.isGone) return
    this.#emit({ type: 'deleted' })
    void this.close()
  }

  /** Tells what others have changed. */
  #tell(state: State): void {
    const told = this.#told
    this.#told = state
    if (state.updateSeq > told.updateSeq) this.#emitCommit(state, 0)
    const isChanged =
      state.security !== told.security ||
      state.revsLimit !== told.revsLimit ||
      state.purgedInfosLimit !== told.purgedInfosLimit
    if (isChanged) this.#emit({ type: 'settings', security: state.security })
  }

  #committed(from: State, to: State): void {
    const updates = to.updateSeq - from.updateSeq
    // Others may have committed since, and may have been told.
    if (this.#told.writes < to.writes) this.#told = to
    if (updates > 0) this.#emitCommit(this.#told, updates)
  }

  #emitCommit({ updateSeq, epochs }: State, updates: number): void {
    this.#emit({ type: 'committed', updateSeq, epoch: (epochs.at(-1) as Epoch).id, updates })
  }

  #emit(event: StoreEvent): void {
    for (const listener of this.#listeners) listener(event)
  }

  #callWith<R>(
    doc: StoredDoc | undefined,
    readSet: ReadSet | undefined,
    use: (doc: DocHistory | null) => R,
    countChars?: (chars: number) => void,
  ): R {
    return this.#withDocument(doc, { load: this.#operate, ...(countChars && { countChars }) }, readSet, use)
  }

  #page<T, R>(items: readonly T[], paging: Paging, view: StoreView, read: PageRead<T, R>): Page<R> {
    const rows: R[] = []
    const bound = new CharsBound(paging.chars)
    for (const item of items.slice(0, paging.limit)) {
      this.#operate('read row')
      rows.push(read(item, bound.count))
      if (bound.isReached) break
    }
    return { rows, more: rows.length < items.length, view }
  }

  async #read<T>(read: (state: State, view: StoreView) => T): Promise<T> {
    this.#refuseIfClosed()
    await this.#opener.network.ask()
    this.#operate('read')
    const { state, isGone } = this.#record
    if (isGone && this.#opener.network.isShared) throw new CouchError('no_database')
    const result = read(state, viewOf(state))
    const answer = this.#opener.network.answer()
    if (answer !== undefined) await answer
    return result
  }

  /** @param decided the documents that a change is decided on, and where it leaves what it changes */
  async #write<T>(
    change: (draft: State) => T,
    decided?: { readonly ids: readonly string[]; readonly changes: readonly Change[] },
  ): Promise<T> {
    this.#refuseIfClosed()
    return new Promise<T>((resolve, reject) => {
      const decide = (draft: State) => {
        const result = change(draft)
        const carryOut = (other: State) => {
          for (const made of decided?.changes ?? []) made.carryOut(other)
        }
        const dependsOnCounts = decided?.changes.some((made) => made.dependsOnCounts) === true
        return { answer: () => resolve(result), carryOut, dependsOnCounts }
      }
      this.#commits.add({ ids: decided?.ids ?? null, decide, reject })
    })
  }

  #refuseIfClosed(): void {
    if (this.#closing === null && !this.#opener.isDead) return
    throw new CouchError(this.#record.isGone && this.#opener.network.isShared ? 'no_database' : 'unavailable')
  }
}

/** Reads a row, and counts the characters of the bodies that it reads. */
export type PageRead<T, R> = (row: T, count: (chars: number) => void) => R

/** Counts the characters of bodies that are read, of each row once: Paging.chars. */
class CharsBound {
  #left: number
  readonly count = (chars: number) => {
    this.#left -= chars
  }

  constructor(chars = Infinity) {
    this.#left = chars
  }

  get isReached(): boolean {
    return this.#left <= 0
  }
}

function readSetAt(readSet: DocReadSet | undefined, place: number): ReadSet | undefined {
  return readSet?.of === undefined ? readSet : { ...readSet, ...readSet.of(place) }
}

function caught<R, N>(update: () => Outcome<R, N>): Outcome<R, N> {
  try {
    return update()
  } catch (error) {
    return { error }
  }
}

function* liveIds(state: State): Generator<string> {
  for (const doc of state.docs.values()) if (!doc.deleted) yield doc.id
}
