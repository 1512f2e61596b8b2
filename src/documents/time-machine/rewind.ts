/**
 * Rolls documents back to a time, page by page; each page is a group of ordinary writes. rewind-plan.ts decides what
 * to write.
 */
import { asCouchError, CouchError, type ErrorName } from '../../core/errors.ts'
import { Yielder } from '../../core/event-loop.ts'
import { DESIGN_PREFIX } from '../../core/ids.ts'
import type { UserCtx } from '../../core/types.ts'
import type { BlobReference } from '../../storage/blob-leases.ts'
import type { DatabaseStore, IdRange } from '../../storage/engine.ts'
import type { DocHistory, HistoryReadSet, VersionedStore } from '../../storage/history-store.ts'
import { kindRange } from '../all-docs-query.ts'
import { remeasured } from '../document-policy.ts'
import type { EditResult } from '../edit.ts'
import { requireDatabaseAdmin } from '../security.ts'
import { type AnyEdit, writeEdits } from '../write.ts'
import type { WriteChecks } from '../write-checks.ts'
import { documentHistory, overwritten, readVersion } from './document-history.ts'
import {
  planRewind,
  planWithoutDocument,
  type RewindPlan,
  type RewindTarget,
  versionsAt,
} from './rewind-plan.ts'
import type { RewindCounts, RewindOutcome, RewindRequest, TimeMachine } from './time-machine-calls.ts'

/** The interval of progress lines of a rewind that changes nothing, in ms. */
const PROGRESS_INTERVAL_MS = 1000

/** Errors of the store itself: later writes would also fail. */
const BROKEN: ReadonlySet<ErrorName> = new Set([
  'damaged_file',
  'disk_fault',
  'insufficient_storage',
  'internal_server_error',
  'no_database',
  'unavailable',
])

/** The context of one rewind. */
interface RewindOptions {
  readonly store: VersionedStore
  readonly user: UserCtx
  readonly checks: WriteChecks
  /** The time, in ms since 1970. */
  now(): number
}

interface Done {
  readonly plan: RewindPlan
  readonly outcome: RewindOutcome
  readonly rev?: string
  readonly refusal?: CouchError
}

/** The lines of a rewind; see {@link TimeMachine.rewind}. */
async function* rewind(options: RewindOptions, request: RewindRequest): AsyncGenerator<Uint8Array> {
  const { store, user, now } = options
  const view = await store.view()
  requireDatabaseAdmin(user, view.security)
  const horizon = await store.history.horizon()
  const { at, ids, rev, dryRun } = request
  if (at > now()) throw new CouchError('bad_request', 'The time to go back to is in the future.')
  if (ids === undefined && at < Math.max(horizon.begun, horizon.timed)) {
    const since = new Date(Math.max(horizon.begun, horizon.timed)).toISOString()
    throw new CouchError('bad_request', `The history of the database begins at ${since}.`)
  }
  const target = {
    at,
    horizon,
    lastSeq: view.updateSeq,
    isWhole: ids === undefined,
    ...(rev !== undefined && { rev }),
  }
  const run = new Rewind(options, target, dryRun)
  const of = ids?.length ?? view.docCount + view.deletedCount
  yield line({ at: new Date(at).toISOString(), dry_run: dryRun, documents: of })
  try {
    yield* ids === undefined ? run.all() : run.some(ids)
    yield line({ done: true, ...run.progress })
  } catch (thrown) {
    yield line({ ...asCouchError(thrown).toBody(), ...run.progress })
  }
}

function line(value: object): Uint8Array {
  return Buffer.from(`${JSON.stringify(value)}\n`)
}

/** Design documents are last, so that they do not validate the documents that are restored with them. */
const RANGES: readonly IdRange[] = [
  { end: { id: DESIGN_PREFIX, inclusive: false } },
  { start: { id: DESIGN_PREFIX.replace('/', '0'), inclusive: true } },
  kindRange('design'),
]

