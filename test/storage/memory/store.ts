/** One open database of the engine in memory. */
import { setImmediate as turn } from 'node:timers/promises'
import { CouchError } from '../../../src/core/errors.ts'
import type { BlobReference, BlobUpload } from '../../../src/storage/blob-leases.ts'
import type { DatabaseEntry } from '../../../src/storage/catalog.ts'
import type {
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
  StoreView,
} from '../../../src/storage/engine.ts'
import type {
  DocHistory,
  HistoryStore,
  HistoryTouches,
  VersionedStore,
} from '../../../src/storage/history-store.ts'
import { type Epoch, isRolledBack } from '../../../src/storage/sequence.ts'
import type { OpenOptions } from '../../../src/storage/storage-engine.ts'
import type { StoreEvent } from '../../../src/storage/store-events.ts'
import { forgotten, type RememberedPoint } from '../../../src/storage/token-position.ts'
import type { DocTouches, Touches } from '../../../src/storage/touches.ts'
import type {
  CompactionProgress,
  CompactOptions,
  GarbageCounts,
  StoreSizes,
} from '../../../src/storage/upkeep.ts'
import { memoryHistory } from './history.ts'
import type { Lend } from './lending.ts'
import { dropForsaken, dropSuperseded, purgeDoc } from './purge.ts'
import { measured, sinceWhen, sizesOf, wearOf } from './sizes.ts'
import {
  begunAnew,
  checkContents,
  draftOf,
  externalSize,
  feedAbove,
  idsInRange,
  reopened,
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
  /** The time, in ms since 1970. */
  now(): number
}

interface Job {
  /** Changes the draft; what it returns is called after the commit. */
  apply(draft: State): () => void
  reject(error: unknown): void
}

export class MemoryStore implements VersionedStore {
  readonly history: HistoryStore
  readonly #record: DatabaseRecord
  readonly #operate: Operate
  readonly #lendBy: Lend
  readonly #staging: MemoryStaging
  readonly wasRolledBack: boolean
  readonly #listeners: ((event: StoreEvent) => void)[] = []
  #queue: Job[] = []
  #writing: Promise<void> = Promise.resolve()
  #closing: Promise<void> | null = null
  #compacting: Promise<void> | null = null
  readonly #watchers = new Set<(progress: CompactionProgress) => void>()

  constructor(record: DatabaseRecord, operate: Operate, lendBy: Lend, { lastKnown: mark }: OpenOptions) {
    this.#record = record
    this.#operate = operate
    this.#lendBy = lendBy
    this.wasRolledBack = mark !== undefined && isRolledBack(record.state, mark)
    record.state = reopened(this.wasRolledBack ? begunAnew(record.state) : record.state)
    const reads = {
      read: <T>(read: (state: State, view: StoreView) => T) => this.#read(read),
      page: <T, R>(rows: readonly T[], paging: Paging, view: StoreView, read: (row: T) => R) =>
        this.#page(rows, paging, view, read),
      lend: <R>(
        { blobs }: State,
        doc: StoredDoc | undefined,
        touches: HistoryTouches | undefined,
        use: (doc: DocHistory | null) => R,
      ) => lendBy(doc, { load: operate, blobs, showsKept: true }, touches, use),
    }
    this.history = memoryHistory(reads, record.createdAt * 1000)
    this.#staging = new MemoryStaging({
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

  /** Who writes, for epochs and times. */
  get #by() {
    return { owner: this, now: () => this.#record.now() }
  }

  view(): Promise<StoreView> {
    return this.#read((_, view) => view)
  }

  info(): Promise<StoreInfo> {
    const { name, createdAt } = this.#record
    return this.#read((state, view) => {
      const external = externalSize(state)
      const sizes = { file: external, active: external, external }
      const { purgeSeq } = state
      return { ...view, name, createdAt, purgeSeq, compacting: this.#compacting !== null, sizes }
    })
  }

