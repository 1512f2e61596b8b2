/** The rows of a list of documents, read in pages around what is in view. */
import { ask, pathOf } from '../../api/client.ts'

export interface IdRow {
  readonly id: string
  readonly rev: string
  /** Live revisions beside the winner; undefined: not known. */
  readonly conflicts?: number
}

/** Which documents a list shows. */
export type ListKind = 'all' | 'design' | 'conflicts' | 'local'

/** The rows that a list shows, by their place. */
export interface RowSource {
  readonly count: number
  /** undefined while it is being loaded, and where there is none. */
  row(place: number): IdRow | undefined
  /** Says what is in view: the first row, and the row after the last. */
  want(first: number, after: number): void
  /** Ends all calls. */
  close(): void
}

interface AllDocs {
  readonly total_rows: number | null
  readonly offset: number | null
  readonly rows: readonly { readonly id: string; readonly value: { readonly rev: string } }[]
}

/** Greater than every other character. */
const LAST = '\u{10FFFF}'
const RESOURCES = { all: '_all_docs', design: '_design_docs', local: '_local_docs' } as const

type IndexedKind = 'all' | 'design'

/** @returns how many documents have a prefix */
export async function countIds(
  database: string,
  kind: IndexedKind,
  prefix: string,
  signal: AbortSignal,
): Promise<number> {
  const path = pathOf(database, RESOURCES[kind])
  const count = (query: Readonly<Record<string, unknown>>) =>
    ask<AllDocs>(path, { query: { ...query, limit: 0 }, signal })
  if (prefix === '') return (await count({})).total_rows ?? 0
  const [start, end] = await Promise.all([
    count({ startkey: JSON.stringify(prefix) }),
    count({ startkey: JSON.stringify(prefix + LAST) }),
  ])
  return Math.max(0, (end.offset ?? 0) - (start.offset ?? 0))
}

const PAGE_ROWS = 100
/** Pages that are kept. */
const MAX_PAGES = 60
/** How long a place must be in view before its pages are read, in ms, so that a dragged scrollbar reads few. */
const REST_MS = 60

/** Pages of `_all_docs`, read from the nearer end of the list. */
export class IdPages implements RowSource {
  readonly count: number
  readonly #database: string
  readonly #kind: IndexedKind
  readonly #prefix: string
  readonly #onChange: (error: unknown) => void
  /** In the order of their last use. */
  readonly #pages = new Map<number, readonly IdRow[]>()
  readonly #calls = new Map<number, AbortController>()
  #timer: ReturnType<typeof setTimeout> | undefined
  #isClosed = false

  /** @param onChange called when rows have arrived, with null, or when a page could not be read, with the error */
  constructor(
    list: {
      readonly database: string
      readonly kind: IndexedKind
      readonly prefix: string
      readonly count: number
    },
    onChange: (error: unknown) => void,
  ) {
    this.count = list.count
    this.#database = list.database
    this.#kind = list.kind
    this.#prefix = list.prefix
    this.#onChange = onChange
  }

  row(place: number): IdRow | undefined {
    return this.#pages.get(Math.floor(place / PAGE_ROWS))?.[place % PAGE_ROWS]
  }

