/** `_changes` in all its forms, with filters, selectors, and changes that come while a feed waits. */
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
  oddBody,
  query,
  typed,
  type Value,
} from './family.ts'
import { selector } from './mango.ts'

const FILTERS = {
  all: 'function (doc, req) { return true }',
  none: 'function () { return false }',
  n: 'function (doc, req) { return String(doc.n) === req.query.n }',
  live: 'function (doc) { return !doc._deleted }',
  broken: 'function (doc) { throw({ forbidden: "no" }) }',
  thrown: 'function (doc) { return doc.a.b }',
  odd: 'function (doc) { return doc.n }',
} as const

const FEED: Readonly<Record<string, Value>> = {
  since: (c) => c.mostly(['0', '{seq}', 'now', '{seq}'], ['', 'x', '-1', '"0"', '1-x', 'null'], 0.12),
  limit: count,
  descending: flag,
  style: (c) => c.mostly(['main_only', 'all_docs'], ['x', ''], 0.1),
  include_docs: flag,
  conflicts: flag,
  attachments: flag,
  att_encoding_info: flag,
  filter: (c) =>
    c.mostly(
      ['d/all', 'd/n', 'd/live', 'd/none', '_design', '_doc_ids', '_view', 'd/odd'],
      ['d/none-such', 'none/x', 'd', '', '_x', 'd/broken', 'd/thrown', '/', 'd/', 'a/b/c'],
      0.2,
    ),
  n: (c) => c.pick(['1', '2']),
  view: (c) => c.mostly(['d/n'], ['d/none', 'd', '', 'none/x'], 0.3),
  doc_ids: (c) => c.mostly([JSON.stringify(c.some(IDS, 0.3))], ['{}', '[1]', 'x', '', '1'], 0.2),
  seq_interval: count,
  timeout: (c) => c.mostly(['1', '100'], ['x', '-1', ''], 0.1),
  heartbeat: (c) => c.mostly(['1000', 'true'], ['false', '0', '-1', 'x', ''], 0.2),
  feed: (c) => c.mostly(['normal'], ['x', ''], 0.3),
  'last-event-id': () => '{seq}',
  selector: () => '{}',
  fields: () => '["_id"]',
}

const body = (c: Choices): unknown => ({
  ...(c.chance(0.5) && { doc_ids: c.mostly<unknown>([c.some(IDS, 0.4)], [1, {}, [1], null], 0.15) }),
  ...(c.chance(0.7) && { selector: selector(c) }),
  ...(c.chance(0.2) && { fields: c.mostly<unknown>([['_id', 'n']], [1, [1], []], 0.2) }),
  ...(c.chance(0.05) && { since: 'now', limit: 1 }),
})

function step(c: Choices): Step {
  switch (
    c.weighted({
      get: 40,
      post: 18,
      longpoll: 10,
      continuous: 9,
      eventsource: 5,
      write: 10,
      delete: 3,
      read: 5,
    })
  ) {
    case 'get':
      return get(
        `/{db}/_changes${query(c, FEED, 4)}`,
        c.chance(0.05) ? { 'If-None-Match': '"{etag}"' } : undefined,
      )
    case 'post': {
      const filter = c.chance(0.8)
        ? `filter=${c.pick(['_selector', '_doc_ids', '_selector', '_design', 'd/all'])}`
        : ''
      const more = query(c, FEED, 2).replace('?', '&')
      if (c.oddly(0.06))
        return { method: 'POST', path: `/{db}/_changes?${filter}`, headers: typed(c), body: oddBody(c) }
      return json('POST', `/{db}/_changes?${filter}${more}`, body(c), typed(c))
    }
    case 'longpoll': {
      const of = `w${c.below(1e9)}`
      const more = query(c, { include_docs: flag, style: () => 'all_docs', since: () => '{seq}' }, 2).replace(
        '?',
        '&',
      )
      // It waits for this document alone, so it does not matter which request comes first.
      const path = `/{db}/_changes?feed=longpoll&timeout=4000&filter=_doc_ids&doc_ids=%5B%22${of}%22%5D${more}`
      return { ...get(path), meanwhile: json('POST', '/{db}', { _id: of, n: 1, type: 'note' }) }
    }
    case 'continuous':
      return get(
        `/{db}/_changes?feed=continuous&timeout=${c.pick(['1', '50'])}${query(c, { since: () => '{seq}', limit: count, include_docs: flag, filter: () => 'd/live', descending: flag }, 3).replace('?', '&')}`,
      )
    case 'eventsource':
      return get(
        `/{db}/_changes?feed=eventsource&timeout=${c.pick(['1', '50'])}&limit=${c.pick(['1', '3'])}${query(c, { include_docs: flag, since: () => '0' }, 2).replace('?', '&')}`,
        c.chance(0.2) ? { 'Last-Event-ID': '{seq}' } : undefined,
      )
    case 'write': {
      const of = c.pick(['d0', 'd1', 'd2', 'd3'])
      return json('PUT', `/{db}/${of}`, { _rev: `{rev:${of}}`, n: c.pick([1, 2]), type: 'note' })
    }
    case 'delete':
      return { method: 'DELETE', path: '/{db}/d3?rev={rev:d3}' }
    case 'read':
      return get('/{db}/_changes')
  }
}

function begin(c: Choices): Step[] {
  return [
    ...filled(c),
    json('PUT', '/{db}/_design/d', {
      filters: FILTERS,
      views: { n: { map: 'function (doc) { if (doc.n === 1) emit(doc._id) }' } },
    }),
    get('/{db}/_changes?limit=4'),
  ]
}

export const feeds: Family = { begin, step }