  readDocs<R>(
    ids: readonly string[],
    read: (doc: DocState | null, id: string, view: StoreView) => R,
    touches?: DocTouches,
  ) {
    return this.#read((state, view) =>
      ids.map((id, place) =>
        this.#lend(state, state.docs.get(id), touchesAt(touches, place), (doc) => read(doc, id, view)),
      ),
    )
  }

  readRange<R>(
    range: IdRange,
    paging: Paging,
    read: (doc: DocState, view: StoreView) => R,
  ): Promise<Page<R>> {
    return this.#read((state, view) =>
      this.#page(idsInRange(liveIds(state), range), paging, view, (id) =>
        this.#lend(state, state.docs.get(id), paging.touches, (doc) => read(doc as DocState, view)),
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

  readChanges<R>(
    range: { readonly since: number; readonly descending?: boolean; readonly before?: number },
    paging: Paging,
    read: (doc: DocState, view: StoreView) => R,
  ): Promise<Page<R>> {
    return this.#read((state, view) => {
      const rows = feedAbove(state, range.since).filter((doc) => doc.seq < (range.before ?? Infinity))
      if (range.descending === true) rows.reverse()
      return this.#page(rows, paging, view, (row) =>
        this.#lend(state, row, paging.touches, (doc) => read(doc as DocState, view)),
      )
    })
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
      const { rows, more } = this.#page(forked, paging, view, (row) =>
        this.#lend(state, row, paging.touches, (doc) => read(doc as DocState, view)),
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
    return this.#write((draft) => updates.map((update) => caught(() => this.#updateDoc(draft, update))))
  }

  #updateDoc<R, N>(draft: State, { id, touches, decide }: DocUpdate<R, N>): Outcome<R, N> {
    this.#operate('read document')
    const decision = this.#lend(draft, draft.docs.get(id), touches, (doc) => decide(doc, viewOf(draft)))
    if ('needs' in decision) return { needs: decision.needs }
    if (decision.write !== undefined) {
      checkContents(draft, decision.write)
      for (const { rev } of decision.write.revisions) this.#operate(`write revision ${rev}`)
      this.#operate('write document')
      writeDoc(draft, this.#by, id, decision.write)
    }
    return { result: decision.result }
  }

  purgeDocs<R>(updates: readonly PurgeUpdate<R>[]): Promise<Outcome<R>[]> {
    return this.#write((draft) => updates.map((update) => caught(() => this.#purgeDoc(draft, update))))
  }

  #purgeDoc<R>(draft: State, { id, touches, decide }: PurgeUpdate<R>): Outcome<R> {
    this.#operate('read document')
    const { result, write } = this.#lend(draft, draft.docs.get(id), touches, (doc) =>
      decide(doc, viewOf(draft)),
    )
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
      dropForsaken(draft, (blob) => this.#staging.isHeld(blob))
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
      this.#page(
        idsInRange(state.locals.keys(), range),
        paging,
        view,
        (id) => state.locals.get(id) as LocalDoc,
      ),
    )
  }

  countLocals(range: IdRange): Promise<number> {
    return this.#read((state) => idsInRange(state.locals.keys(), range).length)
  }

  updateLocals<R>(updates: readonly LocalUpdate<R>[]): Promise<Outcome<R>[]> {
    return this.#write((draft) => updates.map((update) => caught(() => this.#updateLocal(draft, update))))
  }

  #updateLocal<R>(draft: State, { id, decide }: LocalUpdate<R>): Outcome<R> {
    const wasMet = draft.met?.has(id) === true
    const { result, write, met } = decide(draft.locals.get(id) ?? null, viewOf(draft), wasMet)
    if (met) draft.met?.add(id)
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
      if (write?.wasRestored) draft.met ??= new Set()
      if (write?.purgedInfosLimit !== undefined) draft.purgedInfosLimit = write.purgedInfosLimit
      return result
    })
  }

  onEvent(listener: (event: StoreEvent) => void): void {
    this.#listeners.push(listener)
  }

  async close(): Promise<void> {
    this.#closing ??= this.#writing
    await this.#closing
  }

  #lend<R>(
    { blobs }: State,
    doc: StoredDoc | undefined,
    touches: Touches | undefined,
    use: (doc: DocHistory | null) => R,
  ): R {
    return this.#lendBy(doc, { load: this.#operate, blobs }, touches, use)
  }

  #page<T, R>(items: readonly T[], paging: Paging, view: StoreView, read: (item: T) => R): Page<R> {
    const rows: R[] = []
    for (const item of items.slice(0, paging.limit)) {
      this.#operate('read row')
      rows.push(read(item))
      if (paging.enough?.() === true) break
    }
    return { rows, more: rows.length < items.length, view }
  }

  async #read<T>(read: (state: State, view: StoreView) => T): Promise<T> {
    this.#refuseIfClosed()
    await turn()
    this.#operate('read')
    return read(this.#record.state, viewOf(this.#record.state))
  }

  async #write<T>(change: (draft: State) => T): Promise<T> {
    this.#refuseIfClosed()
    return new Promise<T>((resolve, reject) => {
      const apply = (draft: State): (() => void) => {
        const result = change(draft)
        return () => resolve(result)
      }
      if (this.#queue.push({ apply, reject }) === 1) this.#writing = turn().then(() => this.#commitQueue())
    })
  }

  /** All writes that have arrived share one commit, and one fault of it. */
  #commitQueue(): void {
    const jobs = this.#queue
    this.#queue = []
    const before = this.#record.state
    const draft = draftOf(before)
    draft.writes += 1
    const settle: (() => void)[] = []
    try {
      this.#operate('begin')
      for (const job of jobs) settle.push(applied(job, draft))
      this.#operate('commit')
    } catch (fault) {
      for (const job of jobs) job.reject(fault)
      return
    }
    this.#record.state = draft
    for (const answer of settle) answer()
    if (draft.updateSeq > before.updateSeq) {
      const { id } = draft.epochs.at(-1) as Epoch
      const updates = draft.updateSeq - before.updateSeq
      const event = { type: 'committed', updateSeq: draft.updateSeq, epoch: id, updates } as const
      for (const listener of this.#listeners) listener(event)
    }
  }

  #refuseIfClosed(): void {
    if (this.#closing !== null) throw new CouchError('unavailable')
  }
}

function touchesAt(touches: DocTouches | undefined, place: number): Touches | undefined {
  return touches?.of === undefined ? touches : { ...touches, ...touches.of(place) }
}

function applied(job: Job, draft: State): () => void {
  try {
    return job.apply(draft)
  } catch (error) {
    return () => job.reject(error)
  }
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
