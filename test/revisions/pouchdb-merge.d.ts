// The package has no types of its own; only what the tests use is declared.
declare module 'pouchdb-merge' {
  export type Tree = [id: string, opts: { status?: string; deleted?: boolean }, children: Tree[]]
  export interface Root {
    pos: number
    ids: Tree
  }
  export function merge(roots: Root[], path: Root, depth: number): { tree: Root[]; conflicts: string }
  export function winningRev(metadata: { rev_tree: Root[] }): string
  /** `pos` is the oldest generation; `ids` run from it to the leaf. */
  export function rootToLeaf(
    roots: Root[],
  ): { pos: number; ids: { id: string; opts: { deleted?: boolean } }[] }[]
}
