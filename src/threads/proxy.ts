/** The Database interface over a port: what it is asked, the thread that owns the database is asked. */
import { CouchError } from '../core/errors.ts'
import type { SecurityObject } from '../core/types.ts'
import type { DatabaseEntry } from '../storage/catalog.ts'
import type { DatabaseEvent, DatabaseHandle } from './databases.ts'
import type { Thread } from './thread.ts'
import { METHODS, type ServedDatabase } from './wire.ts'

/** What the registry keeps of a database beside its handle. */
export interface ProxiedDatabase {
  readonly entry: DatabaseEntry
  readonly handle: DatabaseHandle
  /** Tells everybody who watches. */
  emit(event: DatabaseEvent): void
  /** The database is removed: whoever still has the handle gets no_database. Whoever watches is to be told. */
  retire(): void
}

/** @param owner the thread that owns the database at the time of a call */
export function proxyDatabase(entry: DatabaseEntry, owner: () => Thread): ProxiedDatabase {
  const { name: database, incarnation } = entry
  let isRetired = false
  // Asked when something is sent: after a deletion the name may be another database's, and its thread another.
  const current = (): Thread => {
    if (isRetired) throw new CouchError('no_database')
    return owner()
  }
  // Told until it is certain that the database was opened with it.
  let { mark } = entry
  const served = servedMethods({
    call: async (method, args) => {
      const answer = await current().ask({ type: 'call', database, incarnation, mark, method, args })
      mark = undefined
      return answer
    },
    stream: async function* (method, args) {
      yield* current().stream({ type: 'call', database, incarnation, mark, method, args })
      mark = undefined
    },
  })
  const listeners = new Set<(event: DatabaseEvent) => void>()
  let copy: Promise<SecurityObject | null> | undefined
  const handle: DatabaseHandle = {
    ...served,
    name: database,
    incarnation,
    securityCopy: () => {
      copy ??= served.security().catch((error: unknown) => {
        copy = undefined
        throw error
      })
      return copy
    },
    watch: (listener) => {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
  }
  const emit = (event: DatabaseEvent) => {
    if (event.type === 'secured') copy = Promise.resolve(event.security)
    // After a thread's death the last word may have been lost.
    if (event.type === 'gone') copy = undefined
    for (const listener of listeners) listener(event)
  }
  const retire = () => {
    isRetired = true
  }
  return { entry, handle, emit, retire }
}

type Ask<Answer> = (method: keyof ServedDatabase, args: readonly unknown[]) => Answer

interface Asking {
  readonly call: Ask<Promise<unknown>>
  readonly stream: Ask<AsyncIterable<Uint8Array>>
}

/** An object with every method that a database thread serves. */
function servedMethods(asking: Asking): ServedDatabase {
  const methods = Object.entries(METHODS).map(([method, kind]) => [
    method,
    kind === 'stream'
      ? (...args: unknown[]) => asking.stream(method as keyof ServedDatabase, args)
      : (...args: unknown[]) => asking.call(method as keyof ServedDatabase, args),
  ])
  return Object.fromEntries(methods) as ServedDatabase
}
