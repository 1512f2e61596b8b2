// A database thread that says that its engine has several openers, and whose stores tell of another one: of a commit,
// settings or a deletion, when the document `commit`, `settings` or `deletion` is asked for.
import { parentPort } from 'node:worker_threads'

// Always from the sources: in dist/, a class is part of a larger file.
import { SqliteStore } from '../../src/storage/sqlite/store.ts'

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

await import('../../src/threads/host.ts')

parentPort.on('message', (requests) => {
  for (const { args } of requests) {
    if (Object.hasOwn(EVENTS, args?.[1])) for (const listener of listeners) listener(EVENTS[args[1]])
  }
})
