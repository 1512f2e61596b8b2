/**
 * Plans the writes that restore a document to its state at a time. Pure.
 *
 * The content of the earlier winner becomes a new revision on the current winner: an ordinary edit, which every device
 * replicates. Leaves in conflict are kept: a newer conflicting leaf may have content that the user must not lose
 * unseen. Resolved conflicts stay resolved. But if the document was deleted or did not exist, every live leaf is
 * deleted: otherwise one of them would become the winner.
 */
import { type AsOf, asOf } from '../../revisions/as-of.ts'
import { leafRev } from '../../revisions/branch.ts'
import { parseRev } from '../../revisions/rev.ts'
import type { StoredAttachment } from '../../storage/engine.ts'
import type { DocHistory, StoredVersion, StoreHorizon, VersionRange } from '../../storage/history-store.ts'
import type { IncomingDoc } from '../incoming-document.ts'
import type { RewindOutcome } from './time-machine-calls.ts'

/** The target of a rewind. */
export interface RewindTarget {
  /** In ms since 1970. */
  readonly at: number
  readonly horizon: StoreHorizon
  /** The number of updates when the rewind began: documents changed later are left alone. */
  readonly lastSeq: number
  /** Whether all documents were requested: then documents that did not exist are deleted. */
  readonly isWhole: boolean
  /** The version to restore; absent: the winner at that time. */
  readonly rev?: string
}

export interface RewindPlan {
  readonly id: string
  readonly outcome: RewindOutcome
  /** The current winner; null if the document never existed. */
  readonly from: string | null
  /** The winner at that time; null if there was none or it is unknown. */
  readonly to: string | null
  /** The documents to write; may be empty. */
  readonly docs: readonly IncomingDoc[]
}

/** @param id of a document that never existed */
export function planWithoutDocument(id: string): RewindPlan {
  return { id, outcome: 'absent', from: null, to: null, docs: [] }
}

/**
 * The versions that show the winner at a time.
 * @param at ms since 1970; not in the future
 */
export function versionsAt(at: number, horizon: StoreHorizon): VersionRange {
  // If no versions are missing, later versions do not matter. A document that is saved every minute has many.
  return { leavesAfter: at, ...(at >= horizon.whole && { storedBy: at }) }
}

/** The winner of a document at a time, as {@link versionsAt}. */
export function winnerAsOf(doc: DocHistory, at: number, horizon: StoreHorizon): AsOf<StoredVersion> {
  return asOf(doc.versions(versionsAt(at, horizon)), () => doc.branches, at, horizon)
}

function versionOf(doc: DocHistory, rev: string): AsOf<Pick<StoredVersion, 'rev' | 'deleted'>> {
  const deleted = doc.isDeleted(rev)
  return deleted === null ? { kind: 'expired' } : { kind: 'version', version: { rev, deleted } }
}

/** Plans what a rewind writes to a document. */
export function planRewind(
  doc: DocHistory,
  { at, horizon, lastSeq, isWhole, rev }: RewindTarget,
): RewindPlan {
  const { id, rev: from } = doc
  const left = (outcome: RewindOutcome, to: string | null = null) => ({ id, outcome, from, to, docs: [] })
  if (doc.seq > lastSeq) return left('newer')
  const then = rev === undefined ? winnerAsOf(doc, at, horizon) : versionOf(doc, rev)
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

/** Both lists are ordered by name. */
function haveSame(some: readonly StoredAttachment[], others: readonly StoredAttachment[]): boolean {
  return (
    some.length === others.length &&
    some.every(({ name, type, digest }, at) => {
      const other = others[at]
      return other?.name === name && other.type === type && other.digest === digest
    })
  )
}

/** The content of a version as an edit of the winner; its attachments name stored contents. */
function contentOf(doc: DocHistory, rev: string): IncomingDoc | null {
  const body = doc.body(rev)
  if (body === null) return null
  const attachments = doc.attachments(rev).map(({ name, type, blob, revpos: _, ...facts }) => ({
    name,
    type,
    revpos: undefined,
    content: { ...facts, content: { blob } },
  }))
  // A recreated document names no parent: its revision follows the tombstone (protocol.md 6.3).
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
