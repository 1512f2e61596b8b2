// A database thread that says that its engine has several openers, and whose stores tell of another one: of a commit,
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

const { postMessage } = parentPort
parentPort.postMessage = (messages, ...rest) => {
  for (const { value } of messages) {
    if (typeof value === 'object' && value !== null && 'sharedWriters' in value) value.sharedWriters = true
  }
  postMessage.call(parentPort, messages, ...rest)
}

await import('../helpers/database-thread.mjs')

parentPort.on('message', (requests) => {
  for (const { args } of requests) {
    if (Object.hasOwn(EVENTS, args?.[1])) for (const listener of listeners) listener(EVENTS[args[1]])
  }
})
