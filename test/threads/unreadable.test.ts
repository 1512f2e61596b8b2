import t from 'tap'
import { CouchError, type ErrorName } from '../../src/core/errors.ts'
import { type OpenStores, unreadable } from '../../src/threads/open-stores.ts'

const store = (error: unknown) => ({
  store: {
    readChanges: async () => {
      if (error !== null) throw error
      return { rows: [], more: false, view: {} }
    },
  },
  close: async () => undefined,
})

/** The open databases of a thread, each with the error that reading it throws. */
function opened(found: Readonly<Record<string, ErrorName | Error | null>>) {
  const entries = Object.entries(found).map(([name, fault]) => {
    const error = typeof fault === 'string' ? new CouchError(fault) : fault
    return { name, opened: Promise.resolve(store(error)) }
  })
  return { openDatabases: () => entries } as unknown as OpenStores<never>
}

t.test('a database counts as unreadable after a fault, but not when it is closed or deleted', async (t) => {
  const found = await unreadable(
    opened({
      well: null,
      damaged: 'damaged_file',
      disk: 'disk_fault',
      other: 'internal_server_error',
      odd: new Error('x'),
      closed: 'unavailable',
      deleted: 'no_database',
    }),
  )
  t.strictSame(found.sort(), ['damaged', 'disk', 'odd', 'other'])
})
