/** `_find`, `_explain` and `_index`. */
import type { CarefulChoices as Choices } from '../careful.ts'
import type { Step } from '../step.ts'
import { type Family, filled, get, json, oddBody, query, typed } from './family.ts'

const FIELDS = ['n', 'type', 'tags', 'in.a', '_id', 'none', 'in.list', 'tags.0', 'in', '_rev'] as const
const VALUES: readonly unknown[] = [
  0,
  1,
  2,
  '1',
  'note',
  'a',
  null,
  true,
  [1, 2],
  { a: 1 },
  ['a'],
  [],
  {},
  'd2',
  -1,
  'é',
]

const ARGUMENTS: Readonly<Record<string, (c: Choices) => unknown>> = {
  $eq: (c) => c.pick(VALUES),
  $ne: (c) => c.pick(VALUES),
  $gt: (c) => c.pick(VALUES),
  $gte: (c) => c.pick(VALUES),
  $lt: (c) => c.pick(VALUES),
  $lte: (c) => c.pick(VALUES),
  $exists: (c) => c.mostly<unknown>([true, false], [1, 'x', null]),
  $type: (c) => c.mostly<unknown>(['string', 'number', 'null', 'array', 'object', 'boolean'], ['x', 1]),
  $in: (c) => c.mostly<unknown>([c.list(3, () => c.pick(VALUES))], [1, {}, 'x']),
  $nin: (c) => c.mostly<unknown>([c.list(3, () => c.pick(VALUES))], [1, {}]),
  $size: (c) => c.mostly<unknown>([0, 1, 2], ['1', -1, 1.5]),
  $mod: (c) =>
    c.mostly<unknown>(
      [
        [2, 0],
        [2, 1],
        [3, 1],
      ],
      [[2], [2, 1.5], 2, ['2', 1], [2, 1, 0]],
    ),
  $regex: (c) => c.mostly<unknown>(['^n', 'o', '1$', '[a-c]', '^(note|task)$'], ['(', '*']),
  $beginsWith: (c) => c.pick<unknown>(['n', 'no', '', 'd']),
  $all: (c) => c.mostly<unknown>([['a'], ['a', 'b'], [], [['a']]], [1, 'a']),
  $elemMatch: (c) => c.mostly<unknown>([{ $eq: 'a' }, { x: 1 }, { $gt: 'a' }], [1, 'a', []]),
  $allMatch: (c) => c.mostly<unknown>([{ $eq: 'a' }, { x: 1 }, { $in: ['a', 'b'] }], [1, []]),
  $keyMapMatch: (c) => c.mostly<unknown>([{ $eq: 'a' }], [1]),
}

function condition(c: Choices, depth: number): unknown {
  if (depth > 0 && c.chance(0.08)) return { $not: condition(c, depth - 1) }
  if (c.chance(0.25)) return c.pick(VALUES)
  const operators = Object.keys(ARGUMENTS)
  return Object.fromEntries(
    [c.pick(operators), ...(c.chance(0.2) ? [c.pick(operators)] : [])].map((name) => [
      name,
      (ARGUMENTS[name] as (c: Choices) => unknown)(c),
    ]),
  )
}

/** A selector, mostly a good one. */
export function selector(c: Choices, depth = 2): unknown {
  if (c.oddly(0.03))
    return c.pick<unknown>([
      [],
      1,
      'x',
      null,
      { $x: 1 },
      { n: { $x: 1 } },
      { $and: {} },
      { $or: 1 },
      { $not: [] },
      { $nor: [1] },
      { '': 1 },
    ])
  if (depth > 0 && c.chance(0.25)) {
    const operator = c.pick(['$and', '$or', '$nor', '$not'])
    return {
      [operator]: operator === '$not' ? selector(c, depth - 1) : c.list(3, () => selector(c, depth - 1)),
    }
  }
  return Object.fromEntries(c.list(2, () => [c.pick(FIELDS), condition(c, depth)]))
}

const sorting = (c: Choices): unknown =>
  c.mostly<unknown>(
    [['n'], ['type', 'n'], [{ n: 'desc' }], ['_id'], [{ _id: 'desc' }], [{ type: 'asc' }, { n: 'asc' }], []],
    ['n', {}, [1], [{ n: 'up' }], [{ n: 'asc' }, { type: 'desc' }], [{}], [['n']], null],
    0.15,
  )

