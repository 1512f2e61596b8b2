/** The Database interface over a port: what it is asked, the thread that owns the database is asked. */
import type { SecurityObject } from '../core/types.ts'
import type { DatabaseEntry } from '../storage/engine.ts'
import type { DatabaseEvent, DatabaseHandle } from './databases.ts'
import type { Thread } from './thread.ts'
import { METHODS, type ServedDatabase } from './wire.ts'

/** What the registry keeps of a database beside its handle. */
export interface ProxiedDatabase {
  readonly entry: DatabaseEntry
  readonly handle: DatabaseHandle
  /** Tells everybody who watches. */
  emit(event: DatabaseEvent): void
}

/** @param owner the thread that owns the database at the time of a call */
export function proxyDatabase(entry: DatabaseEntry, owner: () => Thread): ProxiedDatabase {
  const { name: database, incarnation } = entry
  const served = servedMethods((kind, method, args) => {
    const request = { type: 'call', database, incarnation, method, args } as const
    return kind === 'call' ? owner().ask(request) : owner().stream(request)
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
    for (const listener of listeners) listener(event)
  }
  return { entry, handle, emit }
}

/** An object with every method that a database thread serves. */
function servedMethods(
  call: (kind: 'call' | 'stream', method: keyof ServedDatabase, args: readonly unknown[]) => unknown,
): ServedDatabase {
  const methods = Object.entries(METHODS).map(([method, kind]) => [
    method,
    (...args: unknown[]) => call(kind, method as keyof ServedDatabase, args),
  ])
  return Object.fromEntries(methods) as ServedDatabase
}
