/** Functions of design documents: shows, lists, updates, rewrites and validate functions. */
import type { CarefulChoices as Choices } from '../careful.ts'
import type { Step } from '../step.ts'
import { count, type Family, filled, flag, get, json, query } from './family.ts'

const DESIGN = {
  shows: {
    text: 'function (doc, req) { return doc ? doc._id : "none " + req.id }',
    object:
      'function (doc, req) { return { code: 201, headers: { "X-Made": "yes", "Content-Type": "text/css" }, body: "body" } }',
    json: 'function (doc, req) { return { json: { n: doc && doc.n, query: req.query, method: req.method } } }',
    provides:
      'function (doc, req) { provides("html", function () { return "<b>" + req.id + "</b>" }); provides("json", function () { return toJSON({ id: req.id }) }) }',
    base64: 'function () { return { base64: "aGVsbG8=", headers: { "Content-Type": "image/png" } } }',
    nothing: 'function () { }',
    thrown: 'function () { throw "x" }',
    missing: 'function () { throw(["error", "not_found", "no"]) }',
    forbidden: 'function () { throw({ forbidden: "no" }) }',
    error: 'function () { return undefinedThing.x }',
    number: 'function () { return 1 }',
    start: 'function () { start({ code: 202, headers: { "X-A": "b" } }); send("a"); send("b"); return "c" }',
    request:
      'function (doc, req) { return toJSON([req.method, req.path, req.requested_path, req.raw_path, req.id, req.form, req.body, req.userCtx.name, req.info.db_name, req.secObj, req.query]) }',
  },
  lists: {
    rows: 'function (head, req) { send("["); var row; while (row = getRow()) send(toJSON(row.key) + ","); return "]" }',
    head: 'function (head, req) { start({ headers: { "Content-Type": "text/plain" } }); return toJSON([head.total_rows, head.offset, req.query.limit]) }',
    provides:
      'function () { provides("html", function () { var r, n = 0; while (r = getRow()) n++; return "<p>" + n }) }',
    thrown: 'function () { throw({ forbidden: "no" }) }',
    nothing: 'function () { }',
  },
  updates: {
    touch:
      'function (doc, req) { if (!doc) return [{ _id: req.id || "made", n: 1 }, "made"]; doc.n = "touched"; return [doc, { json: { was: doc._id } }] }',
    none: 'function (doc, req) { return [null, "nothing"] }',
    code: 'function (doc, req) { return [null, { code: 418, headers: { "X-A": "b" }, body: "teapot" }] }',
    broken: 'function () { return "x" }',
    thrown: 'function () { throw({ forbidden: "no" }) }',
    form: 'function (doc, req) { return [null, toJSON([req.form, req.body, req.method])] }',
    drop: 'function (doc, req) { if (!doc) return [null, "no"]; doc._deleted = true; return [doc, "gone"] }',
  },
  views: {
    n: { map: 'function (doc) { emit(doc.n, 1) }', reduce: '_count' },
    all: { map: 'function (doc) { emit(doc._id, doc.n) }' },
  },
  rewrites: [
    { from: 'show/:id', to: '_show/text/:id' },
    { from: 'list/*', to: '_list/rows/all', query: { limit: '2' } },
    { from: 'doc/:id', to: '../../:id', method: 'GET' },
    { from: 'up/:id', to: '_update/touch/:id', method: 'POST' },
    { from: 'key/:k', to: '_view/all', query: { key: ':k' } },
    { from: 'int/:k', to: '_view/all', query: { limit: ':k' }, formats: { k: 'int' } },
    { from: '', to: '_show/text' },
    { from: 'any/*', to: '*' },
  ],
} as const

/** Texts that are functions, and some that are none. */
const VALIDATES = [
  'function (n, o, u, s) { if (n.bad) throw({ forbidden: "bad" }) }',
  'function (n, o) { if (n.bad) throw({ unauthorized: "who" }); if (o && !n._deleted && n.n === 9) throw({ forbidden: "nine" }) }',
  'function (n) { if (n.bad) throw "text" }',
  'function (n) { if (n.bad) throw({ other: "x" }) }',
  'function (n) { if (n.bad) n.x.y() }',
] as const

const name = (c: Choices, of: Readonly<Record<string, unknown>>) =>
  c.mostly(Object.keys(of), ['none-such', ''], 0.04)
const ACCEPT = [
  'text/html',
  'application/json',
  '*/*',
  'text/plain',
  'image/png',
  'text/html;q=0.2, application/json',
]

