/** Decides what to load of some documents, from the touches that their readers declare. */
import { formatRev, parseRev } from '../../revisions/rev.ts'
import type { HistoryTouches, VersionRange } from '../history-store.ts'
import type { RevisionPath } from '../touches.ts'
import { eachDocument, type Shape, type Source } from './document-statements.ts'
import { booleanArray, numberArray, textArray } from './parameter-arrays.ts'
import { storedText } from './stored-text.ts'

/** Of a path, how many revisions are loaded at once: the newest of them are the likely ones. */
const PATH_STEP = 4
const NEVER = Number.MAX_SAFE_INTEGER

/** A document, and what is to be loaded of it. */
interface Want {
  /** As it is stored. */
  readonly id: string
  /** The generation from which on the winner's ancestry is loaded, and that of other leaves. */
  winnerFrom: number
  leafFrom: number
  leafRevs: Set<string> | undefined
  /** Revisions that are looked up, and whether their bodies are loaded. */
  named: Map<string, boolean> | undefined
}

export class DocumentWants {
  readonly #wants = new Map<string, Want>()
  readonly #shape: { -readonly [Part in keyof Shape]: Shape[Part] }
  #versions: VersionRange | undefined
  /** Whether the lists of all revisions are needed. */
  #listsAll = false
  #winnersOnly = true
  #allLeaves = true

