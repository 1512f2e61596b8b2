/** The rewinds of a server: one at a time for each database, with their progress. */
import { CouchError } from '../core/errors.ts'
import type { UserCtx } from '../core/types.ts'
import type { RewindCounts, RewindRequest } from '../documents/time-machine/time-machine-calls.ts'
import type { Claim, Claims } from '../threads/claims.ts'
import type { Databases } from '../threads/databases.ts'

/** A rewind under way, for `_active_tasks`. */
interface RewindTask {
  readonly database: string
  readonly incarnation: number
  /** Documents, of about `total`. */
  readonly done: number
  readonly total: number
  /** Seconds since 1970. */
  readonly startedAt: number
  readonly updatedAt: number
}

/** The members of a line of a rewind's answer. */
export interface RewindLine {
  readonly documents?: number
  readonly done?: true
  readonly looked_at?: number
  readonly counts?: RewindCounts
  readonly progress?: { readonly looked_at: number; readonly counts: RewindCounts }
  readonly error?: string
  readonly reason?: unknown
  readonly id?: string
  readonly outcome?: string
}

interface Running {
  task: RewindTask
  /** No other node begins one of the same database. */
  readonly claim: Claim
}

export class Rewinds {
  readonly #databases: Pick<Databases, 'get'>
  readonly #claims: Pick<Claims, 'take'>
  readonly #tasks = new Map<number, Running>()
  #isClosed = false

  constructor(databases: Pick<Databases, 'get'>, claims: Pick<Claims, 'take'>) {
    this.#databases = databases
    this.#claims = claims
  }

  /**
   * Runs a rewind while the caller reads its lines. If the caller stops reading, it ends after the current documents.
   * It can be repeated, because restored documents are not written again.
   * @throws no_database; conflict while another rewind of the database is under way on any node; and as `Database.rewind`
   */
  async *run(user: UserCtx, name: string, request: RewindRequest): AsyncGenerator<Uint8Array> {
    const database = await this.#databases.get(name)
    if (request.dryRun) {
      yield* database.rewind(user, request)
      return
    }
    const { incarnation } = database
    const claim = await this.#claims.take(`rewind ${incarnation}`)
    if (claim === null) {
      throw new CouchError('conflict', 'Documents of this database are being restored already.')
    }
    const startedAt = seconds()
    const running = {
      task: { database: name, incarnation, done: 0, total: 1, startedAt, updatedAt: startedAt },
      claim,
    }
    this.#tasks.set(incarnation, running)
    try {
      for await (const chunk of database.rewind(user, request)) {
        await this.#note(running, lastLine(chunk))
        yield chunk
        const isLost = claim.ended.aborted && this.#tasks.get(incarnation) === running
        if (this.#isClosed || isLost) throw new CouchError('unavailable')
      }
    } finally {
      await this.#end(running)
    }
  }

  async #note(running: Running, { documents, progress, done: isDone, error }: RewindLine): Promise<void> {
    const { task } = running
    const done = progress?.looked_at ?? task.done
    const total = Math.max(documents ?? task.total, done, 1)
    running.task = { ...task, done, total, updatedAt: seconds() }
    // After this line the caller may start the next rewind.
    if (isDone || error !== undefined) await this.#end(running)
  }

  /** Idempotent. */
  async #end(running: Running): Promise<void> {
    const { incarnation } = running.task
    if (this.#tasks.get(incarnation) === running) this.#tasks.delete(incarnation)
    await running.claim.release()
  }

  /** Ends the rewinds under way after their current documents, because the server is stopping. They can be repeated. */
  close(): void {
    this.#isClosed = true
  }

  /** The oldest first. */
  tasks(): readonly RewindTask[] {
    return [...this.#tasks.values()].map(({ task }) => task)
  }
}

function seconds(): number {
  return Math.floor(Date.now() / 1000)
}

/** Parses the last line of a chunk, which has the progress. */
function lastLine(chunk: Uint8Array): RewindLine {
  const end = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength).lastIndexOf('\n', -2)
  return JSON.parse(new TextDecoder().decode(chunk.subarray(end + 1))) as RewindLine
}
