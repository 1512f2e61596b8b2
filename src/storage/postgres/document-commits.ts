/** Writes and purges of documents: decided in groups, each on what it finds and on what those before it in the group do. */
import { CouchError } from '../../core/errors.ts'
import { Yielder } from '../../core/event-loop.ts'
import type { Decision, DocUpdate, DocWrite, Outcome, PurgeUpdate, PurgeWrite, StoreView } from '../engine.ts'
import type { ReadSet } from '../read-set.ts'
import type { DocumentLoader } from './document-loader.ts'
import { GroupQueue, type QueuedWrite } from './group-queue.ts'
import { GroupWrite } from './group-write.ts'
import type { LoadedDocument } from './loaded-document.ts'
import type { OpenDatabase } from './open-database.ts'
import { OptimisticWrites, viewOfSettings } from './optimistic-writes.ts'
import { refuseLongKey } from './stored-text.ts'
import { type Attempt, type Decided, MissingContents, type WriteCommits } from './write-commits.ts'

/** What was decided for a document. */
type Verdict =
  | { readonly kind: 'write'; readonly write: DocWrite; readonly dependsOnCounts: boolean }
  | { readonly kind: 'purge'; readonly write: PurgeWrite }
  | null

interface Job extends QueuedWrite {
  readonly readSet: ReadSet | undefined
  readonly salvages?: boolean | undefined
  decide(
    doc: LoadedDocument | null,
    view: StoreView,
  ): { readonly outcome: unknown; readonly verdict: Verdict }
  done(outcome: unknown): void
}

interface GroupDecision {
  readonly settingsVersion: number
  readonly outcomes: readonly unknown[]
  readonly write: GroupWrite
}

/** The approximate size of a purge, in bytes. */
const PURGE_BYTES = 1024

/** The blobs of a group may be removed one by one while it is decided again. */
const MAX_ROUNDS = 20

const READ_STORED = {
  name: 'read_stored_blobs',
  text: 'SELECT blob FROM blob WHERE db = $1 AND blob = ANY ($2) AND sha256 IS NOT NULL',
}

export class DocumentCommits {
  readonly #database: OpenDatabase
  readonly #documents: DocumentLoader
  readonly #commits: WriteCommits
  readonly #queue: GroupQueue<Job>
  readonly #optimism = new OptimisticWrites()

  constructor(database: OpenDatabase, documents: DocumentLoader, commits: WriteCommits) {
    this.#database = database
    this.#documents = documents
    this.#commits = commits
    this.#queue = new GroupQueue({ commit: (group) => this.#commit(group) })
  }

  /** As {@link DatabaseStore.updateDocs}. */
  update<R, N>(updates: readonly DocUpdate<R, N>[]): Promise<Outcome<R, N>[]> {
    return this.#add(
      updates.map((update) => ({
        id: update.id,
        bytes: update.bytes,
        readSet: update.readSet,
        decide: (doc: LoadedDocument | null, view: StoreView) => updateVerdict(update.decide(doc, view)),
      })),
    )
  }

  /** As {@link DatabaseStore.purgeDocs}. */
  purge<R>(updates: readonly PurgeUpdate<R>[]): Promise<Outcome<R>[]> {
    return this.#add(
      updates.map((update) => ({
        id: update.id,
        bytes: PURGE_BYTES,
        readSet: update.readSet,
        salvages: update.salvages,
        decide: (doc: LoadedDocument | null, view: StoreView) => {
          const { result, write } = update.decide(doc, view)
          const verdict = doc === null || write === undefined ? null : ({ kind: 'purge', write } as const)
          return { outcome: { result }, verdict }
        },
      })),
    )
  }

  /** Resolves when all writes are answered. */
  drained(): Promise<void> {
    return this.#queue.drained()
  }

  async #add<O>(jobs: readonly Omit<Job, 'done' | 'failed'>[]): Promise<O[]> {
    if (jobs.length === 0) return []
    const outcomes: O[] = new Array(jobs.length)
    let open = jobs.length
    return new Promise((resolve) => {
      const answer = (at: number, outcome: unknown) => {
        outcomes[at] = outcome as O
        open -= 1
        if (open === 0) resolve(outcomes)
      }
      this.#queue.add(
        jobs.map((job, at) => ({
          ...job,
          done: (outcome) => answer(at, outcome),
          failed: (error) => answer(at, { error }),
        })),
      )
    })
  }

  async #commit(group: readonly Job[]): Promise<void> {
    const missing = new Set<number>()
    let outcomes: readonly unknown[] = []
    let write: GroupWrite | undefined
    let wasOptimistic = false
    const decide = async (attempt: Attempt): Promise<Decided> => {
      const isOptimistic = attempt.tries === 0 && this.#optimism.isOptimistic
      const optimistic = isOptimistic ? await this.#decideAsNew(group, missing) : null
      const decided = optimistic ?? (await this.#decide(group, missing, attempt, wasOptimistic))
      wasOptimistic = optimistic !== null
      outcomes = decided.outcomes
      write = decided.write
      return { settingsVersion: decided.settingsVersion, write: write.writes === 0 ? null : write }
    }
    for (let rounds = 0; ; rounds++) {
      try {
        await this.#commits.commit(decide)
        break
      } catch (error) {
        if (!(error instanceof MissingContents)) throw error
        if (rounds > MAX_ROUNDS) throw new CouchError('store_unavailable')
        await this.#noteMissing(write?.named ?? [], missing)
      }
    }
    this.#database.leaves.restored(write?.restored ?? [])
    for (const [at, job] of group.entries()) job.done(outcomes[at])
  }

  /** @returns null if it takes more than the settings to decide on one of the documents, or if it is not written */
  async #decideAsNew(group: readonly Job[], missing: ReadonlySet<number>): Promise<GroupDecision | null> {
    const { settings } = this.#database.views
    const view = viewOfSettings(settings)
    const write = new GroupWrite(false)
    const outcomes: unknown[] = []
    const yielder = new Yielder()
    for (const job of group) {
      try {
        const { outcome, verdict } = job.decide(null, view)
        if (verdict?.kind !== 'write' || verdict.dependsOnCounts || verdict.write.design) return null
        refuse(job, verdict.write, missing)
        write.add(job.id, null, verdict.write)
        outcomes.push(outcome)
      } catch {
        // What is thrown counts only once the document was read.
        return null
      }
      if (yielder.isDue) await yielder.yieldNow()
    }
    return { settingsVersion: settings.settingsVersion, outcomes, write }
  }

  /** @param wasOptimistic whether the group was assumed to be new, and is not, or its settings have changed */
  async #decide(
    group: readonly Job[],
    missing: ReadonlySet<number>,
    { tries, run }: Attempt,
    wasOptimistic: boolean,
  ): Promise<GroupDecision> {
    const effects = new GroupEffects()
    const { view, docs, outcomes } = await this.#documents.decide(
      group,
      (doc, base, place) => {
        const decided = (group[place] as Job).decide(doc, effects.viewAt(place, base))
        if (decided.verdict?.kind === 'write') refuse(group[place] as Job, decided.verdict.write, missing)
        effects.note(place, doc, decided.verdict)
        return decided
      },
      run,
    )
    this.#optimism.note(
      docs.every((doc) => doc === null),
      wasOptimistic,
    )
    const write = new GroupWrite(tries > (wasOptimistic ? 1 : 0))
    const results = outcomes.map((outcome, place) => {
      if ('error' in outcome) return outcome
      const { id } = group[place] as Job
      const { verdict } = outcome.result
      const doc = docs[place] ?? null
      if (verdict?.kind === 'write') {
        write.add(id, doc, verdict.write)
        if (verdict.dependsOnCounts) write.dependOn(view)
      } else if (verdict !== null && doc !== null) write.purge(id, doc, verdict.write)
      return outcome.result.outcome
    })
    return { settingsVersion: view.settingsVersion, outcomes: results, write }
  }

  /** Which of the contents that a group names are not stored. */
  async #noteMissing(named: readonly number[], missing: Set<number>): Promise<void> {
    const { connections, db } = this.#database
    const rows = await connections.read<[blob: number]>({ ...READ_STORED, values: [db, named] })
    const stored = new Set(rows.map(([blob]) => blob))
    for (const blob of named) if (!stored.has(blob)) missing.add(blob)
  }
}

