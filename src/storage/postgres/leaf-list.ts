/** The list of damaged leaves in a database's row: JSON, without which it has none. */

/** About 50 kB. What is damaged beyond that is noted when some of these are whole. */
export const MAX_LEAVES = 1000

export type Leaf = readonly [id: string, rev: string]

/** The leaves as they are stored, and by the ids of their documents. */
export interface StoredLeaves {
  readonly stored: string | null
  readonly leaves: ReadonlyMap<string, ReadonlySet<string>>
}

/** @param stored null: there are none */
export function storedLeaves(stored: string | null): StoredLeaves {
  const leaves = new Map<string, Set<string>>()
  for (const [id, rev] of leavesOf(stored)) leaves.set(id, (leaves.get(id) ?? new Set()).add(rev))
  return { stored, leaves }
}

/** Without what the disk has changed: it is found again when it is read. */
export function leavesOf(stored: string | null): readonly Leaf[] {
  try {
    const listed: unknown = JSON.parse(stored ?? '[]')
    return Array.isArray(listed) ? listed.slice(0, MAX_LEAVES).filter(isLeaf) : []
  } catch {
    return []
  }
}

function isLeaf(value: unknown): value is Leaf {
  return Array.isArray(value) && value.length === 2 && value.every((part) => typeof part === 'string')
}