class Rewind {
  readonly #options: RewindOptions
  readonly #target: RewindTarget
  readonly #isDry: boolean
  readonly #counts: Record<RewindOutcome, number> = {
    restored: 0,
    recreated: 0,
    deleted: 0,
    unchanged: 0,
    expired: 0,
    newer: 0,
    absent: 0,
    refused: 0,
  }
  #lookedAt = 0
  #reportedAt = performance.now()

  constructor(options: RewindOptions, target: RewindTarget, isDry: boolean) {
    this.#options = options
    this.#target = target
    this.#isDry = isDry
  }

  /** The progress, as in the lines. */
  get progress(): { readonly looked_at: number; readonly counts: RewindCounts } {
    return { looked_at: this.#lookedAt, counts: this.#counts }
  }

  async *all(): AsyncGenerator<Uint8Array> {
    for (const range of RANGES) {
      for (let rest: IdRange | null = range; rest !== null; ) {
        const page = new RewindPage(this.#options.store)
        try {
          const more: boolean = await this.#fill(page, rest)
          const last = page.plans.at(-1)
          yield* this.#carryOut(page)
          rest = more && last ? { ...range, start: { id: last.id, inclusive: false } } : null
        } finally {
          page.release()
        }
      }
    }
  }

  /** @returns whether documents of the range remain */
  async #fill(page: RewindPage, range: IdRange): Promise<boolean> {
    const yielder = new Yielder()
    const paging = { limit: PAGE_DOCS, chars: PAGE_BYTES, readSet: this.#readSet }
    const { rows, more } = await this.#options.store.history.readRange(range, paging, (doc, view) => {
      requireDatabaseAdmin(this.#options.user, view.security)
      return this.#plan(doc)
    })
    await page.add(rows)
    // A group of writes may take as long as the read.
    await (rows.some(({ docs }) => docs.length > 0) ? yielder.yieldNow() : yielder.yieldIfDue())
    return more
  }

  async *some(ids: readonly string[]): AsyncGenerator<Uint8Array> {
    const yielder = new Yielder()
    let page = new RewindPage(this.#options.store)
    try {
      for (const id of new Set(ids)) {
        const [plan] = await this.#options.store.history.readDocs(
          [id],
          (doc, _id, view) => {
            requireDatabaseAdmin(this.#options.user, view.security)
            return doc === null ? planWithoutDocument(id) : this.#plan(doc)
          },
          this.#readSet,
        )
        await page.add(plan === undefined ? [] : [plan])
        await yielder.yieldIfDue()
        if (!page.isFull) continue
        yield* this.#carryOut(page)
        page = new RewindPage(this.#options.store)
      }
      yield* this.#carryOut(page)
    } finally {
      page.release()
    }
  }

  /** Which version is restored, and so its body, is known only with the versions. */
  get #readSet(): HistoryReadSet {
    const { at, rev, horizon } = this.#target
    if (rev !== undefined) return { branches: true, body: true, revs: [rev] }
    return {
      branches: true,
      body: true,
      versions: versionsAt(at, horizon),
      ...(at < horizon.whole && { ancestry: 'leaves' }),
    }
  }

  #plan(doc: DocHistory): RewindPlan {
    return planRewind(doc, this.#target)
  }

  /** Writes the documents of a page. @returns its lines */
  async *#carryOut(page: RewindPage): AsyncGenerator<Uint8Array> {
    const { plans } = page
    const results = await this.#write(this.#isDry ? [] : plans).finally(() => page.release())
    const lines: string[] = []
    for (const plan of plans) {
      const done = doneOf(plan, results.get(plan) ?? [])
      this.#lookedAt += 1
      this.#counts[done.outcome] += 1
      if (done.outcome !== 'unchanged') lines.push(`${JSON.stringify(shown(done))}\n`)
    }
    const now = performance.now()
    if (lines.length === 0 && now - this.#reportedAt < PROGRESS_INTERVAL_MS) return
    this.#reportedAt = now
    lines.push(`${JSON.stringify({ progress: this.progress })}\n`)
    yield Buffer.from(lines.join(''))
  }

  async #write(plans: readonly RewindPlan[]): Promise<Map<RewindPlan, EditResult[]>> {
    const { store, user, checks } = this.#options
    const edits: AnyEdit[] = []
    const owners: RewindPlan[] = []
    for (const plan of plans) {
      for (const doc of plan.docs) {
        const { id } = plan
        const ruled = { id, user, security: null, kind: 'rewind', isAttachment: false } as const
        checks.documentRules?.checkDocument(doc, ruled)
        const prepared = (await checks.documentRules?.prepare(doc, ruled)) ?? doc
        edits.push({ id: plan.id, doc: prepared, newEdits: true, isOfRewind: true })
        owners.push(plan)
      }
    }
    const written = new Map<RewindPlan, EditResult[]>()
    if (edits.length === 0) return written
    const results = await writeEdits(store, await remeasured(checks.measure, user), edits, checks)
    for (const [at, result] of results.entries()) {
      if (result instanceof CouchError && BROKEN.has(result.code)) throw result
      const plan = owners[at] as RewindPlan
      written.set(plan, [...(written.get(plan) ?? []), result])
    }
    return written
  }
}

