/**
 * Gives up what is damaged of a document and of which there is no good copy, so that the rest is an ordinary document again.
 *
 * A device that has the damaged revision may still come: so the revision is purged, not deleted. The device then is ahead, and
 * its revision is taken when it compares its documents, or with its next edit. A deletion, or an older text as a newer
 * revision, would destroy what may be the only copy. docs/bad-disk.md tells this to users.
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import { CouchError, isDamage } from '../core/errors.ts'
import { Yielder } from '../core/event-loop.ts'
import { isDesignId, isLocalId } from '../core/ids.ts'
import type { UserCtx } from '../core/types.ts'
import { type Branch, leafRev, makeBranch, winner } from '../revisions/branch.ts'
import { isKnown } from '../revisions/branch-index.ts'
import { formatRev, newRevId, parseRev } from '../revisions/rev.ts'
import type {
  AttachmentWrite,
  DocState,
  Outcome,
  PurgeWrite,
  RevisionWrite,
  StoredAttachment,
} from '../storage/engine.ts'
import type { VersionedStore } from '../storage/history-store.ts'
import { unlessDamaged } from './render.ts'
import { requireServerAdmin } from './security.ts'

/** What is lost of one damaged leaf. */
export interface LostLeaf {
  readonly rev: string
  /**
   * `history`: only the names of its ancestors. `attachments`: only those. `text`: all of it; `after` is an earlier
   * version. `revision`: all of it, with the branch. `tombstone`: what a deletion had as its text.
   */
  readonly lost: 'history' | 'attachments' | 'text' | 'revision' | 'tombstone'
  /** The names of attachments that are lost; of a text, those that are known. */
  readonly attachments: readonly string[]
  /** The revision in its place; null: none. */
  readonly after: string | null
}

export interface GiveUpReport {
  readonly id: string
  readonly leaves: readonly LostLeaf[]
  /** Superseded revisions that are lost: they could be read only by their names. */
  readonly superseded: readonly string[]
  /** The winner afterwards; null: nothing is left of the document. */
  readonly rev: string | null
  readonly deleted: boolean
}

export interface GiveUp {
  /**
   * Gives up what is damaged of a document. For server admins.
   * @param options `dryRun`: only tells what would be lost
   * @throws not_found; bad_request if all of it can be read; damaged_document if a leaf hides its name; contended
   */
  giveUp(user: UserCtx, id: string, options: { readonly dryRun: boolean }): Promise<GiveUpReport>
}

/** Bytes of a content that are read in one turn. */
const STEP = 256 * 1024
/** Versions of a document that are looked at, the newest first. */
const MAX_VERSIONS = 1000
/** How often a document may change while its contents are read. */
const MAX_TRIES = 5

/** A stored revision. */
interface Version {
  readonly rev: string
  readonly deleted: boolean
  /** Whether its text can be read. */
  readonly hasBody: boolean
  /** null if they cannot be read. */
  readonly attachments: readonly StoredAttachment[] | null
}

/** What can be read of a document. */
interface Inspection {
  readonly leaves: readonly Version[]
  /** Superseded and retained ones, the newest first. */
  readonly others: readonly Version[]
}

interface Plan {
  readonly report: GiveUpReport
  readonly write: PurgeWrite
  /** Earlier versions that take the place of a leaf, and whose texts were not given. */
  readonly needs: readonly string[]
}

/** @param store the database's documents */
export function giveUpCalls(store: VersionedStore): GiveUp {
  return {
    giveUp: async (user, id, { dryRun }) => {
      requireServerAdmin(user)
      // Others are in no engine as the id of a document.
      if (isLocalId(id) || !id.isWellFormed()) throw new CouchError('not_found')
      for (let tries = 0; tries < MAX_TRIES; tries++) {
        const found = await inspect(store, id)
        const lost = await unreadableContents(store, found)
        const plan = await planned(store, id, { found, lost, bodies: new Map() }, true)
        if (plan === null) continue
        if (dryRun) return plan.report
        const bodies = new Map<string, string>()
        for (const rev of plan.needs) {
          const body = await versionIn(store, id, rev, (doc) => doc.body(rev))
          if (body !== null) bodies.set(rev, body)
        }
        const done = await planned(store, id, { found, lost, bodies }, false)
        if (done?.needs.length === 0) return done.report
      }
      throw new CouchError('contended')
    },
  }
}

