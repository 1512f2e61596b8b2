/** Whether the databases that a thread has open can be read, asked now and then by whoever watches over the server. */
import { setImmediate as nextTurn } from 'node:timers/promises'
import { CouchError } from '../core/errors.ts'
import type { DatabaseStore } from '../storage/engine.ts'
import { isFileFault } from './file-fault.ts'
import type { OpenStores } from './open-stores.ts'

/** How long is looked, in ms: the rest is looked at another time, since those used last come first. */
const LOOK_MS = 500

interface Readable {
  readonly store: Pick<DatabaseStore, 'readChanges'>
  close(): Promise<void>
}

/** @returns the names of those that are open, and of which not even the newest document can be read */
export async function unreadable(stores: OpenStores<Readable>): Promise<string[]> {
  const until = performance.now() + LOOK_MS
  const names: string[] = []
  for (const { name, opened } of stores.opened().toReversed()) {
    if (performance.now() > until) break
    if (!(await isReadable(opened))) names.push(name)
    await nextTurn()
  }
  return names
}

/** One that is being opened, or is closed meanwhile, is no news. */
async function isReadable(opened: Promise<Readable>): Promise<boolean> {
  try {
    const { store } = await opened
    await store.readChanges({ since: 0, descending: true }, { limit: 1, touches: { body: true } }, (doc) => {
      doc.body(doc.rev)
    })
    return true
  } catch (error) {
    return isClosing(error)
  }
}

function isClosing(error: unknown): boolean {
  return error instanceof CouchError && !isFileFault(error)
}
