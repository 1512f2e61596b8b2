/**
 * What a document was at a time: of the versions whose rows are stored, those that were leaves then, and of these the
 * winner by the rule of branch.ts. Pure.
 *
 * A version is a leaf from when it is stored until it is superseded. Rows of superseded versions leave the store after
 * some time; what may be missing for that reason is told, and never guessed.
 */
import { type Branch, knows, winner } from './branch.ts'
import { formatRev, parseRev } from './rev.ts'

/** A stored version, and when it was a leaf; times are in ms since 1970. */
export interface TimedVersion {
  readonly rev: string
  readonly deleted: boolean
  /** null: it was stored before times were noted. */
  readonly storedAt: number | null
  /** null: it is a leaf. */
  readonly supersededAt: number | null
}

/** How far back a database knows what its documents were; times in ms since 1970, 0: always. */
export interface Horizon {
  /** From here on the rows of all versions are stored that were leaves; of earlier times some may be gone. */
  readonly whole: number
  /** Before this the times at which versions were stored were not noted. */
  readonly timed: number
}

export type AsOf<Version> =
  | { readonly kind: 'version'; readonly version: Version }
  /** The document was not there. */
  | { readonly kind: 'absent' }
  /** What it was is not known any more. */
  | { readonly kind: 'expired' }

interface Placed<Version> {
  readonly pos: number
  readonly leaf: string
  readonly deleted: boolean
  readonly version: Version
}

/**
 * The winner of a document at a time, with a tombstone as a version like any other.
 * @param versions at least those that are leaves or were superseded after `at`; from `horizon.whole` on those suffice
 * that were stored by `at`, too
 * @param branches the document's branches now; asked for only where the time lies before `horizon.whole`
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
  if (at < horizon.whole && !areSettled(versions.map(placed), leaves, branches(), at)) return EXPIRED
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
 * Whether it is certain that no leaf of that time is missing. Each version that is no leaf any more is an ancestor of
 * a branch; so it is enough that each branch tells from its own rows where it ended then.
 */
function areSettled(
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

/** All that came upon it came when it was superseded, or later: then it was where the branch ended. */
function isFollowed(end: Placed<TimedVersion>, later: readonly Placed<TimedVersion>[]): boolean {
  const { supersededAt } = end.version
  return (
    supersededAt === null ||
    later.every(({ pos, version }) => pos < end.pos || (version.storedAt ?? 0) >= supersededAt)
  )
}

/** Of its first stored version that is later, nothing before it can be missing: it is the first, or its parent is there. */
function hasBegunLater(
  branch: Branch,
  versions: readonly Placed<TimedVersion>[],
  later: readonly Placed<TimedVersion>[],
): boolean {
  const first = Math.min(...later.map(({ pos }) => pos))
  if (first === 1) return true
  const parent = branch.ids[branch.pos - first + 1]
  if (parent === undefined) return false
  return versions.some(({ version }) => version.rev === formatRev(first - 1, parent))
}
