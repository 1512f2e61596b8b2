/** Reads and writes the rows of revisions and of their attachments. The rules of CouchDB are decided elsewhere. */
import { type CouchError, isDamage } from '../../core/errors.ts'
import { type Branch, decodeAncestry, encodeAncestry, leafRev, winner } from '../../revisions/branch.ts'
import {
  agrees,
  checkedAncestry,
  contentChecksum,
  type DocFacts,
  docChecksum,
  withChecksum,
} from '../checksum.ts'
import type { DamageReports } from '../damage.ts'
import type { DocWrite, RevisionWrite, StoredAttachment, StoredRevision } from '../engine.ts'
import type { Attachments } from './blobs.ts'
import type { Connection } from './connection.ts'
import type { DamagedLeaves } from './damaged-leaves.ts'
import type { GarbageCounters, Superseded } from './garbage.ts'
import type { Statement } from './statement.ts'
import {
  CONTENT_COLUMNS,
  type ContentRow,
  type DocRow,
  type DocumentRows,
  type RevisionPlace,
  StoredBranch,
} from './stored-document.ts'

interface RevisionRow {
  readonly num: number
  readonly rev: string
  readonly leaf: number
  readonly deleted: number
}

interface FoundRow extends RevisionRow {
  readonly doc: unknown
  /** The size of the body and the attachments, and the number of attachments. */
  readonly size: number
  readonly attachments: number
  /** The size of the body. */
  readonly bytes: number
  /** 1 if the revision is retained only for the time machine. */
  readonly kept: number
}

interface LeafRow extends Omit<RevisionRow, 'leaf'> {
  /** The stored size of the ancestry. */
  readonly bytes: number
  /** null if it is too long to be compared with its checksum. */
  readonly ancestry: Uint8Array | null
  /** 1 if the index on (doc, rev), which is on other pages, has the row under this name. */
  readonly isNamed: number
  /** The document that the row belongs to; null if it is no leaf. */
  readonly owner: number | null
}

interface NamedLeaf {
  readonly rev: string
  readonly deleted: boolean
}

interface AncestryRow {
  /** The number of the revision's row. */
  readonly revision: number
  readonly rev: string
  readonly deleted: number
  /** In bytes; null if the revision is not a leaf. */
  readonly length: number | null
}

interface Dependencies {
  readonly attachments: Attachments
  readonly superseded: Superseded
  readonly garbage: GarbageCounters
  readonly damage: DamageReports
  readonly damagedLeaves: DamagedLeaves
}

/** The write that a revision is part of. */
interface WriteContext {
  /** The number of the document's row. */
  readonly doc: number
  readonly docIsNew: boolean
  /** The time of the write, in ms since 1970. */
  readonly at: number
  /** The stored contents that the write names. */
  blobs(): ReadonlySet<number>
}

/** The longest ancestry that is kept with its leaf in a document with several leaves: four ids, in bytes. */
const SHORT_ANCESTRY = 69
/** The longest one that is compared when its leaf is read, in bytes: a document may have 16 MB of them. */
const COMPARED_ANCESTRY = 1024

/** Whether a superseded revision, r, is retained only for the time machine. */
const IS_KEPT = 'EXISTS (SELECT 1 FROM superseded AS s WHERE s.revision = r.num AND s.kept)'

/**
 * Rows, r, of what an index, i, names. Of a single table, SQLite reads the columns of the index from it, also in `+doc = ?`: they
 * would say nothing of the row.
 */
const NAMED = 'revision AS i CROSS JOIN revision AS r ON r.num = i.num'

export class Revisions implements DocumentRows {
  readonly #attachments: Attachments
  readonly #superseded: Superseded
  readonly #garbage: GarbageCounters
  readonly #damage: DamageReports
  readonly #damagedLeaves: DamagedLeaves
  readonly #revision: Statement<FoundRow>
  readonly #numOfName: Statement<readonly [num: number]>
  readonly #insertRevision: Statement
  readonly #updateRevision: Statement
  readonly #updateLeaf: Statement
  readonly #setChecksum: Statement
  readonly #noteGrowth: Statement
  readonly #dropRevision: Statement
  readonly #leaves: Statement<LeafRow>
  readonly #names: Statement<readonly [rev: unknown]>
  readonly #all: Statement<RevisionRow>
  readonly #kept: Statement<{ rev: string }>
  readonly #ancestry: Statement<readonly [Uint8Array | null]>
  readonly #ancestries: Statement<AncestryRow>
  readonly #setAncestry: Statement
  readonly #content: Statement<ContentRow>
  readonly #contentByRev: Statement<ContentRow>
  readonly #deleted: Statement<readonly [deleted: number]>
  readonly #docOfId: Statement<readonly [num: number]>
  readonly #docOfSeq: Statement<readonly [num: number]>
  readonly #docOfNum: Statement<readonly [id: string, seq: number]>
  #lastRevision: number

