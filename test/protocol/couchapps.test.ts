/** Shows, lists, updates and rewrites through the server and nano; protocol.md 9.6. */

import nano from 'nano'
import t, { type Test } from 'tap'
import { request } from 'undici'
import { settled, startTestServer } from '../helpers/server.ts'

const DESIGN = {
  lib: { greet: 'exports.greet = function (name) { return "hello " + name }' },
  views: {
    all: { map: 'function (doc) { emit(doc._id, doc.n) }' },
    sums: { map: 'function (doc) { emit(doc.n % 2, doc.n) }', reduce: '_sum' },
  },
  shows: {
    text: 'function (doc, req) { return "hello" }',
    doc: 'function (doc, req) { return { json: { id: req.id, doc: doc } } }',
    teapot:
      'function () { return { code: 418, headers: { "X-Foo": "bar", "Content-Type": "text/plain" }, body: "tea" } }',
    bytes: 'function () { return { base64: "aGVsbG8=" } }',
    lib: 'function () { return require("lib/greet").greet("you") + this._id }',
    sent: 'function () { start({ "X-Foo": "s" }); send("a"); send("b"); return "c" }',
    kinds: `function () {
      provides("html", function () { return "<b>html</b>" })
      provides("json", function () { return "[1]" })
      provides("text", function () { return "plain" })
    }`,
    own: `function () {
      registerType("foo", "application/foo", "application/x-foo")
      provides("foo", function () { return "f" })
    }`,
    req: 'function (doc, req) { return { json: { id: req.id, method: req.method, path: req.path, query: req.query, body: req.body, form: req.form, cookie: req.cookie, name: req.userCtx.name, headers: Object.keys(req.headers), info: req.info.db_name } } }',
    throws: 'function () { throw new Error("boom") }',
    named: 'function () { throw ["error", "weird", "because"] }',
    forbidden: 'function () { throw ["error", "forbidden", "no"] }',
    number: 'function () { return 5 }',
    wrong: 'function () { return { nonsense: 1 } }',
    deep: 'function () { var a = []; for (var i = 0; i < 20000; i++) a = [a]; return { json: a } }',
    quiteDeep: 'function () { var a = []; for (var i = 0; i < 600; i++) a = [a]; return { json: a } }',
    split: 'function () { return { headers: { "X-A": "b\\r\\nSet-Cookie: c=d" }, body: "x" } }',
    broken: 'function () { return "',
  },
  lists: {
    rows: `function (head, req) {
      send(JSON.stringify(head) + "\\n")
      var row
      while (row = getRow()) send(JSON.stringify(row) + "\\n")
      return "end"
    }`,
    count:
      'function () { start({ code: 202, headers: { "Content-Type": "text/plain", "X-Foo": "l" } }); var n = 0; while (getRow()) n++; return String(n) }',
    late: 'function () { getRow(); start({ headers: { "X-Foo": "late" } }); send("x"); getRow(); start({ code: 500 }); return "y" }',
    kinds: `function () {
      provides("html", function () { var r, s = ""; while (r = getRow()) s += "<li>" + r.id; return s })
      provides("json", function () { var r, a = []; while (r = getRow()) a.push(r.id); return JSON.stringify(a) })
    }`,
    body: 'function (head, req) { return JSON.stringify(req.body) }',
    throws: 'function () { throw "early" }',
    throwsLate: 'function () { send("a"); getRow(); throw ["error", "not_found", "late"] }',
    none: 'function () {}',
  },
  updates: {
    set: 'function (doc, req) { if (!doc) return [{ _id: req.id || req.uuid, n: 100 }, "made"]; doc.n += 1; return [doc, { json: { n: doc.n } }] }',
    form: 'function (doc, req) { doc[req.form.field] = req.form.value; return [doc, "set"] }',
    nothing: 'function () { return [null, "nothing"] }',
    remove: 'function (doc) { doc._deleted = true; return [doc, "gone"] }',
    stale: 'function (doc, req) { return [{ _id: req.id, _rev: "1-abc" }, "x"] }',
    unnamed: 'function () { return [{ a: 1 }, "x"] }',
    deep: 'function () { var a = []; for (var i = 0; i < 600; i++) a = [a]; return [{ _id: "deep", a: a }, "x"] }',
    design: 'function () { return [{ _id: "_design/x" }, "x"] }',
  },
}