/** One version is in memory at a time. */
async function inspect(store: VersionedStore, id: string): Promise<Inspection> {
  const branches = await decided(store, id, (doc) => {
    if (doc === null) throw new CouchError('not_found')
    return { result: doc.branches.map((branch) => ({ rev: leafRev(branch), deleted: branch.deleted })) }
  })
  const leaves: Version[] = []
  for (const { rev, deleted } of branches) {
    leaves.push(
      await decided(store, id, (doc) => {
        if (doc === null) throw new CouchError('not_found')
        return { result: versionOf(doc, rev, deleted) }
      }),
    )
  }
  // A document whose row is damaged has no history that can be read.
  const others = await superseded(store, id).catch((error: unknown) => {
    if (isDamage(error)) return []
    throw error
  })
  return { leaves, others }
}

async function superseded(store: VersionedStore, id: string): Promise<Version[]> {
  const range = { limit: MAX_VERSIONS }
  const [listed = []] = await store.history.readDocs(
    [id],
    (doc) => (doc?.versions(range) ?? []).filter(({ supersededAt }) => supersededAt !== null),
    { versions: range },
  )
  const versions: Version[] = []
  for (const { rev, deleted } of listed) {
    const version = await versionIn(store, id, rev, (doc) => versionOf(doc, rev, deleted))
    if (version !== null) versions.push(version)
    await nextTurn()
  }
  return versions
}

/** Reads a version, also a retained one. @returns null if it is gone */
async function versionIn<R>(
  { history }: VersionedStore,
  id: string,
  rev: string,
  read: (doc: DocState) => R,
): Promise<R | null> {
  const [found = null] = await history.readDocs([id], (doc) => doc && read(doc), { revs: [rev] })
  return found
}

function versionOf(doc: Pick<DocState, 'body' | 'attachments'>, rev: string, deleted: boolean): Version {
  const hasBody = unlessDamaged(
    () => doc.body(rev) !== null,
    () => false,
  )
  const attachments = unlessDamaged(
    () => doc.attachments(rev),
    () => null,
  )
  return { rev, deleted, hasBody, attachments }
}

/** A decision in the turn that writes. `salvages`: also of a document whose row is damaged. @throws what `decide` throws */
async function decided<R>(
  store: VersionedStore,
  id: string,
  decide: (doc: DocState | null) => { readonly result: R; readonly write?: PurgeWrite },
): Promise<R> {
  const readSet = {
    branches: true,
    ancestry: 'leaves',
    bodies: true,
    revisions: true,
    retained: true,
  } as const
  const [outcome] = (await store.purgeDocs([{ id, readSet, salvages: true, decide }])) as [Outcome<R>]
  if ('result' in outcome) return outcome.result
  throw 'error' in outcome ? outcome.error : new CouchError('contended')
}

/** @returns the numbers of the contents of which a piece is damaged */
async function unreadableContents(
  store: VersionedStore,
  { leaves, others }: Inspection,
): Promise<ReadonlySet<number>> {
  const contents = new Map<number, number>()
  for (const { attachments } of [...leaves, ...others])
    for (const { blob, storedLength } of attachments ?? []) contents.set(blob, storedLength)
  const lost = new Set<number>()
  const yielder = new Yielder()
  for (const [blob, length] of contents) {
    for (let at = 0; at < length; at += STEP) {
      const piece = await store.readBlob(blob, at, Math.min(STEP, length - at)).catch(() => null)
      if (piece === null) lost.add(blob)
      if (piece === null) break
      await yielder.yieldIfDue()
    }
  }
  return lost
}

interface Knowledge {
  readonly found: Inspection
  /** The numbers of the contents of which a piece is damaged. */
  readonly lost: ReadonlySet<number>
  /** The texts of earlier versions, as far as they were read. */
  readonly bodies: ReadonlyMap<string, string>
}

