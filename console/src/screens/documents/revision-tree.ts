/** The revisions of a document as a picture: a row for each, newest first, with its branches side by side. */
import type { RevisionInfo } from './document-text.ts'

/** A branch: a leaf, and what the server knows of its ancestors. */
export interface Branch {
  readonly leaf: string
  readonly isDeleted: boolean
  /** Newest first; the first is the leaf. */
  readonly history: readonly RevisionInfo[]
}

export interface TreeRevision {
  readonly kind: 'revision'
  readonly rev: string
  /** The column of its branch, from 0; the winner's is 0. */
  readonly lane: number
  readonly isWinner: boolean
  readonly isLeaf: boolean
  readonly isDeleted: boolean
  /** Whether its content can still be read. */
  readonly isStored: boolean
}

/** Revisions of one branch that are left out of the picture. */
export interface TreeGap {
  readonly kind: 'gap'
  readonly lane: number
  readonly count: number
  /** The newest of them. */
  readonly rev: string
}

export type TreeRow = TreeRevision | TreeGap

/** A line from a row down to an older one; `to` is null where the older revisions are not known. */
export interface TreeLine {
  readonly from: number
  readonly to: number | null
  /** The columns of its ends. */
  readonly fromLane: number
  readonly toLane: number
}

export interface Tree {
  readonly rows: readonly TreeRow[]
  readonly lines: readonly TreeLine[]
  readonly lanes: number
}

interface Node {
  readonly rev: string
  readonly generation: number
  readonly lane: number
  readonly parent: string | null
  readonly status: RevisionInfo['status']
  children: number
}

/** Revisions in a row without a fork that are shown before the others are left out. */
const SHOWN_RUN = 3
/** A gap stands for at least this many. */
const LEAST_GAP = 3

/** @returns the generation of a revision, from 1 */
function generationOf(rev: string): number {
  return Number.parseInt(rev, 10)
}

/**
 * @param branches the winner's first
 * @param opened the newest revisions of gaps that the user has opened
 */
export function revisionTree(branches: readonly Branch[], opened: ReadonlySet<string> = new Set()): Tree {
  const nodes = nodesOf(branches)
  const leaves = new Map(branches.map((branch) => [branch.leaf, branch]))
  const winner = branches[0]?.leaf
  const ordered = [...nodes.values()].sort((a, b) => b.generation - a.generation || a.lane - b.lane)
  const gaps = gapsOf(ordered, nodes, leaves, opened)
  const rows: TreeRow[] = []
  const places = new Map<string, number>()
  for (const node of ordered) {
    const gap = gaps.get(node.rev)
    if (gap !== undefined && gap.rev !== node.rev) continue
    places.set(node.rev, rows.length)
    if (gap !== undefined) rows.push(gap)
    else {
      const leaf = leaves.get(node.rev)
      rows.push({
        kind: 'revision',
        rev: node.rev,
        lane: node.lane,
        isWinner: node.rev === winner,
        isLeaf: leaf !== undefined,
        isDeleted: leaf?.isDeleted ?? node.status === 'deleted',
        isStored: node.status !== 'missing',
      })
    }
  }
  return { rows, lines: linesOf(ordered, gaps, places, nodes), lanes: branches.length }
}

/** The union of the branches. Where branches meet, the first one has the revision. */
function nodesOf(branches: readonly Branch[]): Map<string, Node> {
  const nodes = new Map<string, Node>()
  for (const [lane, { history }] of branches.entries()) {
    for (const [at, { rev, status }] of history.entries()) {
      const known = nodes.get(rev)
      if (known !== undefined) {
        if (at > 0) known.children += 1
        break
      }
      const parent = history[at + 1]?.rev ?? null
      nodes.set(rev, { rev, generation: generationOf(rev), lane, parent, status, children: at === 0 ? 0 : 1 })
    }
  }
  return nodes
}

/** @returns the gap of each revision that is left out */
function gapsOf(
  ordered: readonly Node[],
  nodes: ReadonlyMap<string, Node>,
  leaves: ReadonlyMap<string, Branch>,
  opened: ReadonlySet<string>,
): Map<string, TreeGap> {
  const gaps = new Map<string, TreeGap>()
  const isPlain = (node: Node) =>
    node.children === 1 &&
    !leaves.has(node.rev) &&
    node.parent !== null &&
    nodes.get(node.parent)?.lane === node.lane
  const seen = new Set<string>()
  for (const first of ordered) {
    if (seen.has(first.rev) || !isPlain(first)) continue
    const run: Node[] = []
    for (
      let node: Node | undefined = first;
      node !== undefined && isPlain(node);
      node = nodes.get(node.parent ?? '')
    ) {
      run.push(node)
      seen.add(node.rev)
    }
    const hidden = run.slice(SHOWN_RUN, -1)
    const [newest] = hidden
    if (newest === undefined || hidden.length < LEAST_GAP || opened.has(newest.rev)) continue
    const gap: TreeGap = { kind: 'gap', lane: newest.lane, count: hidden.length, rev: newest.rev }
    for (const node of hidden) gaps.set(node.rev, gap)
  }
  return gaps
}

function linesOf(
  ordered: readonly Node[],
  gaps: ReadonlyMap<string, TreeGap>,
  places: ReadonlyMap<string, number>,
  nodes: ReadonlyMap<string, Node>,
): TreeLine[] {
  const lines: TreeLine[] = []
  const placeOf = (rev: string) => places.get(gaps.get(rev)?.rev ?? rev)
  for (const node of ordered) {
    const from = placeOf(node.rev)
    const parent = node.parent === null ? undefined : nodes.get(node.parent)
    const to = parent === undefined ? null : (placeOf(parent.rev) ?? null)
    // Inside a gap there is nothing to draw; at the first generation, nothing is older.
    if (from === undefined || from === to || (parent === undefined && node.generation === 1)) continue
    lines.push({ from, to, fromLane: node.lane, toLane: parent?.lane ?? node.lane })
  }
  return lines
}
