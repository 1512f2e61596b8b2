/**
 * What a node remembers of its store outside PostgreSQL. PostgreSQL cannot tell that it was restored where the timeline stays the
 * same, as when a base backup is simply started, or a disk is put back to a snapshot: everything in it has gone back together. A
 * node has seen how far it was, and finds it behind that.
 *
 * Two numbers only grow while nothing is lost: that of `_db_updates`, which covers each write a second later, and the position in
 * PostgreSQL's log up to which everything has reached its disk, which covers each acknowledged write at once. Both are read with each
 * look for other nodes' changes, about every second. They are in memory, and in a file of the node's folder for its next start.
 */
import { readFile } from 'node:fs/promises'
import { writeAtomically } from '../../core/durable-files.ts'
import { jsonObjectIn } from '../../core/json.ts'
import { type Epochs, isRolledBack } from '../sequence.ts'

/** The least time between two writes of the file, in ms. An orderly end writes it as well. */
const WRITE_MS = 5000

/** Up to where PostgreSQL's log has reached the disk, as a number of bytes. */
export const WAL = "(pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::bigint"

export interface StorePosition {
  /** The newest number of `_db_updates`, and its epoch; null: not known. */
  readonly updateSeq: number
  readonly epoch: string | null
  /** As {@link WAL}. */
  readonly wal: number
  /** When it was seen, in ms since 1970. */
  readonly at: number
}

/** A store as it is. */
interface StoreState {
  readonly updateSeq: number
  readonly epochs: Epochs
  readonly generation: string
  readonly wal: number
}

/** Whether a store has lost what was there, and no node has begun a generation since (schema.ts). */
export function isBehind(state: StoreState, remembered: StorePosition): boolean {
  if (Number(state.generation.split('-', 1)[0]) > remembered.at) return false
  const { updateSeq, epoch, wal } = remembered
  if (state.wal < wal || state.updateSeq < updateSeq) return true
  return epoch !== null && isRolledBack(state, { updateSeq, epoch })
}

export class StoreMemory {
  readonly #path: string | null
  #position: StorePosition | null
  #writtenAt = Number.NEGATIVE_INFINITY
  #isUnwritten = false
  #writing: Promise<void> = Promise.resolve()

  /**
   * Reads what is remembered. A file that is missing or damaged is nothing.
   * @param path of the file; null: only memory
   */
  static async open(path: string | null): Promise<StoreMemory> {
    const text = path === null ? null : await readFile(path, 'utf8').catch(() => null)
    return new StoreMemory(path, positionIn(text))
  }

  private constructor(path: string | null, position: StorePosition | null) {
    this.#path = path
    this.#position = position
  }

  /** What is remembered; null: nothing. */
  get position(): StorePosition | null {
    return this.#position
  }

  /** Whether a position that was read now is behind the one that is remembered. */
  isAheadOf({ updateSeq, wal }: Pick<StorePosition, 'updateSeq' | 'wal'>): boolean {
    const remembered = this.#position
    return remembered !== null && (updateSeq < remembered.updateSeq || wal < remembered.wal)
  }

  /** Remembers a position, and from time to time writes it to the file. */
  note(position: StorePosition): void {
    const before = this.#position
    const isSame = before?.updateSeq === position.updateSeq
    this.#isUnwritten ||= !isSame || before.wal !== position.wal
    this.#position = isSame && position.epoch === null ? { ...position, epoch: before.epoch } : position
    if (performance.now() - this.#writtenAt > WRITE_MS) void this.write()
  }

  /** The store has begun a generation: what was remembered before means nothing. */
  forget(): void {
    this.#position = null
  }

  /** Writes what is remembered. Never rejects: a node whose disk is full works on, and remembers less. */
  write(): Promise<void> {
    const path = this.#path
    if (path === null || this.#position === null || !this.#isUnwritten) return this.#writing
    this.#isUnwritten = false
    this.#writtenAt = performance.now()
    const text = `${JSON.stringify(this.#position)}\n`
    this.#writing = this.#writing
      .then(() => writeAtomically(path, text))
      .catch(() => {
        this.#isUnwritten = true
      })
    return this.#writing
  }
}

function positionIn(text: string | null): StorePosition | null {
  const { updateSeq, epoch, wal, at } = jsonObjectIn(text) ?? {}
  const isWhole =
    [updateSeq, wal, at].every(Number.isSafeInteger) && (typeof epoch === 'string' || epoch === null)
  return isWhole ? ({ updateSeq, epoch, wal, at } as StorePosition) : null
}
