/**
 * The state of a document at a time: the winner, by the rule of branch.ts, among the stored versions that were leaves
 * then. Pure.
 *
 * A version is a leaf from when it is stored until it is superseded. Rows of superseded versions are removed after some
 * time. If a version may be missing for this reason, the result is `expired`.
 */
import { type Branch, knows, winner } from './branch.ts'
import { formatRev, parseRev } from './rev.ts'

/** A stored version, and when it was a leaf; times are in ms since 1970. */
export interface TimedVersion {
  readonly rev: string
  readonly deleted: boolean
  /** null if it was stored before times were noted. */
  readonly storedAt: number | null
  /** null if it is a leaf. */
  readonly supersededAt: number | null
  /**
   * When its ancestry last grew while it was a leaf; null: never. Until then, leaves that have since become its ancestors
   * stood beside it.
   */
  readonly grownAt: number | null
}

/** How far back a database knows the versions of its documents; times in ms since 1970, 0: always. */
export interface Horizon {
  /** All versions that were leaves at this time or later are stored; some from earlier times may be gone. */
  readonly whole: number
  /** Versions from before this time have no time of storage. */
  readonly timed: number
}

export type AsOf<Version> =
  | { readonly kind: 'version'; readonly version: Version }
  /** The document did not exist. */
  | { readonly kind: 'absent' }
  /** The state is no longer known. */
  | { readonly kind: 'expired' }

interface Placed<Version> {
  readonly pos: number
  readonly leaf: string
  readonly deleted: boolean
  readonly version: Version
}

/**
 * The winner of a document at a time; it may be a tombstone.
 * @param versions at least the leaves and the versions superseded after `at`; if `at` is not before `horizon.whole`, only
 * those of them stored by `at` are needed
 * @param branches the current branches of the document; called only if `at` is before `horizon.whole`
 * @param at ms since 1970; not in the future
 */
export function asOf<Version extends TimedVersion>(
  versions: readonly Version[],
  branches: () => readonly Branch[],
  at: number,
  horizon: Horizon,
): AsOf<Version> {
  const leaves = versions.filter((version) => wasLeaf(version, at)).map(placed)
  if (at < horizon.timed && leaves.some(({ version }) => version.storedAt === null)) return EXPIRED
  if (at < horizon.whole && leaves.some(({ version }) => (version.grownAt ?? 0) > at)) return EXPIRED
  if (at < horizon.whole && !hasAllLeaves(versions.map(placed), leaves, branches(), at)) return EXPIRED
  const best = winner(leaves)
  return best === undefined ? { kind: 'absent' } : { kind: 'version', version: best.version }
}

const EXPIRED = { kind: 'expired' } as const

function wasLeaf({ storedAt, supersededAt }: TimedVersion, at: number): boolean {
  return (storedAt ?? 0) <= at && (supersededAt === null || supersededAt > at)
}

function placed<Version extends TimedVersion>(version: Version): Placed<Version> {
  const { pos, id } = parseRev(version.rev)
  return { pos, leaf: id, deleted: version.deleted, version }
}

/**
 * Whether no leaf of that time can be missing. Each version that is no longer a leaf is an ancestor of a branch. So it is
 * enough if the rows of each branch show where it ended then.
 */
function hasAllLeaves(
  versions: readonly Placed<TimedVersion>[],
  leaves: readonly Placed<TimedVersion>[],
  branches: readonly Branch[],
  at: number,
): boolean {
  return branches.every((branch) => {
    const isOn = ({ pos, leaf }: Placed<TimedVersion>) => knows(branch, { pos, id: leaf })
    const later = versions.filter((one) => (one.version.storedAt ?? 0) > at && isOn(one))
    if (later.length === 0) return true
    const end = leaves.filter(isOn).reduce<Placed<TimedVersion> | null>(higher, null)
    return end === null ? hasBegunLater(branch, versions, later) : isFollowed(end, later)
  })
}

function higher(best: Placed<TimedVersion> | null, one: Placed<TimedVersion>): Placed<TimedVersion> {
  return best === null || one.pos > best.pos ? one : best
}

/** Whether all its successors were stored when it was superseded or later; then the branch ended here. */
function isFollowed(end: Placed<TimedVersion>, later: readonly Placed<TimedVersion>[]): boolean {
  const { supersededAt } = end.version
  return (
    supersededAt === null ||
    later.every(({ pos, version }) => pos < end.pos || (version.storedAt ?? 0) >= supersededAt)
  )
}

/**
 * Whether nothing is missing before or between the branch's later versions: each is a first revision, or its parent is
 * stored. Of a branch whose revisions did not come in their order, one between may have been the leaf.
 */
function hasBegunLater(
  branch: Branch,
  versions: readonly Placed<TimedVersion>[],
  later: readonly Placed<TimedVersion>[],
): boolean {
  const stored = new Set(versions.map(({ version }) => version.rev))
  return later.every(({ pos }) => {
    const parent = branch.ids[branch.pos - pos + 1]
    return pos === 1 || (parent !== undefined && stored.has(formatRev(pos - 1, parent)))
  })
}