/** @returns null if the leaves have changed since they were read */
function planned(
  store: VersionedStore,
  id: string,
  knowledge: Knowledge,
  dryRun: boolean,
): Promise<Plan | null> {
  return decided(store, id, (doc) => {
    if (doc === null) throw new CouchError('not_found')
    const known = new Set(knowledge.found.leaves.map(({ rev }) => rev))
    const branches = [...doc.branches]
    if (branches.length !== known.size || !branches.every((branch) => known.has(leafRev(branch))))
      return { result: null }
    const plan = new Planner(doc, branches, knowledge).plan()
    return dryRun || plan.needs.length > 0 ? { result: plan } : { result: plan, write: plan.write }
  })
}

/** Decides for each leaf what is left of it. */
class Planner {
  readonly #doc: DocState
  readonly #branches: readonly Branch[]
  readonly #found: Inspection
  readonly #lost: ReadonlySet<number>
  readonly #bodies: ReadonlyMap<string, string>
  readonly #needs: string[] = []
  /** The branches afterwards. */
  readonly #left: Branch[] = []
  readonly #gone = new Set<string>()
  readonly #purged: string[] = []
  readonly #writes = new Map<string, RevisionWrite>()
  readonly #leaves: LostLeaf[] = []

  constructor(doc: DocState, branches: readonly Branch[], { found, lost, bodies }: Knowledge) {
    this.#doc = doc
    this.#branches = branches
    this.#found = found
    this.#lost = lost
    this.#bodies = bodies
  }

