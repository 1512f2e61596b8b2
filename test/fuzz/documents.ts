/** Documents as JSON text, good and odd, and the functions of design documents. */
import type { Choices } from './choices.ts'
import {
  ATTACHMENT_NAMES,
  DESIGN_NAMES,
  KEPT_IDS,
  MEMBER_NAMES,
  ODD_IDS,
  ODD_REVISIONS,
  REVISIONS,
  WILD_IDS,
} from './world.ts'

export interface DocumentOptions {
  /** It is for a vault: then its id is that of a kept document, and its revision none that one has. */
  readonly isVault: boolean
  /** It stands in a list, and so must say its id. */
  readonly isListed?: boolean
  /** Attachments that follow in multipart. */
  readonly following?: string
}

const FUNCTIONS = {
  filter: [
    'function (doc, req) { return true }',
    'function (doc, req) { return doc._id > "d2" && !doc._deleted }',
    'function (doc, req) { return doc.type === req.query.type }',
    'function (doc, req) { return JSON.stringify(req).length % 2 === 0 }',
    "function (doc) { return doc._id.indexOf('file:') === -1 }",
    '(doc, req) => { if (doc._deleted) return true; return doc._id.slice(0, 2) !== "d1" }',
    '(doc) => doc._id.charAt(0) === "d" || (doc._deleted && doc._id.length > 3)',
    'd => (d._id || d._rev).length > 6 ? d._id.substr(-2, 1) === "1" : d._id < "d3"',
    'function (doc) { throw({ forbidden: "no" }) }',
    'function (doc) { throw new Error("thrown by a filter") }',
    'function (doc) { return doc.a.b.c }',
    'function (doc) { log(doc); return null }',
  ],
  map: [
    'function (doc) { emit(doc._id, 1) }',
    'function (doc) { for (var k in doc) emit([k, typeof doc[k]], doc[k]) }',
    'function (doc) { emit(null, { _id: doc.other || doc._id }) }',
    'function (doc) { throw new Error("thrown by a map") }',
    'function (doc) { emit(require("views/lib/m").key(doc)) }',
    'function (doc) { if (doc.big) for (var i = 0; i < 50; i++) emit(i, doc) }',
    '(doc) => { emit(doc.n, doc.n); emit(undefined); emit(NaN, -0) }',
  ],
  reduce: [
    '_count',
    '_sum',
    '_stats',
    '_approx_count_distinct',
    '_top_3',
    '_nothing',
    'function (keys, values, rereduce) { return values.length }',
    'function (keys, values) { return sum(values) }',
    'function () { throw new Error("thrown by a reduce") }',
  ],
  validate: [
    'function (newDoc, oldDoc, userCtx, secObj) { if (newDoc.bad) throw({ forbidden: "bad" }) }',
    'function (newDoc, oldDoc) { if (oldDoc && oldDoc.locked) throw({ unauthorized: "locked" }) }',
    'function (newDoc) { throw({ forbidden: { why: [newDoc._id] } }) }',
    'function (newDoc) { if (newDoc.n) throw new Error("thrown by a validator") }',
    'function () { throw "text" }',
  ],
  show: [
    'function (doc, req) { return JSON.stringify(req) }',
    'function (doc, req) { return { json: doc, headers: { "X-A": req.id } } }',
    'function (doc) { provides("html", function () { return "<p>" + doc._id }); provides("json", toJSON) }',
    'function (doc, req) { start({ "X-B": "b" }); send(doc.a.b); return req.query }',
    'function (doc, req) { return { code: Number(req.query.limit), base64: req.body } }',
    'function () { throw ["error", "not_found", { a: 1 }] }',
    'function () { throw { error: "odd", reason: [] } }',
  ],
  list: [
    'function (head, req) { send(JSON.stringify(head)); var row; while (row = getRow()) send(row.id); return "end" }',
    'function (head, req) { start({ code: 201, headers: req.headers }); while (getRow()); }',
    'function () { provides("text", function () { return String(getRow()) }) }',
    'function () { send("x"); getRow(); throw "thrown by a list" }',
    'function () { var row; while (row = getRow()) send(new Array(9999).join(row.key)) }',
  ],
  update: [
    'function (doc, req) { return [{ _id: req.id || req.uuid, at: req.uuid }, "made"] }',
    'function (doc, req) { if (doc) doc.n = req.query.limit; return [doc, { json: req.form }] }',
    'function (doc, req) { return [JSON.parse(req.body), { code: 202 }] }',
    'function (doc) { doc._deleted = true; return [doc, "gone"] }',
    'function () { return 1 }',
  ],
  rewrite: [
    'function (req) { return "_show/one" }',
    'function (req) { return { path: "../../" + req.path[4], query: {} } }',
    'function (req) { return "_rewrite/" + req.path.length }',
    'function (req) { return { code: 200, body: JSON.stringify(req) } }',
    'function (req) { return { path: req.raw_path, method: req.query.rev, headers: req.headers } }',
    'function () { throw "thrown by a rewrite" }',
  ],
  wrong: [
    'function (',
    '',
    'not a function',
    '1',
    'function () { return }',
    '({})',
    'function(){} function(){}',
  ],
  endless: ['function () { for (;;) {} }', 'function () { var a = []; for (;;) a.push(new Array(9999)) }'],
} as const

