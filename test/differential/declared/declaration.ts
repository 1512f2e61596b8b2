import type { Difference } from '../pair.ts'
import type { Step } from '../step.ts'

/** A difference that docs/compatibility.md declares. */
export interface Declared {
  /** What the row in docs/compatibility.md begins with, without its backticks. */
  readonly row: string
  /** @param what the part that differs: `status`, `body`, or `header` and a name */
  is(what: string, difference: Difference): boolean
  /** What the row explains of a body, for answers that more than one row explains. */
  readonly members?: (difference: Difference) => RegExp | null
  /** Later answers may show the difference again, as those to a write that was answered differently: the case ends. */
  readonly lasts?: true
}

/** A declared difference in what a write does, which its answer does not show: the case ends. */
export interface SilentWrite {
  readonly row: string
  /** @param status that of both answers */
  is(step: Step, status: number): boolean
}
