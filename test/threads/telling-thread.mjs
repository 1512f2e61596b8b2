// A database thread whose stores tell of another opener, as those of an engine with several openers do: a commit,
// settings or a deletion, when the document `commit`, `settings` or `deletion` is asked for.
import { parentPort } from 'node:worker_threads'

const isBuilt = process.env.SETTEE_TEST_BUILT === 'true'
const store = isBuilt ? '../../dist/storage/sqlite/store.js' : '../../src/storage/sqlite/store.ts'
const { SqliteStore } = await import(store)

const EVENTS = {
  commit: { type: 'committed', updateSeq: 77, epoch: 'another', updates: 0 },
  settings: { type: 'settings', security: { members: { names: ['ann'], roles: [] } } },
  deletion: { type: 'deleted' },
}
const listeners = new Set()
const { onEvent } = SqliteStore.prototype

SqliteStore.prototype.onEvent = function (listener) {
  listeners.add(listener)
  onEvent.call(this, listener)
}

await import('../helpers/database-thread.mjs')

parentPort.on('message', (requests) => {
  for (const { args } of requests) {
    if (Object.hasOwn(EVENTS, args?.[1])) for (const listener of listeners) listener(EVENTS[args[1]])
  }
})
