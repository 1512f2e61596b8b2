/**
 * The read set of a callback: what it reads of a document beyond its own row. An engine over a network loads this before it calls; an engine
 * that reads during the callback may ignore it. A read that was not declared is a miss, not an error: the engine loads
 * it from the same state and calls again (docs/decisions/0050).
 *
 * A document's row is always there: `id`, `seq`, `rev`, `deleted`, `hasOneLeaf`, and whether the winner is a tombstone.
 */
import { CouchError } from '../core/errors.ts'
import { formatRev, parseRev, type Rev } from '../revisions/rev.ts'

export interface ReadSet {
  /** The winner's body and attachments. */
  readonly body?: boolean | undefined
  /** The bodies and attachments of all leaves. */
  readonly bodies?: boolean | undefined
  /** The leaves, without their ancestries. */
  readonly branches?: boolean | undefined
  /** The ancestry of the winner, or of every leaf. */
  readonly ancestry?: 'winner' | 'leaves' | undefined
  /** The ancestries of those of these revisions that are leaves. */
  readonly ancestryOf?: readonly string[] | undefined
  /** The ancestries of the leaves of this generation or a later one. */
  readonly ancestryFrom?: number | undefined
  /** Of these revisions, whether they are stored, their bodies and their attachments. */
  readonly revs?: readonly string[] | undefined
  /** Of each of these paths, the newest revision whose body is stored, with its body and attachments. */
  readonly nearest?: readonly RevisionPath[] | undefined
  /** Of these revisions, the attachments only. */
  readonly attachments?: readonly string[] | undefined
  /** The list of the stored revisions. */
  readonly revisions?: boolean | undefined
  /** The list of the retained revisions. */
  readonly retained?: boolean | undefined
}

/** A revision and its ancestors. */
export interface RevisionPath {
  /** The generation of the revision. */
  readonly pos: number
  /** The revision's own id first. */
  readonly ids: readonly string[]
}

/** What a callback reads of several documents that are named by their ids. */
export interface DocReadSet extends ReadSet {
  /** What it reads in addition of the document at a place of the list, from 0. */
  of?(place: number): ReadSet
}

/** The read set of a callback that asks whether revisions are known and which leaves follow them: these have later generations. */
export function soughtRevisions(revs: readonly Rev[]): Pick<ReadSet, 'ancestryFrom'> {
  return {
    ancestryFrom: revs.reduce((lowest, { pos }) => Math.min(lowest, pos + 1), Number.MAX_SAFE_INTEGER),
  }
}

/** The same for revisions as a client has named them, which it also opens. Invalid names are left out. */
export function namedRevisions(names: readonly unknown[]): Pick<ReadSet, 'ancestryFrom' | 'revs'> {
  const revs = names.flatMap((name) => parsedRev(name) ?? [])
  return { ...soughtRevisions(revs), revs: revs.map(({ pos, id }) => formatRev(pos, id)) }
}

function parsedRev(name: unknown): Rev | null {
  try {
    return parseRev(name)
  } catch (error) {
    if (error instanceof CouchError) return null
    throw error
  }
}
