// A sandbox thread that dies at the call `deadly`. At the call `once` only the first such thread dies.
import { parentPort, workerData } from 'node:worker_threads'

await import('../helpers/sandbox-thread.mjs')

const isFirst = workerData.slot.thread === 1

parentPort.on('message', ({ port }) => {
  port.on('message', ({ piece }) => {
    const calls = piece.calls.map(String)
    if (calls.includes('"deadly"') || (isFirst && calls.includes('"once"')))
      throw new Error('a fault of the thread')
  })
})
