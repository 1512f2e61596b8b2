/** A database with partitions: their documents, lists, views, queries and indexes, and what needs a partition. */
import type { CarefulChoices as Choices } from '../careful.ts'
import type { Step } from '../step.ts'
import { count, document, type Family, flag, get, json, query, revision, type Value } from './family.ts'
import { selector } from './mango.ts'

const IDS = ['a:1', 'a:2', 'a:x y', 'b:1', 'b:é', 'c:1'] as const
const ODD_IDS = ['a', 'a:', ':1', '_a:1', ':', 'a:b:c', ''] as const
const PARTITION: Value = (c) => c.mostly(['a', 'b', 'c', 'none'], ['', '_a', 'a:1', 'é', 'a%20b'], 0.1)

const VIEWS = {
  id: { map: 'function (doc) { emit(doc._id, doc.n) }' },
  type: { map: 'function (doc) { emit(doc.type, 1) }', reduce: '_count' },
  pair: { map: 'function (doc) { emit([doc.type, doc.n], 1) }', reduce: '_sum' },
} as const

const id: Value = (c) => c.pick(['"a:1"', '"a:2"', '"b:1"', '"a:"', '"b"', '"c:\\ufff0"', '1', 'null'])
const LISTING: Readonly<Record<string, Value>> = {
  key: id,
  keys: (c) => JSON.stringify(c.list(3, () => c.pick<string>(IDS))),
  startkey: id,
  endkey: id,
  inclusive_end: flag,
  descending: flag,
  limit: count,
  skip: count,
  include_docs: flag,
  conflicts: flag,
  update_seq: flag,
  partition: (c) => c.pick(['a', 'b', '']),
}
const VIEWING: Readonly<Record<string, Value>> = {
  ...LISTING,
  key: (c) => c.pick(['"note"', '"a:1"', '["note",1]', 'null']),
  startkey: (c) => c.pick(['"n"', '"a:1"', '["note"]', 'null']),
  endkey: (c) => c.pick(['"note"', '"b:1"', '["note",{}]', '{}']),
  reduce: flag,
  group: flag,
  group_level: count,
}

function asked(c: Choices): Record<string, unknown> {
  return {
    selector: selector(c, 1),
    ...(c.chance(0.3) && { limit: c.pick([0, 1, 2]) }),
    ...(c.chance(0.2) && { fields: ['_id', 'n'] }),
    ...(c.chance(0.2) && { sort: c.pick<unknown>([['n'], ['_id'], [{ n: 'desc' }]]) }),
    ...(c.chance(0.2) && { use_index: c.pick(['i', 'j', 'none']) }),
    ...(c.chance(0.1) && { bookmark: '{bookmark}' }),
  }
}

function step(c: Choices): Step {
  const partition = `/{db}/_partition/${encodeURIComponent(PARTITION(c))}`
  const of = c.mostly<string>(IDS, ODD_IDS, 0.12)
  const ddoc = c.pick(['p', 'p', 'p', 'g'])
  switch (
    c.weighted({
      info: 6,
      all: 16,
      view: 18,
      find: 16,
      explain: 5,
      global: 10,
      put: 8,
      get: 4,
      delete: 2,
      bulk: 5,
      index: 5,
      design: 3,
      odd: 4,
    })
  ) {
    case 'info':
      return get(partition)
    case 'all':
      return c.chance(0.75)
        ? get(`${partition}/_all_docs${query(c, LISTING)}`)
        : json('POST', `${partition}/_all_docs${query(c, LISTING, 1)}`, {
            ...(c.chance(0.4) && { limit: c.below(3) }),
            ...(c.chance(0.4) && { keys: c.list(3, () => c.pick<string>(IDS)) }),
          })
    case 'view': {
      const path = `/_design/${ddoc}/_view/${c.mostly<string>(Object.keys(VIEWS), ['none'], 0.05)}`
      return c.chance(0.8)
        ? get(`${partition}${path}${query(c, VIEWING)}`)
        : json('POST', `${partition}${path}`, c.chance(0.5) ? { limit: 1 } : { startkey: 'n' })
    }
    case 'find':
      return json('POST', `${partition}/_find`, asked(c))
    case 'explain':
      return json('POST', `${partition}/_explain`, asked(c))
    case 'global':
      return c.pick<Step>([
        get(`/{db}/_all_docs${query(c, LISTING)}`),
        get(`/{db}/_design/g/_view/type${query(c, VIEWING)}`),
        get(`/{db}/_design/p/_view/type${query(c, VIEWING, 1)}`),
        json('POST', '/{db}/_find', asked(c)),
        get('/{db}'),
        get('/{db}/_design/p/_info'),
        get('/{db}/_changes'),
      ])
    case 'put':
      return json('PUT', `/{db}/${encodeURIComponent(of)}`, { ...document(c), _rev: `{rev:${of}}` })
    case 'get':
      return get(`/{db}/${encodeURIComponent(of)}`)
    case 'delete':
      return {
        method: 'DELETE',
        path: `/{db}/${encodeURIComponent(of)}?rev=${encodeURIComponent(revision(c, of))}`,
      }
    case 'bulk':
      return json('POST', '/{db}/_bulk_docs', {
        docs: [
          { _id: 'a:new', ...document(c) },
          { _id: c.mostly<string>(['b:new'], ODD_IDS, 0.4), ...document(c) },
        ],
      })
    case 'index':
      return c.chance(0.3)
        ? get('/{db}/_index')
        : json('POST', '/{db}/_index', {
            index: { fields: [c.pick(['n', 'type'])] },
            name: 'i',
            ddoc: c.pick(['i', 'j']),
            ...(c.chance(0.5) && { partitioned: c.mostly<unknown>([true, false], ['x', null], 0.2) }),
          })
    case 'design':
      return json('PUT', '/{db}/_design/o', {
        _rev: '{rev:_design/o}',
        views: { v: { map: VIEWS.id.map, ...(c.chance(0.4) && { reduce: 'function (k, v) { return 1 }' }) } },
        options: c.mostly<unknown>(
          [{ partitioned: true }, { partitioned: false }, {}],
          [{ partitioned: 1 }],
          0.2,
        ),
      })
    case 'odd':
      return c.pick<Step>([
        { method: 'POST', path: partition },
        { method: 'DELETE', path: `${partition}/_all_docs` },
        get(`${partition}/`),
        get(`${partition}/_changes`),
        get(`${partition}/_design_docs`),
        get(`${partition}/a:1`),
        get('/{other}/_partition/a'),
        get('/{other}/_partition/a/_all_docs'),
        { method: 'GET', path: `${partition}/_find` },
      ])
  }
}

export const partitions: Family = {
  begin: (c) => [
    { method: 'DELETE', path: '/{db}' },
    // CouchDB may answer 412 for a moment after the deletion.
    { method: 'PUT', path: '/{db}?q=1&partitioned=true', until: /"ok":true/ },
    { method: 'PUT', path: '/{other}?q=1' },
    json('POST', '/{db}/_bulk_docs', { docs: IDS.map((_id) => ({ _id, ...document(c) })) }),
    json('PUT', '/{db}/_design/p', { views: VIEWS }),
    json('PUT', '/{db}/_design/g', { views: VIEWS, options: { partitioned: false } }),
    ...(c.chance(0.6)
      ? [json('POST', '/{db}/_index', { index: { fields: ['n'] }, name: 'i', ddoc: 'i' })]
      : []),
  ],
  step,
}
