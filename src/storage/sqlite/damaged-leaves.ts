/** The leaves of a database that are known to be damaged, so that devices are asked for them. */
import type { DamagedLeaf } from '../engine.ts'
import type { Connection } from './connection.ts'
import type { Meta } from './meta.ts'
import type { Statement } from './statement.ts'

/** The key in `meta` of a JSON array: when the last one was noted, and document numbers and revisions in turns. */
export const DAMAGED_LEAVES_KEY = 'damaged_leaves'
/** About 50 kB. What is damaged beyond that is noted when some of these are whole. */
const MAX_LEAVES = 1000

/** Leaves that are noted of those that share one content: one that brings it again mends it for all. */
const MAX_SHARING = 100

const NONE: ReadonlySet<string> = new Set()

interface Leaf {
  readonly doc: number
  readonly rev: string
}

/** They are in memory while the file is open, and are written with the next transaction. */
export class DamagedLeaves {
  /** By the number of the document's row. */
  readonly #leaves = new Map<number, Set<string>>()
  readonly #meta: Meta
  readonly #isLeaf: Statement<{ found: number }>
  readonly #id: Statement<{ id: unknown }>
  readonly #ofRevision: Statement<Leaf>
  readonly #ofContent: Statement<Leaf>
  readonly #now: () => number
  readonly #onNoted: () => void
  /** Removed in this transaction, and whether they are whole. */
  readonly #removed: (readonly [doc: number, rev: string, isWhole: boolean])[] = []
  #size = 0
  /** In ms since 1970. */
  #notedAt = 0
  #isWritten = true

  /**
   * @param now the time, in ms since 1970
   * @param onNoted called with each new one; the caller sees to it that a transaction writes it
   */
  constructor(connection: Connection, meta: Meta, now: () => number, onNoted: () => void) {
    this.#meta = meta
    this.#now = now
    this.#onNoted = onNoted
    this.#isLeaf = connection.prepare('SELECT 1 AS found FROM revision WHERE doc = ? AND rev = ? AND leaf')
    this.#id = connection.prepare('SELECT id FROM doc WHERE num = ?')
    this.#ofRevision = connection.prepare('SELECT doc, rev FROM revision WHERE num = ?')
    this.#ofContent = connection.prepare(
      'SELECT r.doc, r.rev FROM attachment AS a JOIN revision AS r ON r.num = a.revision ' +
        `WHERE a.blob = ? AND r.leaf LIMIT ${MAX_SHARING}`,
    )
    const stored = parsed(meta.get(DAMAGED_LEAVES_KEY))
    this.#notedAt = Number(stored[0])
    for (const [doc, rev] of leavesIn(stored)) this.#add(doc, rev)
  }

  get size(): number {
    return this.#size
  }

  /** Whether there are some, of which the last was noted after a time, in ms since 1970. */
  areNewSince(time: number): boolean {
    return this.#size > 0 && !(this.#notedAt < time)
  }

  /** The damaged leaves of a document, by the number of its row. */
  of(doc: number): ReadonlySet<string> {
    return this.#leaves.get(doc) ?? NONE
  }

  /** All of them, by the ids of their documents. */
  list(): DamagedLeaf[] {
    return [...this.#leaves].flatMap(([doc, revs]) => {
      const id = this.#id.get(doc)?.id
      return typeof id === 'string' ? [...revs].map((rev) => ({ id, rev })) : []
    })
  }

  /** Notes a damaged revision. Nothing changes if it is no leaf: no device is asked for a superseded revision. */
  note(doc: number, rev: string): void {
    if (this.of(doc).has(rev) || this.#size >= MAX_LEAVES) return
    if (this.#isLeaf.get(doc, rev) === undefined) return
    this.#add(doc, rev)
    this.#notedAt = this.#now()
    this.#isWritten = false
    this.#onNoted()
  }

  /** As {@link note}, by the number of the revision's row. */
  noteRevision(num: number): void {
    for (const { doc, rev } of this.#ofRevision.all(num)) this.note(doc, rev)
  }

  /** As {@link note}, for the leaves whose attachments have a content, by the number of its row. */
  noteContent(blob: number): void {
    for (const { doc, rev } of this.#ofContent.all(blob)) this.note(doc, rev)
  }

  #add(doc: number, rev: string): void {
    const ofDocument = this.#leaves.get(doc) ?? new Set()
    this.#leaves.set(doc, ofDocument.add(rev))
    this.#size += 1
  }

  /** Notes that a revision was written again, or is no leaf any more. */
  restored(doc: number, rev: string): void {
    this.#remove(doc, rev, true)
  }

  /** Notes that a revision was purged. */
  forget(doc: number, rev: string): void {
    this.#remove(doc, rev, false)
  }

  #remove(doc: number, rev: string, isWhole: boolean): void {
    const ofDocument = this.#leaves.get(doc)
    if (!ofDocument?.delete(rev)) return
    this.#size -= 1
    if (ofDocument.size === 0) this.#leaves.delete(doc)
    this.#removed.push([doc, rev, isWhole])
    this.#isWritten = false
  }

  /** Writes them, as part of a transaction, if they have changed. */
  flush(): void {
    if (this.#isWritten) return
    const leaves = [...this.#leaves].flatMap(([doc, revs]) => [...revs].flatMap((rev) => [doc, rev]))
    this.#meta.put(DAMAGED_LEAVES_KEY, JSON.stringify([this.#notedAt, ...leaves]))
  }

  /** Called when the transaction is durable. @returns how many leaves it has restored */
  committed(): number {
    this.#isWritten = true
    return this.#removed.splice(0).filter(([, , isWhole]) => isWhole).length
  }

  /** Called after a rollback. */
  restore(): void {
    for (const [doc, rev] of this.#removed.splice(0)) this.#add(doc, rev)
  }
}

/** Without what the disk has changed: it is found again when it is read. */
function* leavesIn(stored: readonly unknown[]): Iterable<readonly [doc: number, rev: string]> {
  for (let at = 1; at + 1 < stored.length && at < 2 * MAX_LEAVES; at += 2) {
    const [doc, rev] = [stored[at], stored[at + 1]]
    if (typeof doc === 'number' && typeof rev === 'string') yield [doc, rev]
  }
}

function parsed(stored: unknown): readonly unknown[] {
  if (typeof stored !== 'string') return []
  try {
    const value: unknown = JSON.parse(stored)
    return Array.isArray(value) ? value : []
  } catch {
    return []
  }
}