type FunctionKind = Exclude<keyof typeof FUNCTIONS, 'wrong' | 'endless'>

/** The text of a function; seldom one that does not compile, and most seldom one that does not end. */
export function functionText(choices: Choices, kind: FunctionKind): string {
  if (choices.chance(0.06)) return choices.pick(FUNCTIONS.wrong)
  if (kind !== 'validate' && choices.chance(0.01)) return choices.pick(FUNCTIONS.endless)
  return choices.pick<string>(FUNCTIONS[kind])
}

/** The members of a document, `_` members among them, as JSON text. */
export function documentText(choices: Choices, options: DocumentOptions): string {
  const members = [...special(choices, options), ...ordinary(choices)]
  if (options.following !== undefined) members.push(options.following)
  else if (choices.chance(0.15)) members.push(attachments(choices))
  return `{${members.join(',')}}`
}

/** Members without a meaning of their own. */
export function ordinary(choices: Choices): string[] {
  const members = choices.list(
    4,
    (at) => `"${choices.pick(['a', 'n', 'type', 'list', 'é'])}${at}":${choices.json()}`,
  )
  if (choices.chance(0.3)) members.push(`"n":${choices.edge()}`)
  if (choices.chance(0.05)) members.push('"bad":true', '"locked":true')
  if (choices.chance(0.004)) members.push(`"big":"${'x'.repeat(choices.pick([20_000, 190_000, 260_000]))}"`)
  return members
}

export function designText(choices: Choices, isVault: boolean): string {
  const members: string[] = []
  const text = (kind: Parameters<typeof functionText>[1]) => JSON.stringify(functionText(choices, kind))
  const many = (make: (name: string) => string) =>
    choices.some(MEMBER_NAMES, 0.35).map((name) => `${JSON.stringify(name)}:${make(name)}`)
  if (choices.chance(0.6)) members.push(`"filters":{${many(() => text('filter')).join(',')}}`)
  if (choices.chance(0.6)) members.push(`"views":{${many((name) => view(choices, name)).join(',')}}`)
  if (choices.chance(0.2)) members.push(`"validate_doc_update":${text('validate')}`)
  if (choices.chance(0.1))
    members.push(`"language":${choices.pick(['"javascript"', '"query"', '"erlang"', '1'])}`)
  if (choices.chance(0.1)) members.push(`"options":{"include_design":true,"local_seq":true}`)
  for (const kind of ['show', 'list', 'update'] as const)
    if (choices.chance(0.4)) members.push(`"${kind}s":{${many(() => text(kind)).join(',')}}`)
  if (choices.chance(0.3))
    members.push(`"rewrites":${choices.chance(0.5) ? text('rewrite') : rewriteRules(choices)}`)
  if (choices.chance(0.05))
    members.push(`"${choices.pick(['updates', 'shows', 'lists', 'rewrites'])}":{"x":"y"}`)
  return `{${[...special(choices, { isVault }), ...members].join(',')}}`
}

