/** The newest changes of a database as they come, from its continuous feed. */
import { signal } from '@preact/signals'
import { ask, askLines, pathOf } from '../../api/client.ts'
import { asFailure, type Failure, isAborted } from '../../api/failure.ts'

export interface LiveChange {
  readonly seq: string
  readonly id: string
  /** The leaves, the winner first. */
  readonly revs: readonly string[]
  readonly isDeleted: boolean
  /** When it arrived here, in ms since 1970. */
  readonly at: number
}

interface FeedLine {
  readonly seq?: string
  readonly id?: string
  readonly changes?: readonly { readonly rev: string }[]
  readonly deleted?: boolean
  readonly last_seq?: string
}

/** Changes that are kept, so that a busy database does not fill the memory. */
const MAX_CHANGES = 100
/** Revisions of one change that are kept. */
const MAX_REVS = 20
/** Changes are shown together this often, in ms. */
const SHOW_MS = 200
const MAX_WAIT_MS = 30_000

export class LiveChanges {
  /** Newest first. */
  readonly changes = signal<readonly LiveChange[]>([])
  /** How many have come in all. */
  readonly count = signal(0)
  /** Why the feed is interrupted; null while it is not. */
  readonly failure = signal<Failure | null>(null)
  readonly #database: string
  readonly #stop = new AbortController()
  #fresh: LiveChange[] = []
  #freshCount = 0
  #timer: ReturnType<typeof setTimeout> | undefined
  #since = 'now'

  constructor(database: string) {
    this.#database = database
    void this.#follow()
  }

  close(): void {
    this.#stop.abort()
    clearTimeout(this.#timer)
  }

  async #follow(): Promise<void> {
    for (let wait = 1000; !this.#stop.signal.aborted; ) {
      try {
        for await (const line of this.#lines()) {
          wait = 1000
          this.failure.value = null
          this.#take(line)
        }
      } catch (error) {
        if (isAborted(error)) return
        this.failure.value = asFailure(error)
        await pause(wait, this.#stop.signal)
        wait = Math.min(2 * wait, MAX_WAIT_MS)
      }
    }
  }

  async *#lines(): AsyncGenerator<FeedLine> {
    const { signal: stopped } = this.#stop
    const path = pathOf(this.#database, '_changes')
    // A place to go on from, should the feed end before its first change; and the feed itself says nothing until then.
    const { last_seq } = await ask<FeedLine>(path, {
      query: { since: this.#since, limit: 1 },
      signal: stopped,
    })
    if (this.#since === 'now') this.#since = last_seq ?? 'now'
    this.failure.value = null
    const query = { feed: 'continuous', style: 'all_docs', heartbeat: 20_000, since: this.#since }
    yield* askLines<FeedLine>(path, { query, signal: stopped })
  }

  #take({ seq, id, changes, deleted = false, last_seq }: FeedLine): void {
    if (last_seq !== undefined) this.#since = last_seq
    if (seq === undefined || id === undefined) return
    this.#since = seq
    const revs = (changes ?? []).slice(0, MAX_REVS).map(({ rev }) => rev)
    this.#fresh.push({ seq, id, revs, isDeleted: deleted, at: Date.now() })
    this.#freshCount += 1
    if (this.#fresh.length > MAX_CHANGES) this.#fresh.shift()
    this.#timer ??= setTimeout(() => this.#show(), SHOW_MS)
  }

  #show(): void {
    this.#timer = undefined
    this.changes.value = [...this.#fresh.reverse(), ...this.changes.value].slice(0, MAX_CHANGES)
    this.count.value += this.#freshCount
    this.#fresh = []
    this.#freshCount = 0
  }
}

function pause(ms: number, stopped: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms)
    stopped.addEventListener('abort', () => {
      clearTimeout(timer)
      resolve()
    })
  })
}
