import { setTimeout as sleep } from 'node:timers/promises'

const PATIENCE_MS = 120_000
const PAUSE_MS = 10

type Holds = () => boolean | Promise<boolean>

/**
 * Waits until something holds.
 * @param args what is waited for, in words, before the condition; or the condition alone
 * @throws after two minutes, saying what does not hold
 */
export async function until(...args: readonly [what: string, holds: Holds] | readonly [holds: Holds]) {
  const [what, holds] = args.length === 2 ? args : [String(args[0]), args[0]]
  const end = performance.now() + PATIENCE_MS
  while (!(await holds())) {
    if (performance.now() > end) throw new Error(`It does not hold after ${PATIENCE_MS} ms: ${what}`)
    await sleep(PAUSE_MS)
  }
}
