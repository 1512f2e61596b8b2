// A database thread that dies when it is asked for a document whose id tells how, within some milliseconds: while what
// it was asked at that moment is decided, committed or answered. `throws-…` is an exception that nobody catches,
// `rejects-…` a rejection that nobody handles, `exits-…` an end without a word.
import { parentPort } from 'node:worker_threads'

await import('../../helpers/database-thread.mjs')

const MAX_MS = 8

/** Other calls about the same document are answered. */
const DEADLY = new Set(['open', 'putAttachment'])

const DEATHS = {
  throws: () => {
    throw new Error('an exception that nobody catches')
  },
  rejects: () => void Promise.reject(new Error('a rejection that nobody handles')),
  exits: () => process.exit(7),
}

parentPort.on('message', (requests) => {
  for (const { method, args } of requests) {
    const [how] = String(args?.[1]).split('-')
    if (DEADLY.has(method) && Object.hasOwn(DEATHS, how)) setTimeout(DEATHS[how], Math.random() * MAX_MS)
  }
})
