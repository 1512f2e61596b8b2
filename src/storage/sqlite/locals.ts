/** `_local` documents as rows. */
import type { IdRange, LocalDoc, LocalUpdate, Outcome, StoreView } from '../engine.ts'
import type { Connection } from './connection.ts'
import { idRange } from './id-range.ts'
import type { Statement } from './statement.ts'
import type { Plan } from './writer.ts'

/** About the bytes of a write that is no document's. */
export const SMALL_WRITE = 1024

export class Locals {
  readonly #connection: Connection
  readonly #byId: Statement<LocalDoc>
  readonly #put: Statement
  readonly #drop: Statement
  readonly #met: Statement<{ id: string }>
  readonly #meet: Statement

  constructor(connection: Connection) {
    this.#connection = connection
    this.#byId = connection.prepare('SELECT id, rev, body FROM local WHERE id = ?')
    this.#put = connection.prepare(
      'INSERT INTO local (id, rev, body) VALUES (?, ?, ?) ' +
        'ON CONFLICT (id) DO UPDATE SET rev = excluded.rev, body = excluded.body',
    )
    this.#drop = connection.prepare('DELETE FROM local WHERE id = ?')
    this.#met = connection.prepare('SELECT id FROM refused_checkpoint WHERE id = ?')
    this.#meet = connection.prepare('INSERT OR IGNORE INTO refused_checkpoint (id) VALUES (?)')
  }

  byId(id: string): LocalDoc | null {
    return this.#byId.get(id) ?? null
  }

  inRange(range: IdRange, limit: number): LocalDoc[] {
    const { where, values } = idRange(range, 'id')
    const sql = `SELECT id, rev, body FROM local WHERE ${where} ORDER BY id ${range.descending ? 'DESC' : 'ASC'} LIMIT ?`
    return this.#connection.prepare<LocalDoc>(sql).all(...values, limit)
  }

  count(range: IdRange): number {
    const { where, values } = idRange(range, 'id')
    const sql = `SELECT count(*) AS n FROM local WHERE ${where}`
    return this.#connection.prepare<{ n: number }>(sql).get(...values)?.n ?? 0
  }

  /** @param view asked when the decision is made */
  plan<R>({ id, decide }: LocalUpdate<R>, view: () => StoreView): Plan<Outcome<R>> {
    return {
      bytes: SMALL_WRITE,
      decide: () => {
        const now = view()
        const wasMet = now.wasRestored && this.#wasMet(id)
        const { result, write, met } = decide(this.byId(id), now, wasMet)
        return () => {
          if (write !== undefined) this.#write(id, write)
          if (met) this.#meet.run(id)
          return { result }
        }
      },
    }
  }

  /** Stores what was decided; null removes. */
  #write(id: string, doc: { readonly rev: number; readonly body: string } | null): void {
    if (doc === null) this.#drop.run(id)
    else this.#put.run(id, doc.rev, doc.body)
  }

  /** Whether a decision on it was to be remembered since the last restore. */
  #wasMet(id: string): boolean {
    return this.#met.get(id) !== undefined
  }
}