function rewriteRules(choices: Choices): string {
  const rules = choices.list(4, () => ({
    ...(choices.chance(0.7) && { from: choices.pick(['/x', ':a', ':a/*', '*', '', 'd1', 5]) }),
    ...(choices.chance(0.95) && {
      to: choices.pick(['_show/one', '_view/one', '../../:a', '_rewrite/*', '_list/one/one', '../../../*']),
    }),
    ...(choices.chance(0.3) && { method: choices.pick(['GET', '*', 'PUT', 1]) }),
    ...(choices.chance(0.3) && {
      query: choices.pick([{ key: ':a' }, { limit: ['*'] }, { startkey: {} }, 1]),
    }),
    ...(choices.chance(0.2) && { formats: { a: choices.pick(['int', 'bool', 'x']) } }),
  }))
  return JSON.stringify(rules)
}

function view(choices: Choices, name: string): string {
  const text = (kind: 'map' | 'reduce') => JSON.stringify(functionText(choices, kind))
  if (name === 'lib') return '{"m":"exports.key = function (doc) { return doc._id }"}'
  return choices.chance(0.5) ? `{"map":${text('map')}}` : `{"map":${text('map')},"reduce":${text('reduce')}}`
}

function special(choices: Choices, { isVault, isListed }: DocumentOptions): string[] {
  const members: string[] = []
  if (isListed || choices.chance(0.3)) members.push(`"_id":${documentId(choices, isVault)}`)
  const kind = choices.weighted({ none: 30, rev: 40, path: 25, odd: 5 })
  if (kind === 'rev') members.push(`"_rev":${JSON.stringify(choices.mostly(REVISIONS, ODD_REVISIONS))}`)
  if (kind === 'path') members.push(`"_revisions":${revisions(choices)}`)
  if (kind === 'odd') members.push(odd(choices))
  if (choices.chance(0.08)) members.push(`"_deleted":${choices.mostly(['true', 'false'], ['1', 'null'])}`)
  return members
}

/** Documents of a vault always are some kept one. */
function documentId(choices: Choices, isVault: boolean): string {
  if (isVault) return JSON.stringify(choices.pick(KEPT_IDS))
  if (choices.chance(0.03)) return choices.json()
  if (choices.chance(0.05)) return JSON.stringify(`_design/${choices.pick(DESIGN_NAMES)}`)
  if (choices.chance(0.05)) return JSON.stringify(`_local/${choices.pick(WILD_IDS)}`)
  return JSON.stringify(choices.mostly(WILD_IDS, ODD_IDS, 0.02))
}

function revisions(choices: Choices): string {
  const ids = choices.list(4, () => choices.pick(['a', 'b', '0'.repeat(32), 'f'.repeat(32)]))
  const start = choices.mostly([String(ids.length), '2', '3', '4'], ['0', '-1', '"2"', '1e30', 'null'])
  return `{"start":${start},"ids":${JSON.stringify(ids)}}`
}

function odd(choices: Choices): string {
  return choices.pick([
    '"_unknown":1',
    '"_":1',
    '"__proto__":{"a":1}',
    '"_conflicts":["1-a"]',
    '"_revs_info":[]',
    '"_local_seq":5',
    '"_access":["x"]',
    '"_replication_state":"triggered"',
    '"_rev":null',
    '"_rev":1',
    '"_revisions":[]',
    '"_revisions":{"start":1}',
    '"_revisions":{"ids":["a",1],"start":2}',
    '"_attachments":null',
    '"_attachments":[]',
    '"_attachments":{"a":1}',
    '"_attachments":{"a":{}}',
  ])
}

function attachments(choices: Choices): string {
  const entries = choices
    .some(ATTACHMENT_NAMES, 0.15)
    .map((name) => `${JSON.stringify(name)}:${entry(choices)}`)
  return `"_attachments":{${entries.join(',')}}`
}

function entry(choices: Choices): string {
  const data = choices.bytes(choices.below(60)).toString('base64')
  return choices.pick([
    `{"data":"${data}"}`,
    `{"data":"${data}","content_type":"text/plain","revpos":2,"digest":"md5-x","length":3}`,
    '{"data":""}',
    '{"data":"%%%"}',
    '{"data":5}',
    '{"stub":true}',
    '{"stub":true,"revpos":1}',
    '{"follows":true,"length":3}',
    `{"data":"${data}","encoding":"gzip","encoded_length":3}`,
    '{"content_type":"text/plain\\u0000é","data":"aa=="}',
  ])
}
