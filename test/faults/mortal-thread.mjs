// A database thread, built, that dies a moment after it is asked for the document `deadly`: before what it was asked
// at that moment is committed, after that and before it is answered, or after the answers.
import { parentPort } from 'node:worker_threads'

await import('../../dist/threads/host.js')

const MAX_MS = 6

parentPort.on('message', (requests) => {
  if (!requests.some(({ args }) => args?.[1] === 'deadly')) return
  setTimeout(() => {
    throw new Error('a fault of the thread')
  }, Math.random() * MAX_MS)
})
