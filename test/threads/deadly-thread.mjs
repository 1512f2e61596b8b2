// A database thread that dies when it gets a call for the document `deadly`, before it answers any call of that turn.
// It runs out of memory at the document `hungry`, loops forever at `hanging`, and answers nothing from `mute` until `deadly`.
import { parentPort, receiveMessageOnPort } from 'node:worker_threads'

await import('../helpers/database-thread.mjs')

const HARM = {
  hanging: () => {
    for (;;);
  },
  mute: () => {
    for (;;) {
      const next = receiveMessageOnPort(parentPort)
      if (next !== undefined) take(next.message)
    }
  },
  hungry: () => {
    for (const hoard = []; ; ) hoard.push('x'.repeat(100) + hoard.length)
  },
}

function take(requests) {
  const ids = requests.map(({ args }) => args?.[1])
  if (ids.includes('deadly')) throw new Error('a fault of the thread')
  for (const id of ids) if (Object.hasOwn(HARM, id)) HARM[id]()
}

parentPort.on('message', take)
