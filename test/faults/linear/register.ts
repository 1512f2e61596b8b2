/**
 * Whether what clients saw of one document can have come from a single register that does one thing after the other:
 * linearizability, by the search of Wing and Gong with the memory of Lowe ("Testing for linearizability", 2017).
 *
 * The register holds a value, null where the document is not there or deleted. A write names the value it was made
 * over, and is done if and only if that is the register's. Every value is written once at most, but for null.
 */

export type Value = string | null

export type Action =
  | { readonly type: 'read'; readonly saw: Value }
  | {
      readonly type: 'write'
      /** What the writer had seen last. */
      readonly over: Value
      readonly value: Value
      /** `unknown`: no answer came, so that it may have been done at any time since, or never. */
      readonly outcome: 'done' | 'refused' | 'unknown'
    }

export interface Operation {
  /** When it was asked. */
  readonly invoked: number
  /** When the answer was there; of no meaning where the outcome is unknown. */
  readonly returned: number
  readonly action: Action
}

/** A point of the search: what the register holds, and what was done so far, a bit for each operation. */
interface Point {
  readonly value: Value
  readonly done: bigint
}

/**
 * @param history of one document, in any order; a read without an answer is left out
 * @returns whether some order explains it in which each operation takes effect between its question and its answer
 */
export function isLinearizable(history: readonly Operation[]): boolean {
  const operations = [...history].sort((a, b) => a.invoked - b.invoked)
  const answered = operations.reduce((bits, operation, at) => (isOpen(operation) ? bits : bits | bit(at)), 0n)
  const seen = new Set<string>()
  const points: Point[] = [{ value: null, done: 0n }]
  for (let next = points.pop(); next !== undefined; next = points.pop()) {
    const point = withIdle(operations, next)
    if ((point.done & answered) === answered) return true
    const key = `${point.done.toString(36)} ${point.value}`
    if (seen.has(key)) continue
    seen.add(key)
    points.push(...successors(operations, point))
  }
  return false
}

function isOpen({ action }: Operation): boolean {
  return action.type === 'write' && action.outcome === 'unknown'
}

function bit(at: number): bigint {
  return 1n << BigInt(at)
}

/**
 * Takes in at once what changes nothing and is explained by the value of now, reads of it and refusals: to wait with
 * them can only make it harder.
 */
function withIdle(operations: readonly Operation[], { value, done }: Point): Point {
  let all = done
  for (let before = -1n; before !== all; ) {
    before = all
    for (const at of candidates(operations, all)) {
      const { action } = operations[at] as Operation
      const isIdle =
        action.type === 'read' ? action.saw === value : action.outcome === 'refused' && action.over !== value
      if (isIdle) all |= bit(at)
    }
  }
  return { value, done: all }
}

/** Where one more write was done. */
function successors(operations: readonly Operation[], { value, done }: Point): Point[] {
  return candidates(operations, done).flatMap((at) => {
    const { action } = operations[at] as Operation
    const isDone = action.type === 'write' && action.outcome !== 'refused' && action.over === value
    return isDone ? [{ value: action.value, done: done | bit(at) }] : []
  })
}

/** What may take effect next: whatever was asked before the first answer of those that have not taken effect. */
function candidates(operations: readonly Operation[], done: bigint): number[] {
  const found: number[] = []
  let firstAnswer = Number.POSITIVE_INFINITY
  for (const [at, operation] of operations.entries()) {
    if (operation.invoked > firstAnswer) break
    if ((done & bit(at)) !== 0n) continue
    found.push(at)
    if (!isOpen(operation)) firstAnswer = Math.min(firstAnswer, operation.returned)
  }
  return found.filter((at) => (operations[at] as Operation).invoked <= firstAnswer)
}
