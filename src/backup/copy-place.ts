/** Where copies of databases may be, in which good copies of damaged revisions are looked for. */

/** A file of a database as it was at some time. */
export interface StoredCopy {
  readonly path: string
  /** For people: `the backup 2026-11-22T01-30-00Z`. */
  readonly name: string
}

export interface CopyPlace {
  /** The best first. May take long, or never end: it may be a disk far away. */
  copiesOf(database: string): Promise<readonly StoredCopy[]>
}