function step(c: Choices): Step {
  const of = c.mostly(['d0', 'd1', 'x%2Fy', 'a%20b'], ['none', 'd4', '_design/f', 'x/y'], 0.2)
  const accept = c.chance(0.4) ? { Accept: c.pick(ACCEPT) } : {}
  switch (c.weighted({ show: 30, list: 22, update: 20, rewrite: 14, validate: 12, other: 5 })) {
    case 'show':
      return c.chance(0.15)
        ? {
            method: c.pick(['POST', 'PUT', 'DELETE', 'HEAD']),
            path: `/{db}/_design/f/_show/${name(c, DESIGN.shows)}/${of}`,
            body: 'a=1&b=2',
            headers: { 'Content-Type': 'application/x-www-form-urlencoded' },
          }
        : get(
            `/{db}/_design/f/_show/${name(c, DESIGN.shows)}${c.chance(0.8) ? `/${of}` : ''}${query(c, { a: () => '1', format: () => c.pick(['json', 'html', 'x']), rev: () => '{rev:d1}', limit: count }, 2)}`,
            accept,
          )
    case 'list':
      return get(
        `/{db}/_design/f/_list/${name(c, DESIGN.lists)}/${c.mostly(['all', 'n', 'f/all'], ['none', 'x/all'], 0.06)}${query(c, { limit: count, descending: flag, group: flag, reduce: flag, key: () => '"d1"', format: () => c.pick(['html', 'json']), skip: count, startkey: () => '1', include_docs: flag })}`,
        accept,
      )
    case 'update':
      return {
        method: c.mostly(['POST', 'PUT'], ['GET', 'DELETE', 'PATCH'], 0.1),
        path: `/{db}/_design/f/_update/${name(c, DESIGN.updates)}${c.chance(0.8) ? `/${of}` : ''}${query(c, { a: () => '1', batch: () => 'ok' }, 1)}`,
        body: c.pick(['', 'a=1', '{"x":1}']),
        headers: {
          'Content-Type': c.pick(['application/x-www-form-urlencoded', 'application/json', 'text/plain']),
        },
      }
    case 'rewrite':
      return {
        method: c.mostly(['GET'], ['POST', 'PUT', 'HEAD'], 0.25),
        path: `/{db}/_design/f/_rewrite/${c.pick(['show/d1', 'list/x', 'list/', 'doc/d1', 'doc/none', 'up/d1', 'key/d1', 'int/2', '', 'any/_show/text/d1', 'none', 'doc', 'key/%22d1%22'])}${query(c, { limit: count, x: () => '1' }, 1)}`,
      }
    case 'validate':
      if (c.chance(0.35))
        return json('PUT', '/{db}/_design/w', {
          ...(c.chance(0.8) && { _rev: '{rev:_design/w}' }),
          validate_doc_update: c.pick(VALIDATES),
        })
      if (c.chance(0.3))
        return json('POST', '/{db}/_bulk_docs', {
          docs: [{ _id: 'q1', bad: true }, { _id: 'q2' }, { _id: 'd1', _rev: '{rev:d1}', n: 9 }],
        })
      return json('PUT', `/{db}/d2`, { _rev: '{rev:d2}', ...(c.chance(0.6) && { bad: true }), n: 9 })
    case 'other':
      return c.pick<Step>([
        json('PUT', '/{db}/_design/o', {
          language: c.pick(['javascript', 'x', '']),
          views: c.pick<unknown>([
            {},
            1,
            { v: 1 },
            { v: {} },
            { v: { map: 1 } },
            { v: { map: 'function(' } },
            { v: { map: 'x' } },
            { v: { map: 'function(d){}', reduce: 1 } },
            { v: { map: 'function(d){}', reduce: 'x' } },
            { v: { map: 'function(d){}', reduce: '_x' } },
          ]),
        }),
        json(
          'PUT',
          '/{db}/_design/o',
          c.pick<unknown>([
            { filters: 1 },
            { filters: { a: 1 } },
            { shows: 1 },
            { updates: { a: 1 } },
            { lists: [] },
            { rewrites: 1 },
            { validate_doc_update: 1 },
            { options: 1 },
            { language: 1 },
            { autoupdate: 1 },
            { filters: { a: 'x' } },
            { rewrites: 'x' },
            { fulltext: 1 },
          ]),
        ),
        get('/{db}/_design/f/_show'),
        get('/{db}/_design/f/_list/rows'),
        get('/{db}/_design/f/_update/touch'),
        get('/{db}/_design/none/_show/text/d1'),
      ])
  }
}

function begin(c: Choices): Step[] {
  return [...filled(c), json('PUT', '/{db}/_design/f', DESIGN)]
}

export const functions: Family = { begin, step, steps: 16 }
