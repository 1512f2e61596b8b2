/** `_all_docs`, `_design_docs`, `_local_docs`: every parameter in addresses, bodies and `queries`. */
import type { CarefulChoices as Choices } from '../careful.ts'
import type { Step } from '../step.ts'
import {
  count,
  type Family,
  filled,
  flag,
  get,
  IDS,
  json,
  key,
  keys,
  oddBody,
  query,
  typed,
  type Value,
} from './family.ts'

const id: Value = (c) =>
  c.mostly(['"d1"', '"d3"', '"a"', '"x/y"', '"_design/d"', '"_"', '"\\ufff0"'], [key(c)], 0.25)

export const LISTING: Readonly<Record<string, Value>> = {
  key: id,
  keys,
  startkey: id,
  endkey: id,
  start_key: id,
  end_key: id,
  startkey_docid: (c) => c.pick(IDS),
  endkey_docid: (c) => c.pick(IDS),
  inclusive_end: flag,
  descending: flag,
  limit: count,
  skip: count,
  include_docs: flag,
  conflicts: flag,
  attachments: flag,
  att_encoding_info: flag,
  update_seq: flag,
  stale: (c) => c.mostly(['ok', 'update_after'], ['x', '']),
  update: (c) => c.mostly(['true', 'false', 'lazy'], ['x', '']),
  stable: flag,
  sorted: flag,
  reduce: flag,
  group: flag,
  group_level: count,
  deleted: flag,
  local_seq: flag,
  revs: flag,
  r: count,
}

const WRONG: readonly unknown[] = ['1', 'true', null, -1, 1.5, {}, [], '', 'x']

/** Parameters as members of a body: JSON values, now and then of a wrong type. */
export function bodyOf(
  c: Choices,
  values: Readonly<Record<string, () => unknown>>,
  most = 3,
): Record<string, unknown> {
  const names = Object.keys(values)
  return Object.fromEntries(
    c.list(most, () => {
      const name = c.pick(names)
      return [name, c.oddly(0.12) ? c.pick(WRONG) : (values[name] as () => unknown)()]
    }),
  )
}

const ids = (c: Choices) => c.pick(['d1', 'd3', 'a', 'x/y', 'é', 1, null])

export const LISTED = (c: Choices): Readonly<Record<string, () => unknown>> => ({
  keys: () => c.list(5, () => c.pick<unknown>([...IDS, '_design/d', '_local/l', 'zz', 1, null, ['a']])),
  key: () => ids(c),
  startkey: () => ids(c),
  endkey: () => ids(c),
  start_key: () => ids(c),
  end_key: () => ids(c),
  limit: () => c.below(4),
  skip: () => c.below(3),
  descending: () => c.chance(0.5),
  include_docs: () => c.chance(0.7),
  inclusive_end: () => c.chance(0.5),
  update_seq: () => true,
  conflicts: () => true,
  attachments: () => true,
  sorted: () => false,
  reduce: () => c.chance(0.5),
  group: () => true,
  group_level: () => 1,
  stable: () => true,
  update: () => c.pick(['true', 'false', 'lazy']),
  x: () => 1,
})

function step(c: Choices): Step {
  const path = `/{db}/${c.mostly(['_all_docs'], ['_design_docs', '_local_docs'], 0.3)}`
  switch (c.weighted({ get: 50, post: 28, queries: 14, conditional: 3, write: 5 })) {
    case 'get':
      return get(path + query(c, LISTING, 4))
    case 'post':
      return c.chance(0.06)
        ? { method: 'POST', path, headers: typed(c), body: oddBody(c) }
        : json(
            'POST',
            path + query(c, LISTING, 1),
            c.chance(0.05) ? { queries: [bodyOf(c, LISTED(c))] } : bodyOf(c, LISTED(c)),
            typed(c),
          )
    case 'queries':
      return json(
        'POST',
        `${path}/queries${query(c, LISTING, 1)}`,
        c.mostly<unknown>(
          [{ queries: c.list(3, () => bodyOf(c, LISTED(c))) }],
          [{ queries: {} }, {}, { queries: [1] }, { queries: null }, []],
          0.08,
        ),
      )
    case 'conditional':
      return get(path, { 'If-None-Match': c.pick(['"{etag}"', '*']) })
    case 'write':
      return json('PUT', `/{db}/${c.pick(['new', 'd1'])}`, {
        n: 1,
        ...(c.chance(0.5) && { _rev: '{rev:d1}' }),
      })
  }
}

function begin(c: Choices): Step[] {
  return [
    ...filled(c),
    json('PUT', '/{db}/_design/d', { n: 1 }),
    json('PUT', '/{db}/_local/l', { n: 1 }),
    json('PUT', '/{db}/c', { n: 1, _attachments: { a: { data: 'aGk=' } } }),
    json('POST', '/{db}/_bulk_docs', {
      new_edits: false,
      docs: [1, 2].map((at) => ({
        _id: 'k',
        _revisions: { start: 2, ids: [`${at}`.repeat(32), 'a'.repeat(32)] },
        at,
      })),
    }),
  ]
}

export const lists: Family = { begin, step }
