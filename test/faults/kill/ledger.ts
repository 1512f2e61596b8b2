/**
 * What was written, what of it was acknowledged, and so what must be there. Each thing has one writer, who sends the
 * next write when the one before is answered: after a kill it stands as the last acknowledged write left it, or as
 * the one write after that, which has no answer. Nothing else is right, and nothing in between.
 */

/** How a thing stands. */
export interface State {
  /** All that its writer gave, as a text; null when it is not there, or deleted. */
  readonly content: string | null
  /** Null for what is not there, never was, or is purged, and for what has no revisions. */
  readonly rev: string | null
}

const NOTHING: State = { content: null, rev: null }

/** In the place of a revision that the server makes and has not told yet. */
const NEXT = 'next'

/** One document, `_local` document, setting or database. */
export class Cell {
  readonly name: string
  /** As the last acknowledged write, or the last look, left it. */
  known: State = NOTHING
  /** What a write has made of it that has no answer yet. */
  maybe: State | undefined
  /** Whether a write was sent since it was last looked at. */
  isDirty = false

  constructor(name: string) {
    this.name = name
  }

  /** A write is about to be sent. @param rev that it makes; by default one that the server is to tell */
  will(content: string | null, rev: string | null = NEXT): void {
    this.maybe = { content, rev }
    this.isDirty = true
  }

  /** The write is acknowledged. @param rev where the server has told one */
  did(rev?: string): void {
    const { content, rev: wanted } = this.maybe as State
    this.known = { content, rev: rev ?? wanted }
    this.maybe = undefined
  }

  /** Takes what is there for what is known from now on. @returns what is wrong with it; null when nothing is */
  settle(seen: State): string | null {
    const { known, maybe } = this
    const isRight = isSame(seen, known) || (maybe !== undefined && isMade(seen, maybe, known))
    const fault = `${this.name} is ${brief(seen)}; acknowledged was ${brief(known)}, unanswered ${brief(maybe)}`
    this.known = seen
    this.maybe = undefined
    this.isDirty = false
    return isRight ? null : fault
  }
}

function isSame(seen: State, wanted: State): boolean {
  return seen.content === wanted.content && seen.rev === wanted.rev
}

/** Whether what is there was made, upon what was known, by a write that has no answer. */
function isMade(seen: State, maybe: State, known: State): boolean {
  if (maybe.rev !== NEXT) return isSame(seen, maybe)
  return seen.content === maybe.content && generation(seen.rev) === generation(known.rev) + 1
}

export function generation(rev: string | null): number {
  return rev === null ? 0 : Number.parseInt(rev, 10)
}

function brief(state: State | undefined): string {
  return state === undefined ? 'none' : `${state.rev} ${state.content?.slice(0, 200) ?? 'gone'}`
}

/** Everything that was ever written. */
export class Ledger {
  /** Documents by database and id. */
  readonly docs = new Map<string, Map<string, Cell>>()
  /** `_local` documents, settings and databases, by path. */
  readonly others = new Map<string, Cell>()

  doc(database: string, id: string): Cell {
    const cells = this.docs.get(database) ?? new Map<string, Cell>()
    this.docs.set(database, cells)
    return cellOf(cells, id, `${database}/${id}`)
  }

  other(path: string): Cell {
    return cellOf(this.others, path, path)
  }
}

function cellOf(cells: Map<string, Cell>, key: string, name: string): Cell {
  const cell = cells.get(key) ?? new Cell(name)
  cells.set(key, cell)
  return cell
}

/** What a document as it is read holds that its writer gave: members in their order, and attachments by name. */
export function contentOf(doc: Record<string, unknown>): string {
  const members = Object.entries(doc).filter(([name]) => !name.startsWith('_'))
  const stubs = Object.entries((doc._attachments ?? {}) as Record<string, Stub>)
  const attachments = stubs
    .map(([name, { content_type, length, digest }]) => [name, content_type, length, digest])
    .sort(([a], [b]) => ((a as string) < (b as string) ? -1 : 1))
  return JSON.stringify([members, attachments])
}

export interface Stub {
  readonly content_type: string
  readonly length: number
  readonly digest: string
}
