// A database thread that dies when it is asked for the document `deadly`, before it answers anything of that moment.
import { parentPort } from 'node:worker_threads'

await import('../helpers/database-thread.mjs')

parentPort.on('message', (requests) => {
  if (requests.some(({ args }) => args?.[1] === 'deadly')) throw new Error('a fault of the thread')
})