  want(first: number, after: number): void {
    if (after <= first) return
    const wanted: number[] = []
    for (let page = Math.floor(first / PAGE_ROWS); page * PAGE_ROWS < after; page += 1) wanted.push(page)
    for (const [page, call] of this.#calls) {
      if (wanted.includes(page)) continue
      call.abort()
      this.#calls.delete(page)
    }
    clearTimeout(this.#timer)
    const missing = wanted.filter((page) => !this.#pages.has(page) && !this.#calls.has(page))
    if (missing.length === 0) return
    const isNear = missing.some(
      (page) => this.#pages.has(page - 1) || this.#pages.has(page + 1) || page === 0,
    )
    const read = () => {
      for (const page of missing) void this.#read(page)
    }
    if (isNear) read()
    else this.#timer = setTimeout(read, REST_MS)
  }

  close(): void {
    this.#isClosed = true
    clearTimeout(this.#timer)
    for (const call of this.#calls.values()) call.abort()
  }

  async #read(page: number): Promise<void> {
    if (this.#isClosed) return
    const call = new AbortController()
    this.#calls.set(page, call)
    try {
      const rows = await this.#fetch(page, call.signal)
      if (call.signal.aborted) return
      this.#pages.set(page, rows)
      const [oldest] = this.#pages.keys()
      if (this.#pages.size > MAX_PAGES && oldest !== undefined) this.#pages.delete(oldest)
      this.#calls.delete(page)
      this.#onChange(null)
    } catch (error) {
      if (this.#calls.get(page) === call) this.#calls.delete(page)
      if (!call.signal.aborted) this.#onChange(error)
    }
  }

  async #fetch(page: number, signal: AbortSignal): Promise<IdRow[]> {
    const start = page * PAGE_ROWS
    const limit = Math.min(PAGE_ROWS, this.count - start)
    const isFromEnd = start > this.count / 2
    const first = JSON.stringify(this.#prefix)
    const last = JSON.stringify(this.#prefix + LAST)
    const range =
      this.#prefix === ''
        ? {}
        : isFromEnd
          ? { startkey: last, endkey: first }
          : { startkey: first, endkey: last }
    const { rows } = await ask<AllDocs>(pathOf(this.#database, RESOURCES[this.#kind]), {
      query: {
        ...range,
        limit,
        skip: isFromEnd ? this.count - start - limit : start,
        ...(isFromEnd && { descending: true }),
      },
      signal,
    })
    const read = rows.map(({ id, value }) => ({ id, rev: value.rev }))
    return isFromEnd ? read.reverse() : read
  }
}

/** Rows that are all known. */
export class FixedRows implements RowSource {
  readonly #rows: readonly IdRow[]

  constructor(rows: readonly IdRow[]) {
    this.#rows = rows
  }

  get count(): number {
    return this.#rows.length
  }

  row(place: number): IdRow | undefined {
    return this.#rows[place]
  }

  want(): void {
    // They are all here.
  }

  close(): void {
    // Nothing is being read.
  }
}

/** `_local` documents that one list shows. */
const MAX_LOCAL = 1000

/** @returns the first `_local` documents with a prefix, and whether there are more */
export async function readLocals(
  database: string,
  prefix: string,
  signal: AbortSignal,
): Promise<{ readonly rows: readonly IdRow[]; readonly isCut: boolean }> {
  const start = prefix.startsWith('_local/') || prefix === '' ? prefix : `_local/${prefix}`
  const { rows } = await ask<AllDocs>(pathOf(database, RESOURCES.local), {
    query: {
      ...(start !== '' && { startkey: JSON.stringify(start), endkey: JSON.stringify(start + LAST) }),
      limit: MAX_LOCAL + 1,
    },
    signal,
  })
  const read = rows.slice(0, MAX_LOCAL).map(({ id, value }) => ({ id, rev: value.rev }))
  return { rows: read, isCut: rows.length > MAX_LOCAL }
}

interface ConflictPage {
  readonly rows: readonly { readonly id: string; readonly rev: string; readonly leaves: number }[]
  readonly bookmark: string | null
  readonly searched: number
}

/** @returns documents in conflict after a bookmark, and where to search on; null at the end */
export async function readConflicts(
  database: string,
  bookmark: string | null,
  signal: AbortSignal,
): Promise<{ readonly rows: readonly IdRow[]; readonly bookmark: string | null }> {
  const page = await ask<ConflictPage>(pathOf('_settee', 'databases', database, 'conflicts'), {
    query: { limit: 1000, ...(bookmark !== null && { bookmark }) },
    signal,
  })
  return {
    rows: page.rows.map(({ id, rev, leaves }) => ({ id, rev, conflicts: leaves - 1 })),
    bookmark: page.bookmark,
  }
}