interface Ask {
  readonly body?: unknown
  readonly headers?: Readonly<Record<string, string>>
}

/** A server with a database `db` of five documents and `_design/app`, and calls to it. */
async function apps(t: Test, design: object = {}) {
  const server = await startTestServer(t)
  const ask = async (method: string, path: string, { body, headers = {} }: Ask = {}) => {
    const answer = await request(server.url + path, {
      method: method as 'GET',
      headers: { ...(body !== undefined && { 'content-type': 'application/json' }), ...headers },
      body: body === undefined ? null : typeof body === 'string' ? body : JSON.stringify(body),
    })
    return { status: answer.statusCode, headers: answer.headers, text: await answer.body.text() }
  }
  // On a busy machine a function waits for a processor.
  await ask('PUT', '/_node/_local/_config/couchdb/os_process_timeout', { body: '"60000"' })
  await ask('PUT', '/db')
  const docs = Array.from({ length: 5 }, (_, n) => ({ _id: `d${n}`, n }))
  await ask('POST', '/db/_bulk_docs', { body: { docs: [...docs, { _id: 'a/b', n: 9 }] } })
  await ask('PUT', '/db/_design/app', { body: { ...DESIGN, ...design } })
  return { server, ask }
}

const HTML = 'text/html; charset=utf-8'
const APP = '/db/_design/app'

t.test('shows', async (t) => {
  const { ask } = await apps(t)
  const show = (path: string, options: Ask = {}, method = 'GET') =>
    ask(method, `${APP}/_show/${path}`, options)
  t.match(await show('text'), {
    status: 200,
    text: 'hello',
    headers: { 'content-type': HTML, 'content-security-policy': 'sandbox', vary: /Accept/ },
  })
  t.match(JSON.parse((await show('doc/d1')).text), {
    id: 'd1',
    doc: { _id: 'd1', n: 1, _revisions: { start: 1 } },
  })
  t.same(JSON.parse((await show('doc/nope')).text), { id: 'nope', doc: null })
  for (const id of ['a/b', 'a%2Fb'])
    t.match(JSON.parse((await show(`doc/${id}`)).text), { doc: { n: 9 } }, id)
  t.match(await show('teapot'), {
    status: 418,
    text: 'tea',
    headers: { 'x-foo': 'bar', 'content-type': 'text/plain' },
  })
  t.match(await show('bytes'), { text: 'hello', headers: { 'content-type': 'application/binary' } })
  t.equal((await show('lib')).text, 'hello you_design/app')
  t.match(await show('sent'), { text: 'abc', headers: { 'x-foo': 's' } })
  for (const [accept, type, text] of [
    ['text/html', HTML, '<b>html</b>'],
    ['application/json, text/html;q=0.5', 'application/json', '[1]'],
    ['text/plain', 'text/plain; charset=utf-8', 'plain'],
    ['*/*', HTML, '<b>html</b>'],
  ])
    t.match(
      await show('kinds', { headers: { accept: accept as string } }),
      { text, headers: { 'content-type': type } },
      String(accept),
    )
  t.match(await show('kinds?format=text'), { text: 'plain' })
  t.match(await show('own', { headers: { accept: 'application/x-foo' } }), {
    headers: { 'content-type': 'application/x-foo' },
  })
  t.match(await show('kinds', { headers: { accept: 'image/png' } }), {
    status: 406,
    text: /not supported, try one of/,
  })
  const form = await show(
    'req/x?key=%5B1%5D&y=2',
    { body: 'a=1&b=x+y', headers: { 'content-type': 'application/x-www-form-urlencoded', cookie: 'c=d' } },
    'POST',
  )
  t.match(JSON.parse(form.text), {
    id: 'x',
    method: 'POST',
    path: ['db', '_design', 'app', '_show', 'req', 'x'],
    query: { key: [1], y: '2' },
    body: 'a=1&b=x+y',
    form: { a: '1', b: 'x y' },
    cookie: {},
    name: null,
    info: 'db',
  })
  t.notMatch(form.text, 'Cookie')
  t.equal((await show('text', {}, 'HEAD')).text, '')
  for (const [path, status, reason] of [
    ['throws', 500, /"render_error".*boom.*<input>:1:\d+\)\\n"\}\n$/],
    ['named', 500, '{"error":"weird","reason":"because"}\n'],
    ['forbidden', 403, '{"error":"forbidden","reason":"no"}\n'],
    ['throws/nope', 404, /document not found/],
    ['number', 500, /undefined response/],
    ['wrong', 500, /external_response_error/],
    ['split', 500, /external_response_error/],
    ['deep', 500, /512 levels/],
    ['quiteDeep', 500, /512 levels/],
    ['broken', 500, /compilation_error/],
    ['unknown', 404, /missing json key: unknown/],
    ['', 404, /Invalid path/],
  ] as const)
    t.match(await show(path), { status, text: reason }, path)
  t.match(await ask('GET', '/db/_design/none/_show/x'), { status: 404, text: /missing/ })
})

