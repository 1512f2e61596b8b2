// A sandbox thread that dies of what it is given: of a text `dies:HOW:PATH;` as long as there is a file PATH, which it
// takes away first, so that whoever gets the same after it lives.
import { unlinkSync } from 'node:fs'
import { parentPort } from 'node:worker_threads'

await import('../../helpers/sandbox-thread.mjs')

const MARK = /dies:(throws|rejects):([^;"]+);/g

function dieOf(text) {
  for (const [, how, path] of text.matchAll(MARK)) {
    try {
      unlinkSync(path)
    } catch {
      continue
    }
    if (how === 'throws') throw new Error('an exception in a sandbox')
    void Promise.reject(new Error('a rejection in a sandbox'))
  }
}

parentPort.on('message', ({ port }) => {
  port?.on('message', ({ piece }) => dieOf(JSON.stringify(piece)))
})
