import { unpackError } from '../../src/core/errors.ts'
import { type Sandbox, sandboxOver, type Work } from '../../src/sandbox/messages.ts'
import { Runner } from '../../src/sandbox/sandbox-worker.ts'
import type { FunctionLimits } from '../../src/sandbox/slot-table.ts'

const DEFAULT: FunctionLimits = { timeoutMs: 5000, memory: 67_108_864 }
/** The main thread's stack is small. */
const STACK = 128 * 1024

/**
 * A sandbox without threads: runs functions on the calling thread, which it blocks.
 * @param limits for tests of functions that exceed them
 */
export function localSandbox(limits: Partial<FunctionLimits> = {}): Sandbox {
  const runner = new Runner({ limits: () => ({ ...DEFAULT, ...limits }), stack: STACK })
  let last: Promise<unknown> = Promise.resolve()
  return sandboxOver((work) => {
    const done = last.then(() => runAll(runner, work))
    last = done.catch(() => undefined)
    return done
  })
}

async function runAll(runner: Runner, work: Work): Promise<readonly string[]> {
  const results: string[] = []
  let source: string | null = null
  while (results.length < work.calls.length) {
    const outcome = await runner.run({ ...work, calls: work.calls.slice(results.length) }, source)
    if (outcome.type === 'failed') throw unpackError(outcome.error)
    if (outcome.type === 'done') results.push(...outcome.results)
    source = outcome.type === 'unknown' ? work.fn.source : null
  }
  return results
}