t.test('a show is revalidated, and changes with its document', async (t) => {
  const { ask } = await apps(t)
  const { headers } = await ask('GET', `${APP}/_show/doc/d1`)
  const known = { headers: { 'if-none-match': String(headers.etag) } }
  t.match(await ask('GET', `${APP}/_show/doc/d1`, known), {
    status: 304,
    text: '',
    headers: { etag: headers.etag },
  })
  t.match(await ask('GET', `${APP}/_show/doc/d2`, known), { status: 200 })
  t.match(await ask('GET', `${APP}/_show/doc/d1`, { headers: { ...known.headers, accept: 'text/html' } }), {
    status: 200,
  })
  await ask('PUT', `${APP}/_update/set/d1`)
  t.match(await ask('GET', `${APP}/_show/doc/d1`, known), { status: 200, text: /"n":2/ })
})

t.test('lists', async (t) => {
  const { ask } = await apps(t)
  const list = (path: string, options: Ask = {}) =>
    ask(options.body === undefined ? 'GET' : 'POST', `${APP}/_list/${path}`, options)
  const rows = [
    '{"total_rows":6,"offset":1}',
    '{"id":"d0","key":"d0","value":0}',
    '{"id":"d1","key":"d1","value":1}',
    'end',
  ]
  const first = await list('rows/all?skip=1&limit=2')
  t.match(first, {
    status: 200,
    headers: { 'content-type': 'application/json', 'content-security-policy': 'sandbox' },
  })
  t.equal(first.text, rows.join('\n'))
  t.equal((await list('rows/app/all?skip=1&limit=2')).text, rows.join('\n'))
  t.equal((await list('rows/sums?group=true')).text, '{}\n{"key":0,"value":6}\n{"key":1,"value":13}\nend')
  t.match(
    (await list('rows/_all_docs?limit=1&include_docs=true')).text,
    /^\{"total_rows":7,"offset":0\}\n.*"doc":\{/,
  )
  t.match((await list('rows/all', { body: { keys: ['d3', 'x', 'd0'] } })).text, /\n.*"d3".*\n.*"d0".*\nend$/)
  t.equal((await list('body/all', { body: { keys: [], x: 1 } })).text, '{"keys":[],"x":1}')
  t.match(await list('count/all'), {
    status: 202,
    text: '6',
    headers: { 'content-type': 'text/plain', 'x-foo': 'l' },
  })
  t.match(await list('late/all'), { status: 200, text: 'xy', headers: { 'x-foo': 'late' } })
  t.match(await list('kinds/all?limit=2', { headers: { accept: 'text/html' } }), { text: '<li>a/b<li>d0' })
  t.match(await list('kinds/all?limit=2', { headers: { accept: 'application/json' } }), {
    text: '["a/b","d0"]',
  })
  t.match(await list('none/all'), { status: 200, text: '' })
  for (const [path, status, text] of [
    ['throws/all', 500, /render_error.*early/],
    ['rows/nope', 404, /missing_named_view/],
    ['rows/none/all', 404, /missing/],
    ['nope/all', 404, /missing json key: nope/],
    ['rows/all?limit=x', 400, /query_parse_error/],
    ['rows', 404, /list_error/],
    ['rows/a/b/c', 404, /list_error/],
  ] as const)
    t.match(await list(path), { status, text }, path)
  await t.rejects(list('throwsLate/all'), 'an answer that has begun breaks off')
})

t.test('the rows of a long list are streamed', async (t) => {
  const { ask } = await apps(t)
  const docs = Array.from({ length: 3000 }, (_, n) => ({ _id: `x${n}`, n, text: 'ä'.repeat(500) }))
  await ask('POST', '/db/_bulk_docs', { body: { docs } })
  const { text } = await ask('GET', `${APP}/_list/rows/all?include_docs=true`)
  const lines = text.split('\n')
  t.equal(lines.length, 3008)
  t.ok(lines.slice(1, -1).every((line) => line.startsWith('{"id":"') && line.endsWith('}}')))
})

t.test('updates', async (t) => {
  const { ask } = await apps(t)
  const update = (path: string, options: Ask = {}, method = 'POST') =>
    ask(method, `${APP}/_update/${path}`, options)
  const made = await update('set/new')
  t.match(made, {
    status: 201,
    text: 'made',
    headers: { 'x-couch-id': 'new', 'x-couch-update-newrev': /^1-/ },
  })
  t.match(await update('set/new', {}, 'PUT'), {
    status: 201,
    text: '{"n":101}\n',
    headers: { 'x-couch-update-newrev': /^2-/ },
  })
  t.match(await update('set/a b/c'), { headers: { 'x-couch-id': 'a%20b%2Fc' } })
  const form = { body: 'field=f&value=a+b', headers: { 'content-type': 'application/x-www-form-urlencoded' } }
  t.match(await update('form/d1', form), { status: 201, text: 'set' })
  t.match(JSON.parse((await ask('GET', '/db/d1')).text), { f: 'a b' })
  const nothing = await update('nothing')
  t.match(nothing, { status: 200, text: 'nothing' })
  t.notOk(nothing.headers['x-couch-id'])
  t.match(await update('remove/d2'), { status: 201 })
  t.match(await ask('GET', '/db/d2'), { status: 404, text: /deleted/ })
  for (const [path, status, method = 'POST'] of [
    ['stale/d1', 409],
    ['unnamed', 400],
    ['deep', 400],
    ['set/d1', 405, 'GET'],
    ['set/d1', 405, 'HEAD'],
    ['unknown', 404],
    ['', 404],
  ] as const)
    t.match(await update(path, {}, method), { status }, `${method} ${path}`)
  t.match(await update('set/d1', {}, 'GET'), { headers: { allow: 'COPY,DELETE,POST,PUT' } })
  await ask('PUT', '/db/_design/check', {
    body: { validate_doc_update: 'function () { throw { forbidden: "closed" } }' },
  })
  t.match(await update('set/d1'), { status: 403, text: /closed/ }, 'validate functions decide')
})

t.test('rewrites by rules and by functions', async (t) => {
  const rules = [
    { from: '/show/:id', to: '_show/doc/:id' },
    { from: '/loop', to: '_rewrite/loop' },
    { from: '/db/*', to: '../../*' },
    { from: '/file/*', to: '../../d1/*' },
  ]
  const { ask } = await apps(t, { rewrites: rules })
  const call = (method: string, path: string, options: Ask = {}) =>
    ask(method, `${APP}/_rewrite/${path}`, options)
  t.match(JSON.parse((await call('GET', 'show/d3')).text), { id: 'd3', doc: { n: 3 } })
  t.match(await call('GET', 'loop'), { status: 400, text: /Exceeded rewrite recursion limit/ })
  t.match(await call('GET', 'nope'), { status: 404, text: /missing/ })
  t.match(await call('PUT', 'db/made', { body: { a: 1 } }), { status: 201 })
  t.match(await call('POST', 'db/_bulk_docs', { body: { docs: [{ _id: 'bulk' }] } }), {
    status: 201,
    text: /"bulk"/,
  })
  const { _rev: rev } = JSON.parse((await ask('GET', '/db/d1')).text) as { _rev: string }
  const large = 'x'.repeat(3_000_000)
  t.match(
    await call('PUT', `file/f?rev=${rev}`, { body: large, headers: { 'content-type': 'text/plain' } }),
    { status: 201 },
  )
  t.equal((await call('GET', 'file/f')).text, large)
  t.match(
    await ask('PUT', '/db/_design/fn', {
      body: {
        ...DESIGN,
        rewrites: `function (req) {
        if (req.path[4] === "answer") return { code: 402, headers: { "X-Foo": "a" }, body: "pay" }
        if (req.path[4] === "make") return { path: "../../by-fn", method: "PUT", body: JSON.stringify({ from: req.body }) }
        if (req.path[4] === "echo") return "_show/req"
        if (req.path[4] === "out") return "../../../_all_dbs"
        if (req.path[4] === "caller")
          return { path: "_show/req", headers: { Authorization: "Basic eDp5", Cookie: "AuthSession=x", "X-Own": "o" } }
        if (req.path[4] === "throw") throw "no"
        if (req.path[4] === "long") return { path: "_rewrite/long/" + Array(100000).join("x") }
        if (req.path[4] === "query") return { path: "_rewrite/query", query: { q: Array(100000).join("x") } }
        if (req.path[4] === "heads") return { path: "_rewrite/heads", headers: { "X-Own": Array(100000).join("x") } }
      }`,
      },
    }),
    { status: 201 },
  )
  const fn = (method: string, path: string, options: Ask = {}) =>
    ask(method, `/db/_design/fn/_rewrite/${path}`, options)
  t.match(await fn('GET', 'answer'), {
    status: 402,
    text: 'pay',
    headers: { 'x-foo': 'a', 'content-security-policy': 'sandbox' },
  })
  t.match(await fn('POST', 'make', { body: 'hello' }), { status: 201 })
  t.match(JSON.parse((await ask('GET', '/db/by-fn')).text), { from: 'hello' })
  t.match(JSON.parse((await fn('POST', 'echo?a=b', { body: 'x' })).text), {
    method: 'POST',
    body: 'x',
    query: { a: 'b' },
  })
  t.match(JSON.parse((await fn('GET', 'caller')).text), { name: null, headers: new Set(['X-Own']) })
  t.match(await fn('GET', 'out'), { status: 500, text: /insecure_rewrite_rule/ })
  t.match(await fn('GET', 'throw'), { status: 500, text: /rewrite_error/ })
  for (const path of ['long', 'query', 'heads'])
    t.match(await fn('GET', path), { status: 431, text: /header fields are too large/ }, path)
  t.match(await fn('GET', 'nothing'), { status: 404, text: /Invalid path/ })
  t.match(await ask('GET', '/db/_design/none/_rewrite/x'), { status: 404 })
})

t.test('settee/couchapps turns them off', async (t) => {
  const { ask, server } = await apps(t, { rewrites: [] })
  await ask('PUT', '/_node/_local/_config/settee/couchapps', { body: '"false"' })
  await settled(server)
  for (const path of ['_show/text', '_list/rows/all', '_update/set', '_rewrite/x'])
    t.match(await ask('GET', `${APP}/${path}`), { status: 403, text: /settee\/couchapps/ }, path)
  t.match(await ask('GET', `${APP}/_view/all`), { status: 200 })
})

t.test('nano', async (t) => {
  const { server } = await apps(t)
  const db = nano(server.url).use('db')
  t.match(await db.show('app', 'doc', 'd1'), { id: 'd1', doc: { n: 1 } })
  t.match(await db.viewWithList('app', 'all', 'kinds', { format: 'json' } as nano.DocumentViewParams), [
    'a/b',
    'd0',
    'd1',
    'd2',
    'd3',
    'd4',
  ])
  t.match(await db.atomic('app', 'set', 'd4'), { n: 5 })
  t.match(await db.get('d4'), { n: 5, _rev: /^2-/ })
})