  constructor(
    connection: Connection,
    { attachments, superseded, garbage, damage, damagedLeaves }: Dependencies,
  ) {
    this.#attachments = attachments
    this.#superseded = superseded
    this.#garbage = garbage
    this.#damage = damage
    this.#damagedLeaves = damagedLeaves
    this.#revision = connection.prepare(
      'SELECT r.num, r.doc, r.rev, r.leaf, r.deleted, r.size, r.attachments, octet_length(r.body) AS bytes, ' +
        `CASE WHEN r.leaf THEN 0 ELSE ${IS_KEPT} END AS kept FROM ${NAMED} WHERE i.doc = ? AND i.rev = ?`,
    )
    this.#numOfName = connection.prepareTuples('SELECT num FROM revision WHERE doc = ? AND rev = ?')
    this.#insertRevision = connection.prepare(
      'INSERT INTO revision (num, doc, rev, leaf, deleted, ancestry, attachments, size, body, checksum, stored_at) ' +
        'VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)',
    )
    this.#updateRevision = connection.prepare(
      'UPDATE revision SET leaf = ?, deleted = ?, ancestry = ?, attachments = ?, size = ?, body = ?, checksum = ? ' +
        'WHERE num = ?',
    )
    this.#updateLeaf = connection.prepare(
      'UPDATE revision SET leaf = ?, deleted = ?, ancestry = ? WHERE num = ?',
    )
    this.#setChecksum = connection.prepare('UPDATE revision SET checksum = ? WHERE num = ?')
    this.#noteGrowth = connection.prepare('UPDATE revision SET grown_at = ? WHERE num = ?')
    this.#dropRevision = connection.prepare('DELETE FROM revision WHERE num = ?')
    this.#leaves = connection.prepare(
      'SELECT num, rev, deleted, octet_length(ancestry) AS bytes, ' +
        `CASE WHEN octet_length(ancestry) <= ${COMPARED_ANCESTRY} THEN ancestry END AS ancestry, ` +
        'num IS (SELECT n.num FROM revision AS n WHERE n.doc = ? AND n.rev = r.rev) AS isNamed, ' +
        // Without a search of its own, it would be that of the index.
        '(SELECT o.doc FROM revision AS o WHERE o.num = r.num AND o.leaf) AS owner ' +
        'FROM revision AS r WHERE doc = ? AND leaf',
    )
    this.#names = connection.prepareTuples(
      'SELECT rev FROM revision WHERE num = ? AND doc = ? UNION ALL ' +
        'SELECT rev FROM revision INDEXED BY sqlite_autoindex_revision_1 WHERE num = ? AND doc = ?',
    )
    this.#all = connection.prepare(
      `SELECT r.num, i.rev, r.leaf, r.deleted FROM ${NAMED} WHERE i.doc = ? AND r.doc = ? AND (r.leaf OR NOT ${IS_KEPT})`,
    )
    this.#kept = connection.prepare(
      `SELECT i.rev FROM ${NAMED} WHERE i.doc = ? AND r.doc = ? AND NOT r.leaf AND ${IS_KEPT}`,
    )
    this.#ancestry = connection.prepareTuples('SELECT ancestry FROM revision WHERE num = ?')
    this.#ancestries = connection.prepare(
      'SELECT num AS revision, rev, deleted, length(ancestry) AS length FROM revision WHERE num > ? ORDER BY num LIMIT ?',
    )
    this.#setAncestry = connection.prepare('UPDATE revision SET ancestry = ? WHERE num = ?')
    const content = `SELECT ${CONTENT_COLUMNS} FROM revision`
    this.#content = connection.prepareTuples(`${content} WHERE num = ?`)
    const byRev = `AS r WHERE doc = ? AND rev = ? AND (leaf OR NOT ${IS_KEPT})`
    this.#contentByRev = connection.prepareTuples(`${content} ${byRev}`)
    this.#deleted = connection.prepareTuples(`SELECT deleted FROM revision ${byRev}`)
    this.#docOfId = connection.prepareTuples('SELECT num FROM doc WHERE id = ?')
    this.#docOfSeq = connection.prepareTuples('SELECT num FROM doc WHERE seq = ?')
    this.#docOfNum = connection.prepareTuples('SELECT id, seq FROM doc WHERE num = ?')
    const last = connection.prepare<{ num: number | null }>('SELECT max(num) AS num FROM revision').get()
    this.#lastRevision = last?.num ?? 0
  }

  /**
   * The row of a revision, also of a retained one. A write changes it, so it must not be the one of another revision.
   * @throws damaged_document if a damaged index or page has led to another row
   */
  find(doc: number, rev: string): FoundRow | undefined {
    const row = this.#revision.get(doc, rev)
    if (row === undefined || (row.doc === doc && row.rev === rev)) return row
    // Its name may be what is damaged.
    const isOther = typeof row.doc === 'number' && this.#numOfName.get(row.doc, row.rev)?.[0] === row.num
    if (isOther || !this.#isContentOf(row.num, rev, row.deleted)) throw this.damaged()
    return row
  }

  /**
   * Writes a revision of a document.
   * @returns the row's number, and the changes of the leaves' bytes and of the number of leaves
   */
  write(write: RevisionWrite, context: WriteContext): { num: number; bytes: number; leaves: number } {
    const { doc, docIsNew, at } = context
    const stored = docIsNew ? undefined : this.find(doc, write.rev)
    const leaf = write.ancestry === null ? 0 : 1
    const deleted = Number(write.deleted)
    const ancestry = write.ancestry && withChecksum(encodeAncestry(write.ancestry), write.rev, write.deleted)
    const [wasLeaf, before] = stored?.leaf ? [1, stored.size] : [0, 0]
    if (write.content !== undefined || leaf === 0) this.#damagedLeaves.restored(doc, write.rev)
    // A leaf is written again as a leaf only when its ancestry changes.
    if (stored?.leaf && leaf === 1) this.#noteGrowth.run(at, stored.num)
    if (write.content === undefined) {
      if (stored === undefined || stored.kept === 1)
        throw new RangeError(`revision ${write.rev} is not stored and brings no content`)
      this.#updateLeaf.run(leaf, deleted, ancestry, stored.num)
      if (deleted !== stored.deleted) this.#sumAgain(write.rev, stored.num)
      if (leaf < wasLeaf) this.#supersede(stored, context)
      else if (leaf > wasLeaf) this.#superseded.revive(stored.num, at)
      return { num: stored.num, bytes: leaf * stored.size - before, leaves: leaf - wasLeaf }
    }
    const { body, attachments } = write.content
    const bodyBytes = Buffer.byteLength(body)
    const size = attachments.reduce((sum, { length }) => sum + length, bodyBytes)
    const num = stored?.num ?? ++this.#lastRevision
    const facts = { num, rev: write.rev, deleted, attachments: attachments.length, body }
    const checksum = contentChecksum(facts)
    const columns = [leaf, deleted, ancestry, attachments.length, size, body, checksum]
    if (stored === undefined) this.#insertRevision.run(num, doc, write.rev, ...columns, at)
    else this.#updateRevision.run(...columns, num)
    if (stored !== undefined) this.#dropContent(stored)
    if (attachments.length > 0) this.#attachments.write(num, attachments)
    if (leaf === 0) this.#addAgain(num, stored?.leaf === 0, at, bodyBytes)
    else if (stored?.leaf === 0) this.#superseded.revive(num, at)
    return { num, bytes: leaf * size - before, leaves: leaf - wasLeaf }
  }

  /**
   * Notes the checksum of a stored content again, since whether it is a tombstone has changed. Content that is damaged keeps the
   * checksum that says so.
   */
  #sumAgain(rev: string, num: number): void {
    const [body, attachments, deleted, checksum] = this.#content.get(num) as ContentRow
    const sum = (flag: number) => contentChecksum({ num, rev, deleted: flag, attachments, body })
    if (agrees(checksum, sum(1 - deleted), this.lacksChecksums)) this.#setChecksum.run(sum(deleted), num)
  }

  /** A superseded revision that is written again as superseded keeps the time at which it was superseded. */
  #addAgain(num: number, wasSuperseded: boolean, at: number, bytes: number): void {
    const since = wasSuperseded ? this.#superseded.remove(num) : undefined
    this.#superseded.add(num, since ?? at, bytes)
  }

  /** Makes a leaf an inner revision. @param context the write that supersedes it */
  #supersede({ num, bytes, attachments }: FoundRow, { blobs, at }: WriteContext): void {
    this.#superseded.add(num, at, bytes)
    if (attachments > 0) this.#garbage.addUnreferenced(this.#attachments.bytesWithout(num, blobs()))
  }

  /** Removes the old content before a new one replaces it. */
  #dropContent({ num, size, bytes }: FoundRow): void {
    this.#attachments.drop(num)
    this.#garbage.addUnreferenced(size - bytes)
  }

  /** As {@link drop}, for a superseded revision; notes that the history before it was superseded is incomplete. */
  expire(num: number): void {
    this.#superseded.noteExpiry(num)
    this.drop(num)
  }

  /** As {@link Superseded.noteLoss}. */
  noteLoss(at: number): void {
    this.#superseded.noteLoss(at)
  }

  /** Removes a revision's row, by its number, and the rows of its attachments. */
  drop(num: number): void {
    this.#attachments.drop(num)
    this.#superseded.remove(num)
    this.#dropRevision.run(num)
  }

  /** The next rows in order, with the stored lengths of their ancestries; null for superseded revisions. */
  ancestries(above: number, limit: number): AncestryRow[] {
    return this.#ancestries.all(above, limit)
  }

  /** Cuts the ancestry of a leaf. @param maxIds the maximum number of ids */
  cutAncestry({ revision, rev, deleted, length }: AncestryRow, maxIds: number): void {
    // An id takes at least two bytes.
    if (length === null || length <= 2 * maxIds) return
    const stored = this.#ancestry.get(revision)?.[0]
    const known = stored ? checkedAncestry(stored, rev, deleted === 1, this.lacksChecksums) : undefined
    // A damaged one stays as it is, since a copy of it may be found.
    if (!known) return
    const ids = decodeAncestry(known)
    if (ids.length <= maxIds) return
    const cut = withChecksum(encodeAncestry(ids.slice(0, maxIds)), rev, deleted === 1)
    this.#setAncestry.run(cut, revision)
  }

  /** The leaves of a document. Most readers use nothing else of them than {@link NamedLeaf}, so that is proven here. */
  branchesOf(doc: number): Branch[] {
    let last = Number.NEGATIVE_INFINITY
    return this.#leaves.all(doc, doc).map((leaf) => {
      const { num, bytes, ancestry } = leaf
      // A damaged index has a row twice.
      if (num <= last) throw this.damaged()
      last = num
      const { rev, deleted } = this.#named(leaf, doc)
      const kept = bytes > SHORT_ANCESTRY ? null : ancestry
      return new StoredBranch({ doc, rev, num }, deleted, this, kept, bytes)
    })
  }

  /**
   * What a leaf is called, and whether it is a tombstone. Its ancestry and its content prove both, also where the row does not
   * say them.
   * @throws damaged_document if nothing proves them
   */
  #named({ num, rev, deleted, ancestry, isNamed, owner }: LeafRow, doc: number): NamedLeaf {
    if (owner !== doc) throw this.damaged()
    const isFlag = deleted === 0 || deleted === 1
    const asRead = { rev, deleted: deleted === 1 }
    if (isNamed === 1 && isFlag && ancestry === null) return asRead
    // One of both is wrong at most: the checksum of `1-a` as a tombstone is that of `0-a` as none.
    const found: readonly (readonly [name: unknown, deleted: boolean])[] =
      isNamed === 1
        ? [asRead.deleted, !asRead.deleted].map((flag) => [rev, flag])
        : this.#names.all(num, doc, num, doc).map(([name]) => [name, asRead.deleted])
    for (const [name, flag] of found) {
      if (typeof name === 'string' && this.#isProven(num, name, flag, ancestry))
        return { rev: name, deleted: flag }
    }
    // Its ancestry and its content are damaged, which is an error for those who use them.
    if (isNamed === 1 && isFlag) return asRead
    throw this.damaged()
  }

  #isProven(num: number, rev: string, deleted: boolean, read: Uint8Array | null): boolean {
    const stored = read ?? this.#ancestry.get(num)?.[0]
    // The comparison changes the bytes.
    const isBytes = stored instanceof Uint8Array
    if (isBytes && checkedAncestry(Buffer.from(stored), rev, deleted, this.lacksChecksums) !== null)
      return true
    return this.#isContentOf(num, rev, Number(deleted))
  }

  /** Whether the content of a row proves its number, its name, and whether it is a tombstone. */
  #isContentOf(num: number, rev: string, deleted: number): boolean {
    const [body, attachments, , checksum] = this.#content.get(num) ?? ['', 0, 0, null]
    return checksum === contentChecksum({ num, rev, deleted, attachments, body })
  }

  revisionsOf(doc: number): StoredRevision[] {
    return this.#all
      .all(doc, doc)
      .map(({ rev, deleted, leaf }) => ({ rev, deleted: deleted === 1, leaf: leaf === 1 }))
  }

  retainedOf(doc: number): string[] {
    return this.#kept.all(doc, doc).map(({ rev }) => rev)
  }

  isDeleted({ doc, rev }: RevisionPlace): boolean | null {
    const deleted = this.#deleted.get(doc, rev)?.[0]
    return deleted === undefined ? null : deleted === 1
  }

  contentOf(place: RevisionPlace): ContentRow | undefined {
    const { doc, rev, num } = place
    return num === null ? this.#contentByRev.get(doc, rev) : this.#content.get(num)
  }

  attachmentsOf(place: RevisionPlace): StoredAttachment[] {
    const num = this.#numOf(place)
    return num === undefined ? [] : this.#attachments.of(num)
  }

  ancestryOf(place: RevisionPlace): Uint8Array {
    const num = this.#numOf(place)
    const ancestry = num === undefined ? null : this.#ancestry.get(num)?.[0]
    // A leaf has one.
    if (!ancestry) throw this.damaged(undefined, place)
    return ancestry
  }

  get lacksChecksums(): boolean {
    return this.#garbage.lacksChecksums
  }

  rebuilt(stored: DocRow, id: string): DocRow | null {
    const [num, , seq, , , , , checksum] = stored
    this.damaged(id)
    const leaves = this.#leavesOf(num)
    const best = winner(leaves)
    if (best === undefined) return null
    const [rev, deleted] = [leafRev(best), Number(best.deleted)]
    const facts = {
      num,
      seq,
      deleted,
      leaves: leaves.length,
      winner: this.#revision.get(num, rev)?.num ?? null,
    }
    const isProven =
      docChecksum(id, rev, facts) === checksum ||
      (isSame(stored, rev, facts) && this.#isIndexed(num, id, seq))
    return isProven ? [num, id, seq, rev, deleted, facts.leaves, facts.winner, checksum] : null
  }

  /**
   * Whether a document's row has this id and this number in the feed, and the indexes, which are on other pages, know both.
   * A reader may have them from one of the indexes.
   */
  #isIndexed(num: number, id: string, seq: number): boolean {
    const [storedId, storedSeq] = this.#docOfNum.get(num) ?? []
    const isStored = storedId === id && storedSeq === seq
    return isStored && this.#docOfId.get(id)?.[0] === num && this.#docOfSeq.get(seq)?.[0] === num
  }

  /**
   * A document's row as its leaves show it, whatever the row says.
   * @throws damaged_document if a leaf hides its name
   */
  salvaged([num, , seq, rev, deleted]: DocRow, id: string): DocRow {
    const best = winner(this.branchesOf(num))
    const facts = { num, seq, deleted: Number(best?.deleted ?? deleted === 1), leaves: 0, winner: null }
    const winning = best === undefined ? String(rev) : leafRev(best)
    return [num, id, seq, winning, facts.deleted, 0, null, docChecksum(id, winning, facts)]
  }

  /** None if one of them is damaged. */
  #leavesOf(doc: number): readonly Branch[] {
    try {
      return this.branchesOf(doc)
    } catch (error) {
      if (isDamage(error)) return []
      throw error
    }
  }

  damagedLeavesOf(doc: number): ReadonlySet<string> {
    return this.#damagedLeaves.of(doc)
  }

  damaged(id?: string, place?: Pick<RevisionPlace, 'doc' | 'rev'>): CouchError {
    if (place !== undefined) this.#damagedLeaves.note(place.doc, place.rev)
    return this.#damage.damagedDocument(id, place?.rev)
  }

  #numOf({ doc, rev, num }: RevisionPlace): number | undefined {
    if (num !== null) return num
    const found = this.#revision.get(doc, rev)
    return found?.kept === 1 ? undefined : found?.num
  }
}

/** Whether a document's row agrees with its leaves, so that only its checksum can be damaged, or its place. */
function isSame([, , , rev, deleted, leaves, winner]: DocRow, found: string, facts: DocFacts): boolean {
  return rev === found && deleted === facts.deleted && leaves === facts.leaves && winner === facts.winner
}

/** The stored contents that a write names. */
export function blobsOf({ revisions }: DocWrite): Set<number> {
  const contents = revisions.flatMap((revision) => revision.content?.attachments ?? [])
  return new Set(contents.flatMap(({ content }) => ('blob' in content ? content.blob : [])))
}
