/** What is to be loaded of some documents, from the touches that their readers declare. */
import { formatRev, parseRev } from '../../revisions/rev.ts'
import type { HistoryTouches, VersionRange } from '../history-store.ts'
import type { RevisionPath } from '../touches.ts'
import { eachDocument, type Shape, type Source } from './document-statements.ts'
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
  readonly leafRevs: Set<string>
  /** Revisions that are looked up, and whether their bodies are loaded. */
  readonly named: Map<string, boolean>
}

export class DocumentWants {
  readonly #wants = new Map<string, Want>()
  #shape: Shape = {
    content: null,
    leaves: false,
    bodies: false,
    ancestry: null,
    superseded: false,
    versions: false,
    named: false,
    writeFacts: false,
  }
  #versions: VersionRange | undefined
  /** Whether the lists of all revisions are needed. */
  #listsAll = false
  #winnersOnly = true

  /** @param writeFacts whether the documents are loaded to be written */
  constructor(writeFacts = false) {
    this.#shape = { ...this.#shape, writeFacts }
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
      want = { id: storedText(id), winnerFrom: NEVER, leafFrom: NEVER, leafRevs: new Set(), named: new Map() }
      this.#wants.set(id, want)
    }
    this.#widen(touches)
    this.#addAncestries(want, touches)
    for (const rev of touches.attachments ?? []) if (!want.named.has(rev)) want.named.set(rev, false)
    for (const rev of touches.revs ?? []) want.named.set(rev, true)
    for (const path of touches.nearest ?? []) for (const rev of firstRevs(path)) want.named.set(rev, true)
  }

  /** What is loaded of all documents of a page alike. Revisions that are named, and lists, are left to be missed. */
  addAll({ body, bodies, branches, ancestry, versions }: HistoryTouches = {}): void {
    this.#widen({ body, bodies, branches, ancestry, ...(versions && { versions }) })
    if (ancestry !== undefined) this.#shape = { ...this.#shape, ancestry }
  }

  #widen(touches: HistoryTouches): void {
    const { body, bodies, branches, ancestry, ancestryOf, ancestryFrom, revs, nearest, attachments } = touches
    const { revisions, retained, versions } = touches
    const before = this.#shape
    const hasBody = body || bodies || (revs?.length ?? 0) > 0 || (nearest?.length ?? 0) > 0
    const isNamed = (revs?.length ?? 0) + (nearest?.length ?? 0) + (attachments?.length ?? 0) > 0
    const needsLeaves =
      branches ||
      bodies ||
      ancestry === 'leaves' ||
      ancestryOf ||
      ancestryFrom !== undefined ||
      revisions ||
      versions
    this.#shape = {
      ...before,
      content: hasBody ? 'body' : (before.content ?? (isNamed ? 'attachments' : null)),
      leaves: before.leaves || Boolean(needsLeaves),
      bodies: before.bodies || bodies === true,
      superseded: before.superseded || Boolean(revisions || retained || versions),
      versions: before.versions || versions !== undefined,
      named: before.named || isNamed,
    }
    this.#listsAll ||= Boolean(revisions || retained)
    if (versions !== undefined) this.#versions = this.#versions === undefined ? versions : {}
  }

  #addAncestries(want: Want, { ancestry, ancestryOf = [], ancestryFrom = NEVER }: HistoryTouches): void {
    if (ancestry === undefined && ancestryOf.length === 0 && ancestryFrom === NEVER) return
    if (ancestry === 'leaves') want.leafFrom = 0
    if (ancestry !== undefined) want.winnerFrom = 0
    for (const rev of ancestryOf) {
      want.winnerFrom = Math.min(want.winnerFrom, parseRev(rev).pos)
      want.leafRevs.add(rev)
    }
    want.winnerFrom = Math.min(want.winnerFrom, ancestryFrom)
    want.leafFrom = Math.min(want.leafFrom, ancestryFrom)
    if (ancestry !== 'winner') this.#winnersOnly = false
    this.#shape = { ...this.#shape, ancestry: this.#winnersOnly ? 'winner' : 'from' }
  }

  get ids(): string[] {
    return [...this.#wants.keys()]
  }

  /** The revisions of a document that are looked up. */
  namedOf(id: string): Iterable<string> {
    return this.#wants.get(id)?.named.keys() ?? []
  }

  /** The source of these documents. @param isBounded whether the bodies of all of them may be too much */
  source(isBounded: boolean): Source {
    if (isBounded) return PLACES
    if (this.#wants.size === 1) return ONE
    return this.#shape.ancestry === 'from' ? FROM_GENERATIONS : BY_IDS
  }

  /** The value of a name in the statements, if it is one of these documents'. */
  value(name: string): unknown {
    const one = this.#wants.values().next().value
    switch (name) {
      case 'id':
        return one?.id
      case 'ids':
        return this.#each(({ id }) => id)
      case 'winnerFrom':
      case 'leafFrom':
        return one?.[name]
      case 'winnersFrom':
        return this.#each(({ winnerFrom }) => winnerFrom)
      case 'leavesFrom':
        return this.#each(({ leafFrom }) => leafFrom)
      case 'leafRevs':
        return this.#each(({ leafRevs }) => [...leafRevs].map(storedText)).flat()
      case 'namedIds':
        return this.#each(({ id, named }) => [...named].map(() => id)).flat()
      case 'namedRevs':
        return this.#each(({ named }) => [...named.keys()].map(storedText)).flat()
      case 'namedBodies':
        return this.#each(({ named }) => [...named.values()]).flat()
      default:
        return this.#versionBound(name)
    }
  }

  #versionBound(name: string): number | undefined {
    const { leavesAfter = -1, storedBy = NEVER, before = NEVER, limit = NEVER } = this.versions ?? {}
    return { leavesAfter, storedBy, versionsBefore: before, versionsLimit: limit }[name]
  }

  #each<T>(of: (want: Want) => T): T[] {
    return [...this.#wants.values()].map(of)
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

function firstRevs({ pos, ids }: RevisionPath): string[] {
  return ids.slice(0, PATH_STEP).map((id, at) => formatRev(pos - at, id))
}
