/**
 * What is to be written to a document so that it is again what it was at a time. Pure.
 *
 * The winner gets the content that the winner of then had, as a revision upon the winner of now: an ordinary edit, which
 * every device takes over. Leaves in conflict stay as they are: what came beside the winner after that time is nothing
 * that a person wants to lose without having seen it, and conflicts that were resolved since stay resolved. But where
 * the document was deleted or not there, every live leaf ends: one that was left would take the winner's place.
 */
import { type AsOf, asOf } from '../../revisions/as-of.ts'
import { leafRev } from '../../revisions/branch.ts'
import { parseRev } from '../../revisions/rev.ts'
import type { StoredAttachment } from '../../storage/engine.ts'
import type { DocHistory, StoredVersion, StoreHorizon } from '../../storage/history-store.ts'
import type { IncomingDoc } from '../incoming-document.ts'
import type { RewindOutcome } from './time-machine-calls.ts'

/** What a rewind is to. */
export interface RewindTarget {
  /** In ms since 1970. */
  readonly at: number
  readonly horizon: StoreHorizon
  /** The number of updates when the rewind began: what was written to since is left alone. */
  readonly lastSeq: number
  /** All documents are asked for: then those that were not there go. */
  readonly isWhole: boolean
}

export interface RewindPlan {
  readonly id: string
  readonly outcome: RewindOutcome
  /** The winner now; null: the document never was. */
  readonly from: string | null
  /** The winner then; null: it was not there, or that is not known. */
  readonly to: string | null
  /** What is written; none: nothing. */
  readonly docs: readonly IncomingDoc[]
}

/** @param id of a document that never was */
export function planOfNone(id: string): RewindPlan {
  return { id, outcome: 'absent', from: null, to: null, docs: [] }
}

/**
 * The winner of a document at a time.
 * @param at ms since 1970; not in the future
 */
export function winnerAsOf(doc: DocHistory, at: number, horizon: StoreHorizon): AsOf<StoredVersion> {
  // Where nothing is missing, what came later says nothing; of a document that is saved every minute it is a lot.
  const range = { leavesAfter: at, ...(at >= horizon.whole && { storedBy: at }) }
  return asOf(doc.versions(range), () => doc.branches, at, horizon)
}

/** Decides what a rewind writes to a document. */
export function planRewind(doc: DocHistory, { at, horizon, lastSeq, isWhole }: RewindTarget): RewindPlan {
  const { id, rev: from } = doc
  const left = (outcome: RewindOutcome, to: string | null = null) => ({ id, outcome, from, to, docs: [] })
  if (doc.seq > lastSeq) return left('newer')
  const then = winnerAsOf(doc, at, horizon)
  if (then.kind === 'expired') return left('expired')
  if (then.kind === 'absent' && !isWhole) return left('absent')
  const to = then.kind === 'version' ? then.version.rev : null
  if (then.kind === 'absent' || then.version.deleted) {
    return doc.deleted ? left('unchanged', to) : { id, outcome: 'deleted', from, to, docs: tombstones(doc) }
  }
  if (to === null || isAsItWas(doc, to)) return left('unchanged', to)
  const content = contentOf(doc, to)
  if (content === null) return left('expired', to)
  return { id, outcome: doc.deleted ? 'recreated' : 'restored', from, to, docs: [content] }
}

function isAsItWas(doc: DocHistory, rev: string): boolean {
  if (doc.deleted) return false
  if (rev === doc.rev) return true
  return doc.body(rev) === doc.body(doc.rev) && haveSame(doc.attachments(rev), doc.attachments(doc.rev))
}

/** Both in their names' order. */
function haveSame(some: readonly StoredAttachment[], others: readonly StoredAttachment[]): boolean {
  return (
    some.length === others.length &&
    some.every(({ name, type, digest }, at) => {
      const other = others[at]
      return other?.name === name && other.type === type && other.digest === digest
    })
  )
}

/** The content of a version upon the winner; its attachments name what is stored. */
function contentOf(doc: DocHistory, rev: string): IncomingDoc | null {
  const body = doc.body(rev)
  if (body === null) return null
  const attachments = doc.attachments(rev).map(({ name, type, blob, revpos: _, ...facts }) => ({
    name,
    type,
    revpos: undefined,
    content: { ...facts, content: { blob } },
  }))
  // A document that is made anew names no parent: it goes upon its tombstone (protocol.md 6.3).
  return { id: undefined, path: doc.deleted ? null : pathOf(doc.rev), deleted: false, body, attachments }
}

function tombstones(doc: DocHistory): IncomingDoc[] {
  return doc.branches
    .filter(({ deleted }) => !deleted)
    .map((branch) => ({
      id: undefined,
      path: pathOf(leafRev(branch)),
      deleted: true,
      body: '{}',
      attachments: [],
    }))
}

function pathOf(rev: string): IncomingDoc['path'] {
  const { pos, id } = parseRev(rev)
  return { pos, ids: [id] }
}
