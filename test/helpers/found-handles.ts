/** What {@link Databases} offers to find databases, over handles in memory. */
import { CouchError } from '../../src/core/errors.ts'
import { type NameRange, namesInRange } from '../../src/storage/catalog.ts'
import type { DatabaseHandle, Databases } from '../../src/threads/databases.ts'

/** @param handles by name; it may change */
export function foundIn(
  handles: ReadonlyMap<string, DatabaseHandle>,
): Pick<Databases, 'names' | 'allNames' | 'count' | 'has' | 'get' | 'cached'> {
  const names = (range: NameRange = {}) =>
    namesInRange([...handles.keys()].sort(), range, Number.POSITIVE_INFINITY)
  return {
    names: async (range, limit) => names(range).slice(0, limit),
    async *allNames(range) {
      yield* names(range)
    },
    count: async () => handles.size,
    has: async (name) => handles.has(name),
    get: async (name) => {
      const handle = handles.get(name)
      if (handle === undefined) throw new CouchError('no_database')
      return handle
    },
    cached: (name) => handles.get(name),
  }
}
