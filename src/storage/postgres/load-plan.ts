/** Plans the query that loads what callers declared to read of some documents. */
import { formatRev, parseRev } from '../../revisions/rev.ts'
import type { HistoryReadSet, VersionRange } from '../history-store.ts'
import type { RevisionPath } from '../read-set.ts'
import { eachDocument, type Shape, type Source } from './document-statements.ts'
import { booleanArray, numberArray, textArray } from './parameter-arrays.ts'
import { storedText } from './stored-text.ts'

/** Of a path, how many revisions are loaded at once: the newest of them are the likely ones. */
const PATH_STEP = 4
const NEVER = Number.MAX_SAFE_INTEGER

/** A document, and what is to be loaded of it. */
interface PlannedDocument {
  /** As it is stored. */
  readonly id: string
  /** The generation from which on the winner's ancestry is loaded, and that of other leaves. */
  winnerFrom: number
  leafFrom: number
  leafRevs: Set<string> | undefined
  /** Revisions that are looked up, and whether their bodies are loaded. */
  named: Map<string, boolean> | undefined
}

export class LoadPlan {
  readonly #documents = new Map<string, PlannedDocument>()
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
  add(id: string, readSet: HistoryReadSet = {}): void {
    let document = this.#documents.get(id)
    if (document === undefined) {
      document = {
        id: storedText(id),
        winnerFrom: NEVER,
        leafFrom: NEVER,
        leafRevs: undefined,
        named: undefined,
      }
      this.#documents.set(id, document)
    }
    this.#addAncestries(document, readSet)
    if (!this.#shape.writeFacts && isProbablyWinner(readSet)) {
      this.#widen({ ...readSet, revs: undefined })
      return
    }
    this.#widen(readSet)
    if (!isNamed(readSet)) return
    document.named ??= new Map()
    for (const rev of readSet.attachments ?? []) if (!document.named.has(rev)) document.named.set(rev, false)
    for (const rev of readSet.revs ?? []) document.named.set(rev, true)
    for (const path of readSet.nearest ?? []) for (const rev of firstRevs(path)) document.named.set(rev, true)
  }

  /** What is loaded of all documents of a page alike. Revisions that are named, and lists, are left to be missed. */
  addAll({ body, bodies, branches, ancestry, versions }: HistoryReadSet = {}): void {
    this.#widen({ body, bodies, branches, ancestry, ...(versions && { versions }) })
    if (ancestry !== undefined) this.#shape.ancestry = ancestry
  }

  #widen(readSet: HistoryReadSet): void {
    const shape = this.#shape
    const { revisions, retained, versions } = readSet
    if (isNamed(readSet)) {
      shape.named = true
      shape.content ??= 'attachments'
    }
    if (readSet.body || readSet.bodies || readSet.revs?.length || readSet.nearest?.length)
      shape.content = 'body'
    if (readSet.bodies) shape.bodies = true
    if (revisions || versions || needsLeaves(readSet)) shape.leaves = true
    if (revisions || retained || versions) shape.superseded = true
    if (revisions || retained) this.#listsAll = true
    if (versions === undefined) return
    shape.versions = true
    this.#versions = this.#versions === undefined ? versions : {}
  }

  #addAncestries(
    document: PlannedDocument,
    { ancestry, ancestryOf, ancestryFrom = NEVER }: HistoryReadSet,
  ): void {
    if (ancestry === undefined && !ancestryOf?.length && ancestryFrom === NEVER) return
    if (ancestry === 'leaves') document.leafFrom = 0
    if (ancestry !== undefined) document.winnerFrom = 0
    for (const rev of ancestryOf ?? []) {
      document.winnerFrom = Math.min(document.winnerFrom, parseRev(rev).pos)
      document.leafRevs ??= new Set()
      document.leafRevs.add(rev)
    }
    document.winnerFrom = Math.min(document.winnerFrom, ancestryFrom)
    document.leafFrom = Math.min(document.leafFrom, ancestryFrom)
    if (ancestry !== 'winner') this.#winnersOnly = false
    if (ancestry !== 'leaves' || ancestryOf?.length) this.#allLeaves = false
    this.#shape.ancestry = this.#winnersOnly ? 'winner' : this.#allLeaves ? 'leaves' : 'from'
  }

  get ids(): string[] {
    return [...this.#documents.keys()]
  }

  /** The revisions of a document that are looked up. */
  namedOf(id: string): Iterable<string> | undefined {
    return this.#shape.named ? this.#documents.get(id)?.named?.keys() : undefined
  }

  /**
   * The source of these documents.
   * @param isBounded whether the bodies of all of them may be too much
   * @param isShared as in LoadOptions
   */
  source(isBounded: boolean, isShared: boolean): Source {
    if (isBounded) return PLACES
    if (this.#documents.size === 1) return ONE
    if (this.#shape.ancestry === 'from') return FROM_GENERATIONS
    return isShared ? SHORT : BY_IDS
  }

  /** The value of a name in the statements, if it is one of these documents'. */
  value(name: string): unknown {
    const one = this.#documents.values().next().value
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

  #each<T>(of: (document: PlannedDocument) => T): T[] {
    return Array.from(this.#documents.values(), of)
  }

  #eachRev<T, R>(
    of: (document: PlannedDocument) => Iterable<T> | undefined,
    value: (part: T, document: PlannedDocument) => R,
  ): R[] {
    const values: R[] = []
    for (const document of this.#documents.values()) {
      for (const part of of(document) ?? []) values.push(value(part, document))
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
function isNamed({ revs, nearest, attachments }: HistoryReadSet): boolean {
  return Boolean(revs?.length || nearest?.length || attachments?.length)
}

/**
 * Whether a reader who names one revision most likely means the winner, as replicators do. Then it is cheaper to look for
 * another one only where it is missed.
 */
function isProbablyWinner({ body, revs, nearest, attachments }: HistoryReadSet): boolean {
  return body === true && revs?.length === 1 && !nearest?.length && !attachments?.length
}

function needsLeaves({ branches, bodies, ancestry, ancestryOf, ancestryFrom }: HistoryReadSet): boolean {
  return Boolean(branches || bodies || ancestry === 'leaves' || ancestryOf || ancestryFrom !== undefined)
}

function firstRevs({ pos, ids }: RevisionPath): string[] {
  return ids.slice(0, PATH_STEP).map((id, at) => formatRev(pos - at, id))
}
