/**
 * Two openers of one state in memory as a single engine, for the conformance suite: each call goes through one of them, at
 * random, so that what one has stored, the other must read.
 */
import type { Catalog } from '../../../src/storage/catalog.ts'
import type { VersionedStore } from '../../../src/storage/history-store.ts'
import type { OpenOptions, StorageEngine } from '../../../src/storage/storage-engine.ts'
import type { StoreEvent } from '../../../src/storage/store-events.ts'
import { type MemoryEngineOptions, memoryEngine } from '../../helpers/memory-engine.ts'
import { sharedNetwork } from './network.ts'
import { SharedMemory } from './shared.ts'

/** @param first answers calls of these methods, whose answers are of one opener */
function eitherOf<T extends object>(
  [first, second]: readonly [T, T],
  ofFirst: readonly (keyof T)[],
  own: Partial<T>,
): T {
  return new Proxy(first, {
    get: (_, name) => {
      if (name in own) return own[name as keyof T]
      const from = ofFirst.includes(name as keyof T) || Math.random() < 0.5 ? first : second
      const member: unknown = Reflect.get(from, name, from)
      return typeof member === 'function' ? member.bind(from) : member
    },
  })
}

/** A store over the stores of two openers. It tells of each commit once. */
function eitherStore(stores: readonly [VersionedStore, VersionedStore]): VersionedStore {
  const [first, second] = stores
  const onEvent = (listener: (event: StoreEvent) => void) => {
    let last = 0
    const listenToOwn = (event: StoreEvent) => {
      if (event.type !== 'committed' || event.updates === 0 || event.updateSeq <= last) return
      last = event.updateSeq
      listener(event)
    }
    for (const store of stores) store.onEvent(listenToOwn)
  }
  const close = async () => {
    await Promise.all(stores.map((store) => store.close()))
  }
  const history = eitherOf([first.history, second.history], [], {})
  return eitherOf(stores, ['compact', 'info', 'wasRolledBack'], { onEvent, close, history })
}

/** Follows both catalogs, each of which tells of every change: at once or later. A change is told the first time. */
function watchOnce(catalogs: readonly [Catalog, Catalog]): Catalog['watch'] {
  return (listener) => {
    // By how much one catalog has told more often than the other.
    const leads = new Map<string, number>()
    const ends = catalogs.map((catalog, at) =>
      catalog.watch((change) => {
        const key = JSON.stringify(change)
        const side = at === 0 ? 1 : -1
        const lead = leads.get(key) ?? 0
        leads.set(key, lead + side)
        if (lead * side >= 0) listener(change)
      }),
    )
    return () => {
      for (const end of ends) end()
    }
  }
}

/** Two engines that share a state. */
export function twoOpeners(
  options: MemoryEngineOptions = {},
  shared = new SharedMemory(),
): readonly [ReturnType<typeof memoryEngine>, ReturnType<typeof memoryEngine>] {
  const make = () => memoryEngine({ network: sharedNetwork(), ...options, shared })
  return [make(), make()]
}

/** An engine over two openers. */
export function eitherEngine(engines: readonly [StorageEngine, StorageEngine]): StorageEngine {
  const [first, second] = engines
  let catalogs: Promise<Catalog> | undefined
  const openCatalog = () => {
    catalogs ??= Promise.all([first.openCatalog(), second.openCatalog()]).then((both) =>
      // The other one is told of an adopted uuid later.
      eitherOf(both, ['serverUuid', 'adoptUuid'], { watch: watchOnce(both) }),
    )
    return catalogs
  }
  const openDatabase = async (name: string, options?: OpenOptions) => {
    const opened = await first.openDatabase(name, options)
    return eitherStore([opened, await second.openDatabase(name, options)])
  }
  const close = async () => {
    await Promise.all(engines.map((engine) => engine.close()))
  }
  return eitherOf(engines, [], { openCatalog, openDatabase, close })
}
