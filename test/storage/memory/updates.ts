/** What happened to the databases of the engine in memory. */
import { randomBytes } from 'node:crypto'
import type { CatalogUpdate, CatalogUpdates, UpdatesRange } from '../../../src/storage/catalog.ts'
import { beginEpoch, type Epochs, epochId } from '../../../src/storage/sequence.ts'

export class MemoryUpdates {
  #rows: readonly CatalogUpdate[] = []
  #lastSeq = 0
  #epochs: Epochs = [{ id: epochId(randomBytes(9)), firstSeq: 0 }]
  #isEpochBegun = false

  /** The catalog is opened: what is noted next begins an epoch. */
  reopen(): void {
    this.#isEpochBegun = false
  }

  note(names: readonly string[], type: CatalogUpdate['type']): void {
    for (const name of names) {
      this.#lastSeq += 1
      if (!this.#isEpochBegun) this.#epochs = beginEpoch(this.#epochs, epochId(randomBytes(9)), this.#lastSeq)
      this.#isEpochBegun = true
      const others = this.#rows.filter((row) => row.name !== name || row.type !== type)
      this.#rows = [...others, { seq: this.#lastSeq, name, type }]
    }
  }

  read({ since, descending = false, before = Infinity, names }: UpdatesRange, limit: number): CatalogUpdates {
    const made = (name: string) =>
      this.#rows.find((row) => row.name === name && row.type === 'created')?.seq ?? Infinity
    const inRange = this.#rows.filter(
      ({ seq, name }) =>
        seq > since && seq < before && (names === undefined || (names.includes(name) && seq >= made(name))),
    )
    const rows = (descending ? inRange.toReversed() : inRange).slice(0, limit)
    return { rows, lastSeq: this.#lastSeq, epochs: this.#epochs }
  }
}