function asked(c: Choices): Record<string, unknown> {
  const members: Record<string, () => unknown> = {
    limit: () => c.mostly<unknown>([0, 1, 2, 100], ['1', -1, 1.5, null], 0.1),
    skip: () => c.mostly<unknown>([0, 1, 2], ['1', -1, 1.5, null], 0.1),
    sort: () => sorting(c),
    fields: () =>
      c.mostly<unknown>(
        [['_id'], ['_id', 'n'], ['in.a', 'type'], [], ['in.list', 'tags']],
        ['n', {}, [1], [['n']], null, 'all_fields', ['']],
        0.15,
      ),
    bookmark: () => c.mostly<unknown>(['{bookmark}', 'nil', ''], ['x', 1, null], 0.2),
    use_index: () =>
      c.mostly<unknown>(
        ['i', '_design/i', ['i', 'byn'], ['_design/i', 'byn'], 'none', ['i', 'none']],
        [1, {}, [], null, ['a', 'b', 'c']],
        0.15,
      ),
    conflicts: () => c.mostly<unknown>([true, false], ['x', 1]),
    execution_stats: () => c.mostly<unknown>([true, false], ['x', 1]),
    r: () => c.mostly<unknown>([1], ['x', 0]),
    update: () => c.mostly<unknown>([true, false], ['x', 'lazy']),
    stable: () => c.mostly<unknown>([true, false], ['x']),
    stale: () => c.mostly<unknown>(['ok', false], ['x', true]),
    allow_fallback: () => c.mostly<unknown>([true, false], ['x']),
  }
  const chosen = c
    .list(3, () => c.pick(Object.keys(members)))
    .map((name) => [name, (members[name] as () => unknown)()])
  return { ...(c.oddly(0.03) ? { x: 1 } : { selector: selector(c) }), ...Object.fromEntries(chosen) }
}

function index(c: Choices): unknown {
  const fields = c.mostly<unknown>(
    [['n'], ['type', 'n'], [{ n: 'desc' }], ['in.a'], [{ type: 'asc' }, 'n'], ['_id']],
    ['n', [], [1], [{ n: 'up' }], {}, [{}], [['n']], null, ['n', 'n'], ['']],
    0.15,
  )
  return {
    index: c.mostly<unknown>(
      [{ fields }, { fields, partial_filter_selector: selector(c, 1) }],
      [{}, [], 1, { fields, x: 1 }, { fields, selector: {} }],
      0.1,
    ),
    ...(c.chance(0.4) && { name: c.mostly<unknown>(['byn', 'other', 'é'], ['', 1, null, ' '], 0.15) }),
    ...(c.chance(0.4) && {
      ddoc: c.mostly<unknown>(['i', '_design/i', 'j'], ['', 1, null, 'a/b', '_x'], 0.15),
    }),
    ...(c.chance(0.1) && { type: c.mostly<unknown>(['json'], ['x', 1, null, 'special'], 0.4) }),
    ...(c.chance(0.05) && { partitioned: c.pick<unknown>([false, 1, null]) }),
    ...(c.oddly(0.03) && { x: 1 }),
  }
}

function step(c: Choices): Step {
  switch (
    c.weighted({
      find: 55,
      explain: 12,
      index: 10,
      list: 4,
      delete: 5,
      bulkDelete: 2,
      write: 6,
      odd: 4,
      conditional: 2,
    })
  ) {
    case 'find':
      return json('POST', '/{db}/_find', asked(c))
    case 'explain':
      return json('POST', '/{db}/_explain', asked(c))
    case 'index':
      return json('POST', '/{db}/_index', index(c))
    case 'list':
      return get(
        `/{db}/_index${query(c, { limit: (c) => c.pick(['1', '0', 'x', '']), skip: (c) => c.pick(['1', 'x']) }, 2)}`,
      )
    case 'delete':
      return {
        method: 'DELETE',
        path: `/{db}/_index/${c.pick(['i', '_design/i', '_design%2Fi', 'none'])}/${c.mostly(['json'], ['text', 'x'], 0.1)}/${c.pick(['byn', 'none', 'other'])}`,
      }
    case 'bulkDelete':
      return json(
        'POST',
        '/{db}/_index/_bulk_delete',
        c.mostly<unknown>(
          [{ docids: ['_design/i', '_design/j'] }, { docids: ['i', 'none'] }],
          [{}, { docids: 1 }, [], { docids: [1] }],
          0.3,
        ),
      )
    case 'write': {
      const of = c.pick(['d0', 'd1', 'd2'])
      return json('PUT', `/{db}/${of}`, {
        _rev: `{rev:${of}}`,
        n: c.pick(VALUES),
        type: c.pick(['note', 'x']),
        tags: c.pick<unknown>([['a'], 'a', [], ['a', 'b', { x: 1 }]]),
      })
    }
    case 'odd':
      return {
        method: 'POST',
        path: `/{db}/${c.pick(['_find', '_explain', '_index'])}`,
        headers: typed(c),
        body: oddBody(c),
      }
    case 'conditional':
      return {
        method: c.pick(['GET', 'PUT', 'DELETE', 'HEAD']),
        path: `/{db}/${c.pick(['_find', '_explain', '_index', '_index/i', '_index/i/json', '_index/_bulk_delete'])}`,
      }
  }
}

function begin(c: Choices): Step[] {
  const fields = c.pick<unknown>([['n'], ['type', 'n'], ['n', 'type'], [{ n: 'desc' }]])
  return [
    ...filled(c),
    ...(c.chance(0.7) ? [json('POST', '/{db}/_index', { index: { fields }, ddoc: 'i', name: 'byn' })] : []),
  ]
}

export const mango: Family = { begin, step }
