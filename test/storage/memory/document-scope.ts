/** How the engine in memory passes a document to a callback: it can be used only until the callback returns. */
import type { Branch } from '../../../src/revisions/branch.ts'
import { parseRev, type Rev } from '../../../src/revisions/rev.ts'
import type {
  DocHistory,
  HistoryReadSet,
  StoredVersion,
  VersionRange,
} from '../../../src/storage/history-store.ts'
import type { Row, StoredDoc } from './state.ts'

/** What is read of a document, as {@link HistoryReadSet} names it. */
export type Part =
  | { readonly kind: 'branches' | 'revisions' | 'retained' | 'versions' }
  | { readonly kind: 'ancestry' | 'content' | 'attachments' | 'deletion'; readonly rev: string }

/** What the members of a document are loaded from when they are read. */
export interface Disk {
  /** Called before each load; what it throws is a fault of the disk. */
  load(operation: string): void
  /** Whether what is kept for the time machine alone is shown. */
  readonly showsKept?: boolean
  /** Called with the characters of each body that is read. */
  countChars?(chars: number): void
  /** Called before a part is read; what it throws reaches the callback. */
  onRead?(part: Part): void
}

/** Calls back with a document, for a callback that has declared what it reads. */
export type WithDocument = <R>(
  doc: StoredDoc | undefined,
  disk: Disk,
  readSet: HistoryReadSet | undefined,
  use: (doc: DocHistory | null) => R,
) => R

/**
 * Calls back with a document. Its members are loaded when they are read, and neither it nor its branches can be used
 * afterwards.
 * @param disk what an engine would read from when a member is used
 */
export const withDocument: WithDocument = (doc, disk, _readSet, use) => {
  if (doc === undefined) return use(null)
  const scope: Scope = { isOver: false }
  const { proxy, revoke } = Proxy.revocable(docState(doc, disk, scope), {})
  try {
    return use(proxy)
  } finally {
    scope.isOver = true
    revoke()
  }
}

interface Scope {
  isOver: boolean
}

/** A branch of such a document. A class rather than a revocable proxy, since a document may have thousands. */
class ScopedBranch implements Branch {
  readonly #row: Row
  readonly #rev: Rev
  readonly #disk: Disk
  readonly #scope: Scope

  constructor(row: Row, disk: Disk, scope: Scope) {
    this.#row = row
    this.#rev = parseRev(row.rev)
    this.#disk = disk
    this.#scope = scope
  }

  get pos(): number {
    this.#check()
    return this.#rev.pos
  }

  get leaf(): string {
    this.#check()
    return this.#rev.id
  }

  get deleted(): boolean {
    this.#check()
    return this.#row.deleted
  }

  get ids(): readonly string[] {
    this.#check()
    this.#disk.onRead?.({ kind: 'ancestry', rev: this.#row.rev })
    this.#disk.load('load ancestry')
    return this.#row.ancestry ?? []
  }

  #check(): void {
    if (this.#scope.isOver) throw new TypeError('The branch was used after its callback.')
  }
}

function docState(doc: StoredDoc, disk: Disk, scope: Scope): DocHistory {
  const { load, showsKept = false } = disk
  const counted = new Set<string>()
  let branches: readonly Branch[] | undefined
  const onRead = (part: Part) => disk.onRead?.(part)
  const { id, seq, rev, deleted, rows } = doc
  const leaves = () => [...rows.values()].filter((row) => row.leaf)
  const stored = () => [...rows.values()].filter((row) => showsKept || !row.isKept)
  const storedRow = (wanted: string) => {
    const row = rows.get(wanted)
    return row === undefined || (row.isKept && !showsKept) ? undefined : row
  }
  return {
    id,
    seq,
    rev,
    deleted,
    get hasOneLeaf() {
      return leaves().length === 1
    },
    get branches() {
      onRead({ kind: 'branches' })
      branches ??= leaves().map((row) => new ScopedBranch(row, disk, scope))
      return branches
    },
    versions: (range) => {
      onRead({ kind: 'versions' })
      load('load versions')
      return versionsOf([...rows.values()], range)
    },
    revisions() {
      onRead({ kind: 'revisions' })
      return stored().map((row) => ({ rev: row.rev, deleted: row.deleted, leaf: row.leaf }))
    },
    retained() {
      onRead({ kind: 'retained' })
      return [...rows.values()].flatMap((row) => (row.isKept ? row.rev : []))
    },
    isDeleted(wanted) {
      onRead({ kind: 'deletion', rev: wanted })
      return storedRow(wanted)?.deleted ?? null
    },
    body(wanted) {
      onRead({ kind: 'content', rev: wanted })
      load('load body')
      const text = storedRow(wanted)?.body ?? null
      if (text !== null && !counted.has(wanted)) disk.countChars?.(text.length)
      counted.add(wanted)
      return text
    },
    attachments(wanted) {
      onRead({ kind: 'attachments', rev: wanted })
      load('load attachments')
      return storedRow(wanted)?.attachments ?? []
    },
  }
}

function versionsOf(
  rows: readonly Row[],
  { leavesAfter = -1, storedBy = Infinity, before = Infinity, limit = Infinity }: VersionRange = {},
): StoredVersion[] {
  return rows
    .filter(({ place, supersededAt }) => place < before && (supersededAt ?? Infinity) > leavesAfter)
    .filter(({ storedAt }) => (storedAt ?? 0) <= storedBy)
    .sort((a, b) => b.place - a.place)
    .slice(0, limit)
    .map(({ rev, deleted, place, storedAt, supersededAt, grownAt, isKept, body, attachments }) => {
      const size = attachments.reduce((sum, { length }) => sum + length, Buffer.byteLength(body ?? ''))
      return {
        rev,
        deleted,
        place,
        storedAt,
        supersededAt,
        grownAt,
        isRetained: isKept,
        size,
        attachments: attachments.length,
      }
    })
}
