/** Forgetting revisions as if they had never been, and the list of what was forgotten; protocol.md 4.7. */
import type { PurgeInfo, PurgeWrite } from '../engine.ts'
import type { Connection } from './connection.ts'
import type { Documents } from './documents.ts'
import type { FeedCounts } from './feed-counts.ts'
import type { Revisions } from './revisions.ts'
import type { State } from './state.ts'
import type { Statement } from './statement.ts'
import type { Wear } from './wear.ts'

interface PurgedRow {
  readonly num: number
  readonly leaf: number
  readonly size: number
  /** Of the body alone. */
  readonly bytes: number
}

/** What a purge changes beside the rows of its document. */
interface Surroundings {
  readonly documents: Documents
  readonly revisions: Revisions
  readonly feed: FeedCounts
  readonly state: State
  readonly wear: Wear
}

type PurgedDoc = NonNullable<ReturnType<Documents['byId']>>

export class Purges {
  readonly #around: Surroundings
  readonly #now: () => number
  readonly #one: Statement<PurgedRow>
  readonly #all: Statement<PurgedRow>
  readonly #dropDoc: Statement
  readonly #note: Statement
  readonly #forget: Statement
  readonly #newest: Statement<{ seq: number; id: string; revs: string }>

  /** @param now the time, in ms since 1970 */
  constructor(connection: Connection, around: Surroundings, now: () => number) {
    this.#around = around
    this.#now = now
    const select = 'SELECT num, leaf, size, octet_length(body) AS bytes FROM revision WHERE doc = ?'
    this.#one = connection.prepare(`${select} AND rev = ?`)
    this.#all = connection.prepare(select)
    this.#dropDoc = connection.prepare('DELETE FROM doc WHERE num = ?')
    this.#note = connection.prepare('INSERT INTO purge (seq, id, revs) VALUES (?, ?, ?)')
    this.#forget = connection.prepare('DELETE FROM purge WHERE seq <= ?')
    this.#newest = connection.prepare('SELECT seq, id, revs FROM purge WHERE seq > ? ORDER BY seq')
  }

  /** Carries out what was decided of a document, inside the transaction of the caller. */
  carryOut(doc: PurgedDoc, { purged, removed, rest, design }: PurgeWrite): void {
    const { state } = this.#around
    if (rest === null) this.#forgetDoc(doc)
    else this.#keep(doc, removed, rest)
    if (design) state.touchDesign()
    const seq = state.takePurgeSeq()
    this.#note.run(seq, doc.id, JSON.stringify(purged))
    this.#forget.run(seq - state.view.purgedInfosLimit)
  }

  #forgetDoc(doc: PurgedDoc): void {
    const { feed, state } = this.#around
    const freed = this.#drop(this.#all.all(doc.num))
    this.#dropDoc.run(doc.num)
    feed.move(doc.seq, null)
    state.uncount(doc.deleted, freed)
  }

  #keep(doc: PurgedDoc, removed: readonly string[], rest: NonNullable<PurgeWrite['rest']>): void {
    const { documents, feed, revisions, state } = this.#around
    // Without it a time at which one of these was the document would be one at which there was none.
    revisions.noteLoss(this.#now())
    const freed = this.#drop(removed.flatMap((rev) => this.#one.get(doc.num, rev) ?? []))
    const seq = rest.sequenced ? state.takeSeq() : doc.seq
    const { id, num, rev, deleted } = doc
    // Its leaves are counted anew, and its winner's row is looked up.
    const old = { num, seq: doc.seq, rev, deleted, leaves: 0, winner: null }
    const effect = documents.write(id, old, rest, seq)
    if (seq !== doc.seq) feed.move(doc.seq, seq)
    state.count({ ...effect, externalBytes: effect.externalBytes - freed }, rest.deleted)
  }

  /** Removes revisions with their attachments. @returns the bytes that leaves among them held */
  #drop(rows: readonly PurgedRow[]): number {
    let freed = 0
    for (const { num, leaf, size, bytes } of rows) {
      this.#around.revisions.drop(num)
      this.#around.wear.loosen(size - bytes)
      freed += leaf * size
    }
    return freed
  }

  /** The purges that are remembered, oldest first. */
  newest(): PurgeInfo[] {
    const { purgeSeq, view } = this.#around.state
    return this.#newest
      .all(purgeSeq - view.purgedInfosLimit)
      .map(({ seq, id, revs }) => ({ seq, id, revs: JSON.parse(revs) as string[] }))
  }
}