  /** @param writeFacts whether the documents are loaded to be written */
  constructor(writeFacts = false) {
    this.#shape = {
      content: null,
      leaves: false,
      bodies: false,
      ancestry: null,
      superseded: false,
      versions: false,
      named: false,
      writeFacts,
    }
  }

  /** What every statement of these documents reads. */
  get shape(): Shape {
    return this.#shape
  }

  /** The range of the versions that are loaded. */
  get versions(): VersionRange | undefined {
    return this.#listsAll && this.#versions ? {} : this.#versions
  }

  /** Whether all superseded revisions are loaded. */
  get listsAll(): boolean {
    return this.#listsAll
  }

  /** Adds a document; the same one may be added again. */
  add(id: string, touches: HistoryTouches = {}): void {
    let want = this.#wants.get(id)
    if (want === undefined) {
      want = { id: storedText(id), winnerFrom: NEVER, leafFrom: NEVER, leafRevs: undefined, named: undefined }
      this.#wants.set(id, want)
    }
    this.#addAncestries(want, touches)
    if (!this.#shape.writeFacts && isProbablyWinner(touches)) {
      this.#widen({ ...touches, revs: undefined })
      return
    }
    this.#widen(touches)
    if (!isNamed(touches)) return
    want.named ??= new Map()
    for (const rev of touches.attachments ?? []) if (!want.named.has(rev)) want.named.set(rev, false)
    for (const rev of touches.revs ?? []) want.named.set(rev, true)
    for (const path of touches.nearest ?? []) for (const rev of firstRevs(path)) want.named.set(rev, true)
  }

  /** What is loaded of all documents of a page alike. Revisions that are named, and lists, are left to be missed. */
  addAll({ body, bodies, branches, ancestry, versions }: HistoryTouches = {}): void {
    this.#widen({ body, bodies, branches, ancestry, ...(versions && { versions }) })
    if (ancestry !== undefined) this.#shape.ancestry = ancestry
  }

  #widen(touches: HistoryTouches): void {
    const shape = this.#shape
    const { revisions, retained, versions } = touches
    if (isNamed(touches)) {
      shape.named = true
      shape.content ??= 'attachments'
    }
    if (touches.body || touches.bodies || touches.revs?.length || touches.nearest?.length)
      shape.content = 'body'
    if (touches.bodies) shape.bodies = true
    if (revisions || versions || needsLeaves(touches)) shape.leaves = true
    if (revisions || retained || versions) shape.superseded = true
    if (revisions || retained) this.#listsAll = true
    if (versions === undefined) return
    shape.versions = true
    this.#versions = this.#versions === undefined ? versions : {}
  }

  #addAncestries(want: Want, { ancestry, ancestryOf, ancestryFrom = NEVER }: HistoryTouches): void {
    if (ancestry === undefined && !ancestryOf?.length && ancestryFrom === NEVER) return
    if (ancestry === 'leaves') want.leafFrom = 0
    if (ancestry !== undefined) want.winnerFrom = 0
    for (const rev of ancestryOf ?? []) {
      want.winnerFrom = Math.min(want.winnerFrom, parseRev(rev).pos)
      want.leafRevs ??= new Set()
      want.leafRevs.add(rev)
    }
    want.winnerFrom = Math.min(want.winnerFrom, ancestryFrom)
    want.leafFrom = Math.min(want.leafFrom, ancestryFrom)
    if (ancestry !== 'winner') this.#winnersOnly = false
    if (ancestry !== 'leaves' || ancestryOf?.length) this.#allLeaves = false
    this.#shape.ancestry = this.#winnersOnly ? 'winner' : this.#allLeaves ? 'leaves' : 'from'
  }

  get ids(): string[] {
    return [...this.#wants.keys()]
  }

  /** The revisions of a document that are looked up. */
  namedOf(id: string): Iterable<string> | undefined {
    return this.#shape.named ? this.#wants.get(id)?.named?.keys() : undefined
  }

  /**
   * The source of these documents.
   * @param isBounded whether the bodies of all of them may be too much
   * @param isShared as in LoadOptions
   */
  source(isBounded: boolean, isShared: boolean): Source {
    if (isBounded) return PLACES
    if (this.#wants.size === 1) return ONE
    if (this.#shape.ancestry === 'from') return FROM_GENERATIONS
    return isShared ? SHORT : BY_IDS
  }

  /** The value of a name in the statements, if it is one of these documents'. */
  value(name: string): unknown {
    const one = this.#wants.values().next().value
    switch (name) {
      case 'id':
        return one?.id
      case 'ids':
        return textArray(this.#each(({ id }) => id))
      case 'winnerFrom':
      case 'leafFrom':
        return one?.[name]
      case 'winnersFrom':
        return numberArray(this.#each(({ winnerFrom }) => winnerFrom))
      case 'leavesFrom':
        return numberArray(this.#each(({ leafFrom }) => leafFrom))
      case 'leafRevs':
        return textArray(this.#eachRev(({ leafRevs }) => leafRevs, storedText))
      case 'namedIds':
        return textArray(
          this.#eachRev(
            ({ named }) => named?.keys(),
            (_, { id }) => id,
          ),
        )
      case 'namedRevs':
        return textArray(this.#eachRev(({ named }) => named?.keys(), storedText))
      case 'namedBodies':
        return booleanArray(
          this.#eachRev(
            ({ named }) => named?.values(),
            (withBody) => withBody,
          ),
        )
      default:
        return this.#versionBound(name)
    }
  }

  #versionBound(name: string): number | undefined {
    const { leavesAfter = -1, storedBy = NEVER, before = NEVER, limit = NEVER } = this.versions ?? {}
    return { leavesAfter, storedBy, versionsBefore: before, versionsLimit: limit }[name]
  }

  #each<T>(of: (want: Want) => T): T[] {
    return Array.from(this.#wants.values(), of)
  }

  #eachRev<T, R>(of: (want: Want) => Iterable<T> | undefined, value: (part: T, want: Want) => R): R[] {
    const values: R[] = []
    for (const want of this.#wants.values()) {
      for (const part of of(want) ?? []) values.push(value(part, want))
    }
    return values
  }
}

const ONE: Source = {
  name: 'one',
  from: 'doc x',
  where: 'x.db = {db} AND x.id = {id}',
  isOne: true,
  ids: { from: '(SELECT {id}::text AS id) n', id: 'n.id' },
  generations: { winner: '{winnerFrom}', leaf: '{leafFrom}' },
}

const IDS = 'unnest({ids}::text[]) n(id)'

const BY_IDS: Source = {
  name: 'ids',
  from: `${IDS} ${eachDocument('x.id = n.id')}`,
  ids: { from: IDS, id: 'n.id' },
  generations: { winner: '0', leaf: '0' },
}

/** A body that is longer is read by a statement of its own, so that no other reader waits for it. */
const SHORT: Source = { ...BY_IDS, name: 'short', maxBody: 64 * 1024 }

const WITH_GENERATIONS =
  'unnest({ids}::text[], {winnersFrom}::bigint[], {leavesFrom}::bigint[]) WITH ORDINALITY n(id, winner_gen, leaf_gen, place)'

const FROM_GENERATIONS: Source = {
  name: 'gens',
  from: `${WITH_GENERATIONS} ${eachDocument('x.id = n.id')}`,
  ids: { from: WITH_GENERATIONS, id: 'n.id' },
  generations: { winner: 'n.winner_gen', leaf: 'n.leaf_gen' },
}

const PLACES: Source = {
  name: 'places',
  from: FROM_GENERATIONS.from,
  page: { order: '', bound: 'places' },
  generations: { winner: 'x.winner_gen', leaf: 'x.leaf_gen' },
}

/** Whether revisions are looked up. */
function isNamed({ revs, nearest, attachments }: HistoryTouches): boolean {
  return Boolean(revs?.length || nearest?.length || attachments?.length)
}

/**
 * Whether a reader who names one revision most likely means the winner, as replicators do. Then it is cheaper to look for
 * another one only where it is missed.
 */
function isProbablyWinner({ body, revs, nearest, attachments }: HistoryTouches): boolean {
  return body === true && revs?.length === 1 && !nearest?.length && !attachments?.length
}

function needsLeaves({ branches, bodies, ancestry, ancestryOf, ancestryFrom }: HistoryTouches): boolean {
  return Boolean(branches || bodies || ancestry === 'leaves' || ancestryOf || ancestryFrom !== undefined)
}

function firstRevs({ pos, ids }: RevisionPath): string[] {
  return ids.slice(0, PATH_STEP).map((id, at) => formatRev(pos - at, id))
}
