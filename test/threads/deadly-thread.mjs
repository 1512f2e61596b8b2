// A database thread that dies of an open of the document `deadly`, before it serves what came with it.
import { parentPort } from 'node:worker_threads'

parentPort.on('message', (requests) => {
  if (requests.some(({ args }) => args?.[1] === 'deadly')) throw new Error('a fault of the thread')
})
await import('../helpers/database-thread.mjs')
