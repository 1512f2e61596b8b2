/**
 * Orders what makes the databases of one account grow: writes, and steps of indexes. Each reserves the most that it may
 * store. Those that together could exceed a limit take turns, and the databases are measured in between; so each
 * begins when the account's size is known exactly. All others run at once.
 */
import type { WriteKind } from '../auth/policy.ts'
import type { Size } from './account-totals.ts'
import type { Quota } from './quota.ts'
import type { Usage } from './usage.ts'

interface Write {
  readonly database: string
  /** The most that it may store. */
  readonly most: Size
}

/** Bytes of the shortest document in a list: `{},`. */
const LEAST_DOCUMENT = 3
/** Bytes of a document beside its body, about; and how many times larger its body can be on disk. */
const DOCUMENT_BYTES = 1024
const STORED_TIMES = 3

/** @param length of the request's body, in bytes @returns the most that the write may store */
export function maxSizeOf(length: number, kind: WriteKind): Size {
  const documents = kind === 'list' ? Math.ceil(length / LEAST_DOCUMENT) : 1
  const indexes = kind === 'index' ? 1 : 0
  return { documents, bytes: STORED_TIMES * length + DOCUMENT_BYTES * documents, indexes }
}

export class WriteTurns {
  readonly #usage: Pick<Usage, 'sumOf' | 'unmeasuredOf' | 'wrote' | 'measureAll'>
  /** Waiting and running writes by account, in order of arrival. */
  readonly #writes = new Map<string, Write[]>()
  /** Callbacks that wait for the end of a write, by account. */
  readonly #waiting = new Map<string, (() => void)[]>()

  constructor(usage: Pick<Usage, 'sumOf' | 'unmeasuredOf' | 'wrote' | 'measureAll'>) {
    this.#usage = usage
  }

  /**
   * Runs a write in its turn.
   * @param account that owns the database
   * @param work is called when the sizes of the account's databases are known, if they matter
   * @throws as `work`
   */
  async run<T>(account: string, write: Write, quota: Quota, work: () => Promise<T>): Promise<T> {
    const writes = this.#writes.get(account) ?? []
    this.#writes.set(account, writes)
    writes.push(write)
    try {
      await this.#turn(account, write, quota)
      return await work()
    } finally {
      writes.splice(writes.indexOf(write), 1)
      if (writes.length === 0) this.#writes.delete(account)
      this.#usage.wrote(account, write.database, write.most)
      const waiting = this.#waiting.get(account) ?? []
      this.#waiting.delete(account)
      for (const wake of waiting) wake()
    }
  }

  async #turn(account: string, write: Write, quota: Quota): Promise<void> {
    let hasLooked = false
    while (await this.#couldPass(account, write, quota)) {
      if (this.#before(account, write).length > 0) {
        await new Promise<void>((wake) => {
          this.#waiting.set(account, [...(this.#waiting.get(account) ?? []), wake])
        })
        hasLooked = false
      } else {
        const unmeasured = [...this.#usage.unmeasuredOf(account).keys()]
        // A database that cannot be measured holds up nobody.
        if (unmeasured.length === 0 || hasLooked) return
        await this.#usage.measureAll(unmeasured)
        hasLooked = true
      }
    }
  }

  /** Whether the account could exceed a limit after this write and all earlier ones. */
  async #couldPass(account: string, write: Write, quota: Quota): Promise<boolean> {
    let { bytes, documents, indexes }: Size = await this.#usage.sumOf(account)
    const writes = [...this.#before(account, write), write].map(({ most }) => most)
    for (const most of [...this.#usage.unmeasuredOf(account).values(), ...writes]) {
      bytes += most.bytes
      documents += most.documents
      indexes += most.indexes
    }
    return bytes > quota.bytes || documents > quota.documents || indexes > quota.indexes
  }

  #before(account: string, write: Write): readonly Write[] {
    const writes = this.#writes.get(account) ?? []
    return writes.slice(0, writes.indexOf(write))
  }
}