  /** @throws bad_request if nothing is damaged */
  plan(): Plan {
    const versions = new Map(this.#found.leaves.map((version) => [version.rev, version]))
    const damaged: [Branch, Version][] = []
    // What is whole comes first: a damaged branch may end in an ancestor of it.
    for (const branch of this.#branches) {
      const version = versions.get(leafRev(branch)) as Version
      if (this.#isWhole(version) && idsOf(branch) !== null) this.#left.push(branch)
      else damaged.push([branch, version])
    }
    for (const [branch, version] of damaged) this.#leave(branch, version)
    const superseded = this.#found.others.filter((version) => !this.#isWhole(version)).map(({ rev }) => rev)
    if (damaged.length === 0 && superseded.length === 0 && !this.#doc.isSalvaged)
      throw new CouchError('bad_request', 'The document is not damaged.')
    for (const rev of superseded) if (!this.#writes.has(rev)) this.#gone.add(rev)
    const best = winner(this.#left)
    const { id } = this.#doc
    const removed = [...this.#stored()].filter(
      (rev) => !this.#writes.has(rev) && (this.#gone.has(rev) || !isKnown(this.#left, parseRev(rev))),
    )
    const rest =
      best === undefined
        ? null
        : {
            rev: leafRev(best),
            deleted: best.deleted,
            sequenced: true,
            revisions: [...this.#writes.values()],
          }
    return {
      report: {
        id,
        leaves: this.#leaves,
        superseded,
        rev: rest?.rev ?? null,
        deleted: rest?.deleted ?? true,
      },
      write: { purged: this.#purged, removed, rest, ...(isDesignId(id) && { design: true }) },
      needs: this.#needs,
    }
  }

  #stored(): Set<string> {
    return new Set([
      ...this.#branches.map(leafRev),
      ...this.#doc.revisions().map(({ rev }) => rev),
      ...this.#doc.retained(),
    ])
  }

  #isWhole({ hasBody, attachments }: Version): boolean {
    return hasBody && attachments !== null && !attachments.some(({ blob }) => this.#lost.has(blob))
  }

  #leave(branch: Branch, version: Version): void {
    const ids = idsOf(branch)
    if (this.#isWhole(version)) this.#shorten(branch, version)
    else if (branch.deleted) this.#deleteAgain(branch, ids, version)
    else if (version.hasBody && version.attachments !== null) this.#leaveOut(branch, ids, version.attachments)
    else this.#goBack(branch, ids, version)
  }

  /** Only the ancestry is lost: the revision stays, as if all its ancestors had been cut. */
  #shorten(branch: Branch, { rev, attachments }: Version): void {
    const { pos, leaf, deleted } = branch
    this.#left.push(makeBranch(pos, [leaf], deleted))
    const content = { body: this.#bodyOf(rev), attachments: (attachments ?? []).map(kept) }
    this.#writes.set(rev, { rev, deleted, ancestry: [leaf], content })
    this.#leaves.push({ rev, lost: 'history', attachments: [], after: rev })
  }

  #bodyOf(leaf: string): string {
    return this.#doc.body(leaf) as string
  }

  #deleteAgain(branch: Branch, ids: readonly string[] | null, { rev }: Version): void {
    const after = this.#follow(branch, ids, { deleted: true, body: '{}', attachments: [] })
    this.#leaves.push({ rev, lost: 'tombstone', attachments: [], after })
  }

  #leaveOut(branch: Branch, ids: readonly string[] | null, attachments: readonly StoredAttachment[]): void {
    const body = this.#bodyOf(leafRev(branch))
    const rest = attachments.filter(({ blob }) => !this.#lost.has(blob))
    const names = attachments.filter(({ blob }) => this.#lost.has(blob)).map(({ name }) => name)
    const after = this.#follow(branch, ids, { deleted: false, body, attachments: rest.map(kept) })
    this.#leaves.push({ rev: leafRev(branch), lost: 'attachments', attachments: names, after })
  }

  /** Purges a leaf, but not its ancestry: a new revision follows it. */
  #follow(
    branch: Branch,
    ids: readonly string[] | null,
    content: { readonly deleted: boolean; readonly body: string; readonly attachments: AttachmentWrite[] },
  ): string {
    const rev = leafRev(branch)
    const id = newRevId({ parent: rev, ...content })
    const pos = branch.pos + 1
    const ancestry = [id, ...(ids ?? [branch.leaf])]
    const { deleted, body, attachments } = content
    const after = formatRev(pos, id)
    this.#purge(rev)
    this.#left.push(makeBranch(pos, ancestry, deleted))
    this.#writes.set(after, { rev: after, deleted, ancestry, content: { body, attachments } })
    return after
  }

  #purge(rev: string): void {
    this.#gone.add(rev)
    this.#purged.push(rev)
  }

  /** The branch ends in its newest version that can be read, unless another branch has that. */
  #goBack(branch: Branch, ids: readonly string[] | null, { rev, attachments }: Version): void {
    this.#purge(rev)
    const earlier = this.#earlier(branch, ids)
    const names = (attachments ?? []).map(({ name }) => name)
    const after = earlier?.rev ?? null
    this.#leaves.push({ rev, lost: after === null ? 'revision' : 'text', attachments: names, after })
    if (earlier === null || this.#writes.has(earlier.rev)) return
    const { pos, id } = parseRev(earlier.rev)
    if (isKnown(this.#left, { pos, id })) return
    const ancestry = ids === null ? [id] : ids.slice(branch.pos - pos)
    const body = this.#bodies.get(earlier.rev)
    if (body === undefined) this.#needs.push(earlier.rev)
    const content = {
      body: body ?? '',
      attachments: (earlier.attachments ?? []).map(kept),
    }
    this.#left.push(makeBranch(pos, ancestry, false))
    this.#writes.set(earlier.rev, { rev: earlier.rev, deleted: false, ancestry, content })
  }

  /** The newest version of a branch that can be read; none from before a deletion, which the user wanted. */
  #earlier(branch: Branch, ids: readonly string[] | null): Version | null {
    const isOf = ({ rev }: Version) => {
      const { pos, id } = parseRev(rev)
      if (pos >= branch.pos) return false
      // Without its ancestry, all versions of a document with one branch are of it.
      return ids === null ? this.#branches.length === 1 : ids[branch.pos - pos] === id
    }
    const versions = this.#found.others
      .filter(isOf)
      .toSorted((one, other) => parseRev(other.rev).pos - parseRev(one.rev).pos)
    for (const version of versions) {
      if (version.deleted) return null
      if (this.#isWhole(version)) return version
    }
    return null
  }
}

/** @returns null if the ancestry is damaged */
function idsOf(branch: Branch): readonly string[] | null {
  return unlessDamaged(
    () => branch.ids,
    () => null,
  )
}

function kept({ blob, ...facts }: StoredAttachment): AttachmentWrite {
  return { ...facts, content: { blob } }
}
