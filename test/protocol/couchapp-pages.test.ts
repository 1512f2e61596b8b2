/** What a hostile design document cannot do to the person who follows a link to it. */
import t, { type Test } from 'tap'
import { request } from 'undici'
import { settled, startTestServer } from '../helpers/server.ts'

interface Ask {
  readonly body?: string
  readonly headers?: Readonly<Record<string, string>>
}

const APP = '/db/_design/app'

/** A server with a database `db` of two documents and `_design/app`, and calls to it. */
async function apps(t: Test, design: object) {
  const server = await startTestServer(t)
  const ask = async (method: string, path: string, { body, headers = {} }: Ask = {}) => {
    const answer = await request(server.url + path, {
      method: method as 'GET',
      headers: { ...(body !== undefined && { 'content-type': 'application/json' }), ...headers },
      body: body ?? null,
    })
    return { status: answer.statusCode, headers: answer.headers, text: await answer.body.text() }
  }
  await ask('PUT', '/db')
  for (const id of ['d1', 'd2']) await ask('PUT', `/db/${id}`, { body: '{"n":1}' })
  await ask('PUT', APP, { body: JSON.stringify(design) })
  return { server, ask }
}

t.test('no function makes a page of the origin', async (t) => {
  const PAGE = '{ "Content-Type": "text/html", "content-security-policy": "script-src *" }'
  const OUT = `{ "X-Content-Type-Options": "sniff", "Set-Cookie": "AuthSession=x", "Clear-Site-Data": "*" }`
  const answer = `{ json: "<script>", headers: ${PAGE} }`
  const { ask, server } = await apps(t, {
    views: { all: { map: 'function (doc) { emit(doc._id, doc.n) }' } },
    shows: {
      json: `function () { return ${answer} }`,
      body: `function () { return { body: "<script>", headers: ${PAGE} } }`,
      bytes: `function () { return { base64: "PHNjcmlwdD4=", headers: ${PAGE} } }`,
      none: `function () { return { headers: ${PAGE} } }`,
      out: `function () { return { body: "<script>", headers: ${OUT} } }`,
      sent: `function () { start(${PAGE}); send("<script>") }`,
      provided: `function () { provides("html", function () { return ${answer} }) }`,
      thrown: 'function () { throw ["error", "<script>", "<script>"] }',
      code: `function () { return { code: 302, headers: { Location: "javascript:alert(1)" }, body: "<script>" } }`,
    },
    lists: {
      json: `function () { start({ headers: { "Content-Type": "application/json", "X-A": "b" } }); send("<script>"); getRow() }`,
      page: `function () { start({ headers: ${PAGE} }); send("<script>"); while (getRow()); return "<script>" }`,
      out: `function () { start({ headers: ${OUT} }); return "<script>" }`,
    },
    updates: {
      json: `function () { return [null, ${answer}] }`,
      saved: `function (doc, req) { return [{ _id: req.uuid }, ${answer}] }`,
    },
    rewrites: `function (req) {
      var to = req.path.slice(4).join("/")
      if (to === "answer") return { code: 200, headers: ${PAGE}, body: "<script>" }
      if (to === "typed") return { code: 200, headers: { "Content-Type": "application/json" }, body: "<script>" }
      return { path: to, headers: { Prefer: "return=minimal", Accept: "*/*", "X-HTTP-Method-Override": "DELETE" } }
    }`,
  })
  await ask('PUT', '/_node/_local/_config/chttpd/secure_rewrites', { body: '"false"' })
  await ask('PUT', '/_node/_local/_config/chttpd/allow_jsonp', { body: '"true"' })
  await settled(server)
  await ask('PUT', '/db/att/page.html', { body: '<script>', headers: { 'content-type': 'text/html' } })
  const paths: (readonly [method: string, path: string])[] = [
    ...['json', 'body', 'bytes', 'none', 'out', 'sent', 'provided', 'thrown', 'code'].map(
      (name) => ['GET', `_show/${name}`] as const,
    ),
    ...['json', 'page', 'out'].map((name) => ['GET', `_list/${name}/all`] as const),
    ...['json', 'saved'].map((name) => ['POST', `_update/${name}`] as const),
    ...['answer', 'typed', '../../att/page.html', '_show/json', '_list/page/all'].map(
      (to) => ['GET', `_rewrite/${encodeURIComponent(to)}`] as const,
    ),
  ]
  for (const [method, path] of paths) {
    for (const headers of [{}, { prefer: 'return=minimal' }]) {
      for (const query of ['', '?callback=f']) {
        const { headers: got } = await ask(method, `${APP}/${path}${query}`, { headers })
        t.match(got, { 'content-security-policy': /^sandbox$/, 'x-content-type-options': /^nosniff$/ }, path)
        for (const name of ['set-cookie', 'clear-site-data']) t.notOk(name in got, `${path} ${name}`)
      }
    }
  }
  const console = encodeURIComponent('../../../_utils/')
  t.match(
    await ask('GET', `${APP}/_rewrite/${console}`),
    { status: 404, text: /_utils/ },
    'the console is nowhere but below /_utils: it would load scripts of the design document',
  )
  await ask('PUT', '/_node/_local/_config/csp/showlist_header_value', { body: '"sandbox allow-scripts"' })
  await settled(server)
  for (const path of ['_show/json', '_list/page/all', '_rewrite/answer'])
    t.match((await ask('GET', `${APP}/${path}`)).headers, {
      'content-security-policy': 'sandbox allow-scripts',
    })
  const { headers: page } = await ask('GET', `${APP}/_rewrite/${encodeURIComponent('../../att/page.html')}`)
  t.equal(page['content-security-policy'], 'sandbox', 'an attachment has its own policy')
})

