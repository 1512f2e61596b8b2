// A database thread that dies when it gets a call for the document `deadly`, before it answers any call of that turn.
// It runs out of memory at the document `hungry`, and loops forever at `hanging`.
import { parentPort } from 'node:worker_threads'

await import('../helpers/database-thread.mjs')

const HARM = {
  hanging: () => {
    for (;;);
  },
  hungry: () => {
    for (const hoard = []; ; ) hoard.push('x'.repeat(100) + hoard.length)
  },
}

parentPort.on('message', (requests) => {
  for (const { args } of requests) {
    if (args?.[1] === 'deadly') throw new Error('a fault of the thread')
    if (Object.hasOwn(HARM, args?.[1])) HARM[args[1]]()
  }
})
