/** The checker says what trying every order says, takes what a register did, and sees what no register does. */
import fc from 'fast-check'
import t from 'tap'
import { type Action, isLinearizable, type Operation, type Value } from './register.ts'

/** Tries every order, and for each write without an answer both that it was done and that it never was. */
function bruteForce(left: readonly Operation[], value: Value = null): boolean {
  if (left.every(({ action }) => action.type === 'write' && action.outcome === 'unknown')) return true
  return left.some((operation) => {
    const { action, invoked } = operation
    const others = left.filter((other) => other !== operation)
    const isEarly = others.every(({ action, returned }) => isUnknown(action) || returned >= invoked)
    if (!isEarly) return false
    if (isUnknown(action) && bruteForce(others, value)) return true
    return fits(action, value) && bruteForce(others, after(action, value))
  })
}

function isUnknown(action: Action): boolean {
  return action.type === 'write' && action.outcome === 'unknown'
}

function fits(action: Action, value: Value): boolean {
  if (action.type === 'read') return action.saw === value
  return action.outcome === 'refused' ? action.over !== value : action.over === value
}

function after(action: Action, value: Value): Value {
  return action.type === 'read' || action.outcome === 'refused' ? value : action.value
}

/** What a client means to do, how long it waits before and after it takes effect, and whether its answer is lost. */
interface Intent {
  readonly kind: 'read' | 'write' | 'stale write' | 'delete'
  readonly before: number
  readonly behind: number
  readonly isLost: boolean
}

const intent: fc.Arbitrary<Intent> = fc.record({
  kind: fc.constantFrom('read', 'write', 'write', 'stale write', 'delete'),
  before: fc.nat(30),
  behind: fc.nat(30),
  isLost: fc.nat(9).map((n) => n === 0),
})

/** What a register does with intents that take effect one after the other, and overlap in time. */
function played(intents: readonly Intent[]): Operation[] {
  let value: Value = null
  let old: Value = 'never written'
  return intents.flatMap(({ kind, before, behind, isLost }, n): Operation[] => {
    const at = 10 * n
    const times = { invoked: at - before, returned: at + behind }
    if (kind === 'read') return isLost ? [] : [{ ...times, action: { type: 'read', saw: value } }]
    const over = kind === 'stale write' ? old : value
    const isDone = over === value
    const next = kind === 'delete' ? null : `v${n}`
    // What has no answer was done, or, every other time, never was.
    if (isDone && !(isLost && n % 2 === 0)) {
      old = value
      value = next
    }
    const outcome = isLost ? ('unknown' as const) : isDone ? ('done' as const) : ('refused' as const)
    return [{ ...times, action: { type: 'write' as const, over, value: next, outcome } }]
  })
}

t.test('it says what trying every order says', async () => {
  const value = fc.constantFrom(null, 'a', 'b', 'c')
  const action: fc.Arbitrary<Action> = fc.oneof(
    fc.record({ type: fc.constant('read' as const), saw: value }),
    fc.record({
      type: fc.constant('write' as const),
      over: value,
      value,
      outcome: fc.constantFrom('done', 'refused', 'unknown'),
    }),
  )
  const operation = fc
    .record({ invoked: fc.nat(12), takes: fc.nat(8), action })
    .map(({ invoked, takes, action }): Operation => ({ invoked, returned: invoked + takes, action }))
  fc.assert(
    fc.property(
      fc.array(operation, { maxLength: 6 }),
      (history) => isLinearizable(history) === bruteForce(history),
    ),
    { numRuns: 3000 },
  )
})

t.test('it takes what a register did', async () => {
  fc.assert(fc.property(fc.array(intent, { maxLength: 80 }), (intents) => isLinearizable(played(intents))))
})

/** Histories in which every answer came, with the places that meet a condition. */
function mutated(
  isPlace: (operation: Operation, history: readonly Operation[]) => boolean,
  change: (operation: Operation, history: readonly Operation[]) => Operation,
) {
  const intents = fc.array(
    intent.map((one) => ({ ...one, isLost: false })),
    { minLength: 30, maxLength: 60 },
  )
  return fc.property(intents, fc.nat(), (all, which) => {
    const history = played(all)
    const places = history.filter((operation) => isPlace(operation, history))
    fc.pre(places.length > 0)
    const place = places[which % places.length] as Operation
    return !isLinearizable(history.map((one) => (one === place ? change(one, history) : one)))
  })
}

function doneWrites(history: readonly Operation[]) {
  return history.flatMap((one) =>
    one.action.type === 'write' && one.action.outcome === 'done' ? [{ ...one, action: one.action }] : [],
  )
}

/** The value that a write has replaced, and that was gone before a moment. */
function goneBefore(moment: number, history: readonly Operation[]): Value | undefined {
  return doneWrites(history).findLast(
    ({ returned, action }) => returned < moment && action.over !== null && action.over !== action.value,
  )?.action.over
}

t.test('a stale read is seen', async () => {
  const property = mutated(
    ({ action, invoked }, history) => action.type === 'read' && goneBefore(invoked, history) !== undefined,
    (one, history) => ({
      ...one,
      action: { type: 'read', saw: goneBefore(one.invoked, history) as Value },
    }),
  )
  fc.assert(property)
})

t.test('two writes over the same revision that are both done are seen', async () => {
  const property = mutated(
    ({ action }, history) =>
      action.type === 'write' &&
      action.outcome === 'refused' &&
      doneWrites(history).some((other) => other.action.over === action.over && action.over !== null),
    (one) => ({ ...one, action: { ...one.action, outcome: 'done' } as Action }),
  )
  fc.assert(property)
})

t.test('an update that is lost is seen', async () => {
  const property = mutated(
    ({ action }, history) =>
      action.type === 'write' &&
      action.outcome === 'done' &&
      action.value !== null &&
      history.some((other) => other.action.type === 'read' && other.action.saw === action.value),
    // Its value was read, and it says that it never was.
    (one) => ({ ...one, action: { ...one.action, outcome: 'refused' } as Action }),
  )
  fc.assert(property)
})