t.test('a link writes nothing', async (t) => {
  const { ask } = await apps(t, {
    updates: { set: 'function (doc) { doc.n += 1; return [doc, "set"] }' },
    rewrites: `function (req) {
      return { path: req.query.path, method: req.query.method, query: {}, body: req.query.body, headers: JSON.parse(req.query.headers || "{}") }
    }`,
  })
  const { text: before } = await ask('GET', '/db/_changes')
  const targets = [
    ['DELETE', '../../', ''],
    ['PUT', '../../made', '{}'],
    ['POST', '../../', '{}'],
    ['POST', '../../_bulk_docs', '{"docs":[{"_id":"made"}]}'],
    ['POST', '../../_purge', '{"d1":["1-abc"]}'],
    ['PUT', '../../_security', '{}'],
    ['COPY', '../../d1', ''],
    ['PATCH', '../../d1', ''],
    ['TRACE', '../../d1', ''],
    ['POST', '_update/set/d1', ''],
    ['PUT', '_update/set/d1', ''],
  ] as const
  for (const [to, path, body] of targets) {
    const query = new URLSearchParams({
      method: to,
      path,
      body,
      headers: '{"Content-Type":"application/json"}',
    })
    const nested = new URLSearchParams({ method: 'GET', path: `_rewrite/x?${query}`, body: '' })
    for (const method of ['GET', 'HEAD']) {
      const what = `${method} to ${to} ${path}`
      t.equal((await ask(method, `${APP}/_rewrite/x?${query}`)).status, 403, what)
      await ask(method, `${APP}/_rewrite/x?${nested}`)
    }
    const overridden = { 'x-http-method-override': 'GET' }
    t.equal((await ask('POST', `${APP}/_rewrite/x?${query}`, { headers: overridden })).status, 403)
  }
  for (const headers of [{ 'x-http-method-override': 'PUT' }, { 'x-http-method': 'PUT' }])
    for (const query of ['', '?_method=PUT', '?method=PUT', '?callback=f'])
      t.equal((await ask('GET', `${APP}/_update/set/d1${query}`, { headers })).status, 405)
  const asGet = {
    method: 'GET',
    path: '_update/set/d1',
    body: '',
    headers: '{"X-HTTP-Method-Override":"PUT"}',
  }
  t.equal((await ask('GET', `${APP}/_rewrite/x?${new URLSearchParams(asGet)}`)).status, 405)
  t.same((await ask('GET', '/db/_changes')).text, before)
  const query = new URLSearchParams({ method: 'PUT', path: '../../made', body: '{}' })
  t.equal((await ask('POST', `${APP}/_rewrite/x?${query}`)).status, 201, 'a POST may become a PUT')
  const foreign = { origin: 'https://attacker.example', 'content-type': 'text/plain' }
  for (const headers of ['{}', '{"Origin":"","Host":"attacker.example"}']) {
    const forged = new URLSearchParams({ method: 'PUT', path: '../../forged', body: '{}', headers })
    t.equal((await ask('POST', `${APP}/_rewrite/x?${forged}`, { headers: foreign })).status, 403)
  }
})