function doneOf(plan: RewindPlan, results: readonly EditResult[]): Done {
  const refusal = results.find((result) => result instanceof CouchError)
  // Another write has changed the document since it was read.
  if (refusal?.code === 'conflict') return { plan, outcome: 'newer' }
  if (refusal !== undefined) return { plan, outcome: 'refused', refusal }
  const [made] = results
  if (made === undefined || made instanceof CouchError) return { plan, outcome: plan.outcome }
  return { plan, outcome: plan.outcome, rev: made.rev }
}

/** A line of the answer. */
function shown({ plan, outcome, rev, refusal }: Done): object {
  const { id, from, to } = plan
  return { id, outcome, from, to, ...(rev && { rev }), ...refusal?.toBody() }
}

/** The maximum number of documents of one page, and of their approximate bytes: the size of one group of writes. */
const PAGE_DOCS = 256
const PAGE_BYTES = 1024 * 1024

/**
 * Plans that are written together. Their contents are pinned: if no leaf names them any more, a compaction between the
 * plan and the write could remove them.
 */
class RewindPage {
  readonly #store: Pick<DatabaseStore, 'referenceBlob'>
  readonly #pins: BlobReference[] = []
  #plans: RewindPlan[] = []
  #bytes = 0

  constructor(store: Pick<DatabaseStore, 'referenceBlob'>) {
    this.#store = store
  }

  /** In the order added. Plans whose contents no longer existed are `expired`. */
  get plans(): readonly RewindPlan[] {
    return this.#plans
  }

  get isFull(): boolean {
    return this.#plans.length >= PAGE_DOCS || this.#bytes > PAGE_BYTES
  }

  /** @param plans made in this turn, with nothing awaited since. @throws as `referenceBlob` */
  async add(plans: readonly RewindPlan[]): Promise<void> {
    const blobs = [...new Set(plans.flatMap(blobsOf))]
    const pins = await Promise.all(blobs.map((blob) => this.#pin(blob)))
    const missing = new Set(blobs.filter((_, at) => pins[at] === null))
    for (const plan of plans) {
      this.#bytes += bytesOf(plan)
      const isWhole = !blobsOf(plan).some((blob) => missing.has(blob))
      this.#plans.push(isWhole ? plan : { ...plan, outcome: 'expired', docs: [] })
    }
  }

  async #pin(blob: number): Promise<BlobReference | null> {
    const pin = await this.#store.referenceBlob(blob)
    if (pin !== null) this.#pins.push(pin)
    return pin
  }

  /** Releases the pins, whether or not the plans were written. Idempotent. */
  release(): void {
    for (const pin of this.#pins) pin.release()
  }
}

/** The approximate bytes of a plan's documents. */
function bytesOf({ docs }: RewindPlan): number {
  return docs.reduce((sum, { body }) => sum + body.length, 0)
}

function blobsOf({ docs }: RewindPlan): number[] {
  const contents = docs.flatMap((doc) => doc.attachments.map(({ content }) => content?.content))
  return contents.flatMap((content) => (content !== undefined && 'blob' in content ? content.blob : []))
}

/** The time machine's methods of a database. @param now the time, in ms since 1970 */
export function timeMachine(store: VersionedStore, checks: WriteChecks, now: () => number): TimeMachine {
  return {
    history: (user, id, page) => documentHistory(store, user, id, page),
    overwritten: (user, query) => overwritten(store, user, query),
    version: (user, id, choice, attachments) =>
      readVersion(store, user, id, choice, { attachments, now: now() }),
    rewind: (user, request) => rewind({ store, user, checks, now }, request),
  }
}
