import { setTimeout as sleep } from 'node:timers/promises'

const PATIENCE_MS = 120_000

/** Waits until something holds. @throws after 20 seconds */
export async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  for (const end = performance.now() + PATIENCE_MS; performance.now() < end; await sleep(5)) {
    if (await holds()) return
  }
  throw new Error(`It does not hold after ${PATIENCE_MS} ms: ${holds}`)
}
