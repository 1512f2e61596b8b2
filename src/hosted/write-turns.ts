/**
 * Writes to several databases of one account at once: each database's thread counts its own documents exactly, and is told
 * what the others take. So that this is true where it matters, writes that together could pass a limit take turns by
 * database; all others go at once.
 */
import type { Owners } from './owners.ts'
import type { Quota, Size, Usage } from './usage.ts'

interface Write {
  readonly database: string
  /** What it may bring at the most. */
  readonly most: Size
}

/** The least text of a document in a list: `{},`. */
const LEAST_DOCUMENT = 3
/** What a document takes beside its body, about; and how much larger its body may be on the disk. */
const DOCUMENT_BYTES = 1024
const STORED_TIMES = 3

/** @param length of the request's body, in bytes */
export function maxSizeOf(length: number, isList: boolean): Size {
  const documents = isList ? Math.ceil(length / LEAST_DOCUMENT) : 1
  return { documents, bytes: STORED_TIMES * length + DOCUMENT_BYTES * documents }
}

interface WriteTurnsOptions {
  readonly owners: Pick<Owners, 'databasesOf'>
  readonly usage: Pick<Usage, 'sumOf' | 'unmeasured' | 'wrote' | 'measureAll'>
}

export class WriteTurns {
  readonly #owners: WriteTurnsOptions['owners']
  readonly #usage: WriteTurnsOptions['usage']
  /** Writes that wait or are under way, by account, in the order in which they came. */
  readonly #writes = new Map<string, Write[]>()
  /** Whoever waits for the end of a write, by account. */
  readonly #waiting = new Map<string, (() => void)[]>()

  constructor(options: WriteTurnsOptions) {
    this.#owners = options.owners
    this.#usage = options.usage
  }

  /**
   * Runs a write in its turn. It waits for writes that came before it to other databases of the account, and for nothing
   * else.
   * @param account that owns the database
   * @param work is called when what the account's other databases take is known, if it matters
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
      this.#usage.wrote(write.database, write.most)
      const waiting = this.#waiting.get(account) ?? []
      this.#waiting.delete(account)
      for (const wake of waiting) wake()
    }
  }

  async #turn(account: string, write: Write, quota: Quota): Promise<void> {
    let hasLooked = false
    while (this.#couldPass(account, write, quota)) {
      if (this.#before(account, write).some(({ database }) => database !== write.database)) {
        await new Promise<void>((wake) => {
          this.#waiting.set(account, [...(this.#waiting.get(account) ?? []), wake])
        })
        hasLooked = false
      } else {
        const unmeasured = [...this.#owners.databasesOf(account)].filter(
          (name) => name !== write.database && this.#usage.unmeasured(name) !== null,
        )
        // One that cannot be looked at holds up nobody.
        if (unmeasured.length === 0 || hasLooked) return
        await this.#usage.measureAll(unmeasured)
        hasLooked = true
      }
    }
  }

  /** Whether the account could be over a limit after this write and all that came before it. */
  #couldPass(account: string, write: Write, quota: Quota): boolean {
    let { bytes, documents } = this.#usage.sumOf(account)
    for (const name of this.#owners.databasesOf(account)) {
      const unmeasured = this.#usage.unmeasured(name)
      bytes += unmeasured?.bytes ?? 0
      documents += unmeasured?.documents ?? 0
    }
    for (const { most } of [...this.#before(account, write), write]) {
      bytes += most.bytes
      documents += most.documents
    }
    return bytes > quota.bytes || documents > quota.documents
  }

  #before(account: string, write: Write): readonly Write[] {
    const writes = this.#writes.get(account) ?? []
    return writes.slice(0, writes.indexOf(write))
  }
}