function updateVerdict<R, N>(decision: Decision<R, N>): { outcome: Outcome<R, N>; verdict: Verdict } {
  if ('needs' in decision) return { outcome: { needs: decision.needs }, verdict: null }
  const { result, write, dependsOnCounts = false } = decision
  return {
    outcome: { result },
    verdict: write === undefined ? null : { kind: 'write', write, dependsOnCounts },
  }
}

/** Refuses what cannot be stored. @throws illegal_docid; no_attachment */
function refuse({ id }: Job, { revisions }: DocWrite, missing: ReadonlySet<number>): void {
  refuseLongKey(
    id,
    revisions.map(({ rev }) => rev),
  )
  if (missing.size === 0) return
  for (const { name, content } of revisions.flatMap((revision) => revision.content?.attachments ?? [])) {
    if ('blob' in content && missing.has(content.blob)) {
      throw new CouchError('no_attachment', `The content of the attachment ${name} is not stored any more.`)
    }
  }
}

/** What a write changes of the view. */
interface Effect {
  readonly updateSeq: number
  readonly docCount: number
  readonly deletedCount: number
  readonly designVersion: number
}

const NONE: Effect = { updateSeq: 0, docCount: 0, deletedCount: 0, designVersion: 0 }

/** What the writes of a group do to the view of those after them. Calls come in the order of their places, and may begin again. */
class GroupEffects {
  /** The sums of the writes before each place. */
  readonly #before: Effect[] = [NONE]

  viewAt(place: number, view: StoreView): StoreView {
    const sum = this.#before[place] ?? NONE
    // If the callback throws, the sum is unchanged.
    this.#before[place + 1] = sum
    if (sum === NONE) return view
    return {
      ...view,
      updateSeq: view.updateSeq + sum.updateSeq,
      docCount: view.docCount + sum.docCount,
      deletedCount: view.deletedCount + sum.deletedCount,
      designVersion: view.designVersion + sum.designVersion,
      settingsVersion: view.settingsVersion + sum.designVersion,
    }
  }

  note(place: number, doc: LoadedDocument | null, verdict: Verdict): void {
    if (verdict === null) return
    const rest = verdict.kind === 'write' ? verdict.write : verdict.write.rest
    const { updateSeq, docCount, deletedCount, designVersion } = this.#before[place] ?? NONE
    const isSequenced = rest !== null && (rest.sequenced || doc === null)
    const live = Number(rest?.deleted === false) - Number(doc?.deleted === false)
    const deleted = Number(rest?.deleted === true) - Number(doc?.deleted === true)
    this.#before[place + 1] = {
      updateSeq: updateSeq + Number(isSequenced),
      docCount: docCount + live,
      deletedCount: deletedCount + deleted,
      designVersion: designVersion + Number(verdict.write.design === true),
    }
  }
}
