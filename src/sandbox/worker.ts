/** A sandbox thread: runs functions for whichever database thread has claimed it. */
import { setPriority } from 'node:os'
import { parentPort, workerData } from 'node:worker_threads'
import { Board } from './board.ts'
import { ENVIRONMENT } from './environment.ts'
import type { Introduction, RunReply, RunRequest, SandboxThreadOptions } from './messages.ts'
import { newInstance } from './quickjs.ts'
import { Runner } from './runner.ts'
import { failureOf } from './work.ts'

/** Bytes that calls may nest in QuickJS; the thread's own stack (pool.ts) is large enough for whatever fits in it. */
const STACK = 512 * 1024
/** Functions that count for ever shall not slow down the threads that serve. */
const NICENESS = 5

if (parentPort !== null) {
  const { board: memory, seat } = workerData as SandboxThreadOptions
  const board = new Board(memory)
  const runner = new Runner({ limits: () => board.limits, stack: STACK, onCall: () => board.begin(seat) })

  parentPort.on('message', ({ client, port }: Introduction) => {
    port.on('message', async ({ job, piece, source }: RunRequest) => {
      const outcome = await runner.run(piece, source).catch(failureOf)
      const reply: RunReply = { job, outcome }
      port.postMessage(reply)
      board.release(seat, client)
    })
  })
  lowerPriority()
  await compile()
  parentPort.postMessage('ready')
}

/** The first instance takes far longer than the next: that is no time of a function's. */
async function compile(): Promise<void> {
  const { context } = await newInstance(0, STACK, () => false)
  context.unwrapResult(context.evalCode(ENVIRONMENT)).dispose()
}

/** Only Linux knows a priority for a thread; elsewhere it would be the whole process's. */
function lowerPriority(): void {
  if (process.platform !== 'linux') return
  try {
    setPriority(NICENESS)
  } catch {
    // Forbidden here: it works without.
  }
}
