import fc from 'fast-check'
import t from 'tap'
import { CouchError } from '../../src/core/errors.ts'
import { compareJson } from '../../src/query/collation.ts'
import { compileSelector } from '../../src/query/selector.ts'

const FIELDS = ['a', 'b', 'c']

const value = fc.oneof(fc.constantFrom<unknown>(null, true, 0, 1, 2, 'x', 'y'), fc.constant([1, 'x']))
const comparison = fc.record({
  op: fc.constantFrom('$eq', '$ne', '$lt', '$lte', '$gt', '$gte'),
  arg: value,
})
const condition = fc.oneof(
  comparison.map(({ op, arg }) => ({ [op]: arg })),
  fc.array(value, { maxLength: 3 }).map((list) => ({ $in: list })),
  fc.array(value, { maxLength: 3 }).map((list) => ({ $nin: list })),
  fc.boolean().map((exists) => ({ $exists: exists })),
  fc.constantFrom({ $type: 'string' }, { $type: 'number' }, { $size: 2 }, { $regex: '^x' }),
)
const { selector } = fc.letrec<{ selector: Record<string, unknown> }>((tie) => ({
  selector: fc.oneof(
    { maxDepth: 4, withCrossShrink: true },
    fc.tuple(fc.constantFrom(...FIELDS), condition).map(([field, one]) => ({ [field]: one })),
    tie('selector').map((inner) => ({ $not: inner })),
    fc
      .tuple(
        fc.constantFrom('$and', '$or', '$nor'),
        fc.array(tie('selector'), { minLength: 1, maxLength: 3 }),
      )
      .map(([op, list]) => ({ [op]: list })),
  ),
}))
const doc = fc.record({ a: value, b: value, c: value }, { requiredKeys: [] })

type Doc = Record<string, unknown>

/** Plain logic, without pushing negations down. It agrees with CouchDB if the document has every field. */
function plain(selector: unknown, doc: Doc): boolean {
  const [[name = '', arg] = []] = Object.entries(selector as object) as [string, unknown][]
  if (name === '$not') return !plain(arg, doc)
  const list = arg as unknown[]
  if (name === '$and') return list.every((one) => plain(one, doc))
  if (name === '$or') return list.some((one) => plain(one, doc))
  if (name === '$nor') return !list.some((one) => plain(one, doc))
  return name in doc && holds(arg as Doc, doc[name])
}

function holds(condition: Doc, value: unknown): boolean {
  const [[op, arg] = []] = Object.entries(condition)
  const order = compareJson(value, arg)
  const isIn = (list: unknown[]) =>
    list.some((one) => (Array.isArray(value) ? value : [value]).some((each) => compareJson(each, one) === 0))
  switch (op) {
    case '$eq':
      return order === 0
    case '$ne':
      return order !== 0
    case '$lt':
      return order < 0
    case '$lte':
      return order <= 0
    case '$gt':
      return order > 0
    case '$gte':
      return order >= 0
    case '$in':
      return isIn(arg as unknown[])
    case '$nin':
      return !isIn(arg as unknown[])
    case '$exists':
      return arg === true
    case '$type':
      return typeof value === arg
    case '$size':
      return Array.isArray(value) && value.length === arg
    default:
      return typeof value === 'string' && value.startsWith('x')
  }
}

/** Pushes negations down to the conditions, as CouchDB does. `$negated` marks a negated condition. */
function pushNegations(selector: unknown, negated: boolean): Doc {
  const [[name = '', arg] = []] = Object.entries(selector as object) as [string, unknown][]
  if (name === '$not') return pushNegations(arg, !negated)
  if (name === '$nor') return pushNegations({ $or: arg }, !negated)
  if (name === '$and' || name === '$or') {
    const isAnd = (name === '$and') !== negated
    return { [isAnd ? '$and' : '$or']: (arg as unknown[]).map((one) => pushNegations(one, negated)) }
  }
  return negated ? { [name]: { $negated: arg } } : { [name]: arg }
}

function evaluate(selector: Doc, doc: Doc): boolean {
  const [[name = '', arg] = []] = Object.entries(selector) as [string, Doc & Doc[]][]
  if (arg === undefined) return true
  if (name === '$and') return arg.every((one: Doc) => evaluate(one, doc))
  if (name === '$or') return arg.some((one: Doc) => evaluate(one, doc))
  const isNegated = '$negated' in arg
  const condition = (isNegated ? arg.$negated : arg) as Doc
  if ('$exists' in condition) return name in doc === (condition.$exists !== isNegated)
  return name in doc && holds(condition, doc[name]) !== isNegated
}

const CODES = new Set([
  'invalid_selector',
  'invalid_operator',
  'not_supported',
  'bad_arg',
  'invalid_field_name',
])

t.test('a selector is plain logic if the document has every field', async () => {
  const whole = fc.record({ a: value, b: value, c: value })
  fc.assert(
    fc.property(
      selector,
      whole,
      (selector, doc) => compileSelector(selector).matches(doc) === plain(selector, doc),
    ),
    { numRuns: 3000 },
  )
})

t.test('for missing fields, negations apply to the conditions', async () => {
  fc.assert(
    fc.property(
      selector,
      doc,
      (selector, doc) =>
        compileSelector(selector).matches(doc) === evaluate(pushNegations(selector, false), doc),
    ),
    { numRuns: 5000 },
  )
})

t.test('any input is either refused or compiled to a selector that answers', async () => {
  const operators =
    '$and $or $nor $not $in $nin $all $elemMatch $allMatch $keyMapMatch $exists $type $size $mod $regex'
  const key = fc.oneof(
    fc.constantFrom(...operators.split(' '), '$eq', 'a', 'a.b', 'a\\.b', '', '_id'),
    fc.string(),
  )
  const { tree } = fc.letrec<{ tree: unknown }>((tie) => ({
    tree: fc.oneof(
      { maxDepth: 5 },
      fc.jsonValue({ maxDepth: 1 }),
      fc.array(tie('tree'), { maxLength: 3 }),
      fc.dictionary(key, tie('tree'), { maxKeys: 3 }),
    ),
  }))
  fc.assert(
    fc.property(tree, fc.dictionary(key, fc.jsonValue()), (selector, doc) => {
      try {
        return typeof compileSelector(selector).matches(doc) === 'boolean'
      } catch (thrown) {
        return thrown instanceof CouchError && CODES.has(thrown.code)
      }
    }),
    { numRuns: 5000 },
  )
})
