/**
 * A database whose thread answers each call: a method for each row of {@link METHODS}. Each is documented in
 * documents/database.ts, changes/page.ts, query/views.ts, query/find.ts or query/index-changes.ts, and runs in the file that
 * `served.ts` takes it from.
 */
import { CouchError } from '../core/errors.ts'
import type { DatabaseEntry } from '../storage/catalog.ts'
import type { LastKnownSequence } from '../storage/sequence.ts'
import type { DatabaseHandle } from './databases.ts'
import { METHODS } from './methods.ts'
import { StreamReader } from './rpc-stream.ts'
import type { Thread } from './thread.ts'
import type { CallMethod, ServedDatabase, StreamMethod } from './thread-protocol.ts'

class Forwarder {
  readonly entry: DatabaseEntry
  readonly #owner: () => Thread
  protected isRetired = false
  /** Sent with each call until one succeeds: the database is open then. */
  #lastKnown: LastKnownSequence | undefined

  /** @param owner the thread that owns the database at the time of a call */
  constructor(entry: DatabaseEntry, owner: () => Thread) {
    this.entry = entry
    this.#owner = owner
    this.#lastKnown = entry.lastKnown
  }

  /** Looked up for each call: after a deletion, another database may have the name. @throws no_database */
  protected thread(): Thread {
    if (this.isRetired) throw new CouchError('no_database')
    return this.#owner()
  }

  /** Has the thread run a method that has one answer. @throws as the method; no_database */
  protected async forward<M extends CallMethod>(
    method: M,
    args: readonly unknown[],
  ): Promise<Awaited<ReturnType<ServedDatabase[M]>>> {
    const answer = await this.thread().callMethod(this.entry, this.#lastKnown, method, args)
    this.#lastKnown = undefined
    return answer as Awaited<ReturnType<ServedDatabase[M]>>
  }

  /** The same for a method that answers with a stream. */
  protected forwardStream(method: StreamMethod, args: readonly unknown[]): StreamReader {
    return new StreamReader(() => this.thread().streamMethod(this.entry, this.#lastKnown, method, args))
  }

  static {
    for (const [method, { kind }] of Object.entries(METHODS)) {
      const value =
        kind === 'stream'
          ? function forwarded(this: Forwarder, ...args: readonly unknown[]) {
              return this.forwardStream(method as StreamMethod, args)
            }
          : function forwarded(this: Forwarder, ...args: readonly unknown[]) {
              return this.forward(method as CallMethod, args)
            }
      // As a method that a class declares.
      Object.defineProperty(Forwarder.prototype, method, { value, writable: true, configurable: true })
    }
  }
}

/** The methods that `DatabaseProxy` answers in ways of its own. */
type OwnMethod = 'open' | 'revsDiff' | 'missingRevs' | 'bulkGet' | 'changes' | 'purge'

export const ForwardedDatabase = Forwarder as unknown as abstract new (
  entry: DatabaseEntry,
  owner: () => Thread,
) => Forwarder & Pick<DatabaseHandle, Exclude<keyof ServedDatabase, OwnMethod>>
