/** Views: rows of every kind of key, reduces, and every parameter in addresses, bodies and `queries`. */
import type { CarefulChoices as Choices } from '../careful.ts'
import type { Step } from '../step.ts'
import {
  count,
  type Family,
  filled,
  flag,
  get,
  json,
  key,
  keys,
  oddBody,
  query,
  typed,
  type Value,
} from './family.ts'
import { bodyOf, LISTED, LISTING } from './lists.ts'

const VIEWS = {
  id: { map: 'function (doc) { emit(doc._id, doc.n) }' },
  n: { map: 'function (doc) { emit(doc.n, 1) }', reduce: '_sum' },
  pair: { map: 'function (doc) { emit([doc.type, doc.n], 1) }', reduce: '_count' },
  tags: {
    map: 'function (doc) { (doc.tags || []).forEach(function (tag) { emit([tag, doc.type, doc._id], doc.tags.length) }) }',
    reduce: '_stats',
  },
  own: {
    map: 'function (doc) { if (doc.type) emit(doc.type, 2) }',
    reduce: 'function (keys, values, rereduce) { return sum(values) }',
  },
  linked: { map: 'function (doc) { emit(doc._id, { _id: "d1" }); emit(null, null) }' },
  distinct: { map: 'function (doc) { emit(doc.type, null) }', reduce: '_approx_count_distinct' },
  keyed: {
    map: 'function (doc) { emit({ b: doc.n, a: 1 }, doc.in); emit([], {}); emit(undefined, undefined) }',
  },
  texts: {
    map: 'function (doc) { ["a", "A", "á", "b", "_", "1", "aa", "a b"].forEach(function (text) { emit(text + (doc.n === 1 ? "" : "x"), 1) }) }',
    reduce: '_count',
  },
  broken: { map: 'function (doc) { if (doc.n === 2) throw "no"; emit(doc.x.y, 1) }' },
} as const

const DOCID: Value = (c) => c.pick(['d1', 'd3', 'a b', 'zz', ''])
const VIEWING: Readonly<Record<string, Value>> = {
  ...LISTING,
  key,
  startkey: key,
  endkey: key,
  start_key: key,
  end_key: key,
  keys,
  startkey_docid: DOCID,
  endkey_docid: DOCID,
  start_key_doc_id: DOCID,
  end_key_doc_id: DOCID,
  reduce: flag,
  group: flag,
  group_level: count,
}

const VALUES: readonly unknown[] = [
  1,
  2,
  'a',
  'd1',
  null,
  true,
  ['note'],
  ['note', 1],
  ['note', {}],
  {},
  [],
  'x',
  ['a', 'note'],
  'note',
  { b: 1, a: 1 },
]

function viewed(c: Choices): Readonly<Record<string, () => unknown>> {
  const any = () => c.pick(VALUES)
  return {
    ...LISTED(c),
    key: any,
    startkey: any,
    endkey: any,
    keys: () => c.list(4, any),
    group: () => c.chance(0.7),
    group_level: () => c.below(4),
    reduce: () => c.chance(0.4),
    startkey_docid: () => 'd1',
  }
}

function step(c: Choices): Step {
  const name = c.mostly<string>(Object.keys(VIEWS), ['none', ''], 0.03)
  const ddoc = c.mostly(['v'], ['none', 'plain'], 0.03)
  const path = `/{db}/_design/${ddoc}/_view/${name}`
  switch (
    c.weighted({ get: 55, post: 20, queries: 10, info: 2, write: 8, delete: 2, cleanup: 1, conditional: 3 })
  ) {
    case 'get':
      return get(path + query(c, VIEWING, 4))
    case 'conditional':
      return get(path, { 'If-None-Match': c.pick(['"{etag}"', '*']) })
    case 'post':
      return c.oddly(0.05)
        ? { method: 'POST', path, headers: typed(c), body: oddBody(c) }
        : json('POST', path + query(c, VIEWING, 1), bodyOf(c, viewed(c)), typed(c))
    case 'queries':
      return json(
        'POST',
        `${path}/queries${query(c, VIEWING, 1)}`,
        c.mostly<unknown>(
          [{ queries: c.list(3, () => bodyOf(c, viewed(c))) }],
          [{ queries: {} }, {}, { queries: [1] }],
          0.08,
        ),
      )
    case 'info':
      return get(`/{db}/_design/${ddoc}/_info`)
    case 'cleanup':
      return json('POST', '/{db}/_view_cleanup', '')
    case 'write': {
      const of = c.pick(['d0', 'd1', 'd2'])
      return json('PUT', `/{db}/${of}`, {
        _rev: `{rev:${of}}`,
        n: c.pick([1, 2, 'q', null]),
        type: c.pick(['note', 'x', 'task']),
        tags: ['a'],
      })
    }
    case 'delete':
      return { method: 'DELETE', path: '/{db}/d3?rev={rev:d3}' }
  }
}

function begin(c: Choices): Step[] {
  const options = c.chance(0.1)
    ? { options: c.pick<unknown>([{ include_design: true }, { local_seq: true }, { x: 1 }, {}]) }
    : {}
  return [
    ...filled(c),
    json('PUT', '/{db}/_design/v', { views: VIEWS, ...options }),
    json('PUT', '/{db}/_design/plain', { n: 1 }),
  ]
}

export const views: Family = { begin, step }
