/** Checks of a database in use, as the scrub makes them. */
import { type Damage, FoundDamage } from '../../../src/storage/damage.ts'
import { checkStored } from '../../../src/storage/sqlite/database-check.ts'
import type { CheckPosition } from '../../../src/storage/storage-engine.ts'

export interface Checked {
  readonly damage: Damage | null
  readonly next: CheckPosition | null
  readonly share: number
}

/**
 * Checks a database to its end.
 * @param ms of a step
 * @returns all that was found, in front of each step
 */
export function checkedInSteps(path: string, ms: number): readonly Checked[] {
  const found = new FoundDamage()
  const steps: Checked[] = []
  for (let from: CheckPosition | null | undefined; from !== null; ) {
    const step = checkStored(path, from ?? null, ms)
    if (step.damage !== null) found.addAll(step.damage)
    steps.push(step)
    from = step.next
  }
  return [{ damage: found.found, next: null, share: 1 }, ...steps]
}
