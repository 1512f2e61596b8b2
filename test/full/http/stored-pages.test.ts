/**
 * Every route of the table, opened in a browser by a server admin who is signed in. Whoever may write to a database has stored
 * pages in it wherever text can be stored. None of them runs a script or writes anything.
 */

import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { BrowserContext, Page } from 'playwright-core'
import t, { type Test } from 'tap'
import { launchBrowser, PATIENCE } from '../../helpers/browser.ts'
import { startTestServer, type TestServer, temporaryFolder } from '../../helpers/server.ts'
import { startMemoryServer } from '../../http/memory-server.ts'

t.setTimeout(600_000)

const ADMIN = { name: 'root', password: 'secret' }
const AUTH = `${ADMIN.name}:${ADMIN.password}`
/** An admin of the database, and of nothing else. */
const MALLORY = { name: 'mallory', password: 'mallory' }
/** What the scripts of a stored page say when they run. */
const RAN = 'a stored script ran'

/** Makes an admin, and says so. The quotes may stand in JSON and in attributes. */
const SCRIPT = `console.log('${RAN}');fetch('/_node/_local/_config/admins/evil',{method:'PUT',body:'&quot;evil&quot;'.replace(/&quot;/g,String.fromCharCode(34))})`
const HTML = [
  `<script>${SCRIPT}</script>`,
  `<script src='/db/files/script.js'></script>`,
  `<script type=module src='/db/_design/app/_show/script'></script>`,
  `<img src=x: onerror=${JSON.stringify(SCRIPT)}>`,
  `<svg onload=${JSON.stringify(SCRIPT)}></svg>`,
  `<iframe src='/db/files/page.html'></iframe>`,
  `<iframe srcdoc=${JSON.stringify(`<script>${SCRIPT}</script>`)}></iframe>`,
  `<iframe src=${JSON.stringify(`javascript:${SCRIPT}`)}></iframe>`,
  `<object data='/db/files/image.svg'></object><embed src='/db/files/image.svg'>`,
  `<meta http-equiv=refresh content='0;url=/db/_design/app/_rewrite/delete'>`,
  `<link rel=stylesheet href='/db/files/style.css'><link rel=preload as=fetch href='/db/_design/app/_rewrite/delete'>`,
  `<form action='/db/_design/app/_update/save' method=post><input autofocus onfocus=${JSON.stringify(SCRIPT)}></form>`,
].join('\n')
const XHTML = `<html xmlns="http://www.w3.org/1999/xhtml"><script>${xml(SCRIPT)}</script></html>`
const SVG = `<svg xmlns="http://www.w3.org/2000/svg" onload="${xml(SCRIPT)}"><script>${xml(SCRIPT)}</script><foreignObject>${XHTML}</foreignObject></svg>`
const STYLED = `<?xml version="1.0"?><?xml-stylesheet type="text/xsl" href="/db/files/style.xsl"?><a/>`
const XSL = `<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform"><xsl:template match="/">${XHTML}</xsl:template></xsl:stylesheet>`
const MIXED = `--b\r\nContent-Type: text/html\r\n\r\n<script>${SCRIPT}</script>\r\n--b--`

function xml(text: string): string {
  return text.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/"/g, '&quot;')
}

const FILES: Readonly<Record<string, readonly [type: string, body: string]>> = {
  'page.html': ['text/html', HTML],
  'page.html;charset': ['Text/HTML; charset=utf-7', HTML],
  'page.xhtml': ['application/xhtml+xml', XHTML],
  'image.svg': ['image/svg+xml', SVG],
  'styled.xml': ['text/xml', STYLED],
  'styled.rss': ['application/rss+xml', STYLED],
  'style.xsl': ['text/xsl', XSL],
  mixed: ['multipart/x-mixed-replace; boundary=b', MIXED],
  'mail.mhtml': ['multipart/related; boundary=b', MIXED],
  unknown: ['x/y', HTML],
  invalid: ['é<', HTML],
  'text.txt': ['text/plain', HTML],
  'form.pdf': ['application/pdf', `%PDF-1.4\n1 0 obj<</OpenAction<</S/JavaScript/JS(app.alert(1))>>>>endobj`],
  'script.js': ['text/javascript', SCRIPT],
  'style.css': ['text/css', `body { background: url('/db/_design/app/_rewrite/delete') }`],
}

const answers = (headers: string) => `{ headers: ${headers}, json: ${JSON.stringify(HTML)} }`
const TYPES = [
  '{ "Content-Type": "text/html" }',
  '{ "content-TYPE": "text/html", "Content-Security-Policy": "sandbox allow-scripts allow-same-origin" }',
  '{ "Content-Type": "image/svg+xml" }',
  '{ "Refresh": "0; url=/db/_design/app/_rewrite/delete", "Content-Type": "text/html" }',
  '{ "Link": "</db/_design/app/_rewrite/delete>; rel=preload; as=fetch", "Content-Type": "text/html" }',
] as const
/** Addresses and methods that a rewrite leads to. */
const WRITES = [
  ['delete', 'DELETE', '../../', ''],
  ['security', 'PUT', '../../_security', '{}'],
  ['document', 'PUT', '../../made', '{}'],
  ['bulk', 'POST', '../../_bulk_docs', '{"docs":[{}]}'],
  ['copy', 'COPY', '../../doc', ''],
  ['update', 'POST', '_update/save', ''],
  ['config', 'PUT', '../../../_node/_local/_config/admins/evil', '"evil"'],
] as const

const DESIGN = {
  [HTML]: HTML,
  views: {
    pages: {
      map: `function (doc) { emit(${JSON.stringify(HTML)}, ${JSON.stringify(HTML)}) }`,
      reduce: '_count',
    },
  },
  shows: {
    ...Object.fromEntries(TYPES.map((type, at) => [`typed${at}`, `function () { return ${answers(type)} }`])),
    body: `function () { return ${JSON.stringify(HTML)} }`,
    base64: `function () { return { base64: ${JSON.stringify(Buffer.from(HTML).toString('base64'))}, headers: ${TYPES[0]} } }`,
    script: `function () { return { body: ${JSON.stringify(SCRIPT)}, headers: { "Content-Type": "text/javascript" } } }`,
    redirect: `function () { return { code: 302, headers: { Location: ${JSON.stringify(`javascript:${SCRIPT}`)} }, body: "" } }`,
    thrown: `function () { throw ["error", ${JSON.stringify(HTML)}, ${JSON.stringify(HTML)}] }`,
  },
  lists: {
    pages: `function () { start({ headers: ${TYPES[1]} }); while (getRow()) send(${JSON.stringify(HTML)}) }`,
  },
  updates: { save: `function (doc, req) { return [{ _id: req.uuid }, ${answers(TYPES[0])}] }` },
  rewrites: `function (req) {
    var writes = ${JSON.stringify(WRITES)}, name = req.path[4]
    for (var i = 0; i < writes.length; i++)
      if (writes[i][0] === name)
        return { method: writes[i][1], path: writes[i][2], body: writes[i][3], headers: { "Content-Type": "application/json", Prefer: "return=minimal" } }
    if (name === "answer") return { code: 200, headers: ${TYPES[1]}, body: ${JSON.stringify(HTML)} }
    return { path: req.path.slice(4).join("/"), headers: { Prefer: "return=minimal" } }
  }`,
}

/** An id that is a page, too. */
const PAGE_ID = encodeURIComponent(`<script>${SCRIPT}</script>`)

/** For each path of the route table that has a GET: the addresses whose answers carry most of what a user stored. */
const ADDRESSES: Readonly<Record<string, readonly string[]>> = {
  '/': ['/', `/?${PAGE_ID}`],
  '/_active_tasks': ['/_active_tasks'],
  '/_all_dbs': ['/_all_dbs'],
  '/_cluster_setup': ['/_cluster_setup'],
  '/_config': ['/_config'],
  '/_config/:section': ['/_config/pages'],
  '/_config/:section/:key': ['/_config/pages/page'],
  '/_db_updates': ['/_db_updates'],
  '/_dbs_info': ['/_dbs_info'],
  '/_membership': ['/_membership'],
  '/_node': ['/_node'],
  '/_node/:node/*': [`/_node/_local/${PAGE_ID}`],
  '/_node/:node': [`/_node/_local`, `/_node/${PAGE_ID}`],
  '/_node/:node/_config': ['/_node/_local/_config'],
  '/_node/:node/_config/:section': ['/_node/_local/_config/pages'],
  '/_node/:node/_config/:section/:key': ['/_node/_local/_config/pages/page'],
  '/_node/:node/_prometheus': ['/_node/_local/_prometheus'],
  '/_node/:node/_stats': ['/_node/_local/_stats'],
  '/_node/:node/_stats/*': [`/_node/_local/_stats/${PAGE_ID}`],
  '/_node/:node/_system': ['/_node/_local/_system'],
  '/_scheduler/docs': ['/_scheduler/docs'],
  '/_scheduler/docs/*': [`/_scheduler/docs/_replicator/${PAGE_ID}`],
  '/_scheduler/jobs': ['/_scheduler/jobs'],
  '/_scheduler/jobs/:id': [`/_scheduler/jobs/${PAGE_ID}`],
  '/_session': ['/_session', `/_session?next=${PAGE_ID}`],
  '/_settee/account': ['/_settee/account'],
  '/_settee/accounts': ['/_settee/accounts'],
  '/_settee/accounts/:name': ['/_settee/accounts/mallory', `/_settee/accounts/${PAGE_ID}`],
  '/_settee/alarms': ['/_settee/alarms'],
  '/_settee/backups': ['/_settee/backups'],
  '/_settee/backups/:id': [`/_settee/backups/${PAGE_ID}`],
  '/_settee/check': ['/_settee/check'],
  '/_settee/client': ['/_settee/client'],
  '/_settee/configuration': ['/_settee/configuration'],
  '/_settee/databases': ['/_settee/databases'],
  '/_settee/databases/:db': ['/_settee/databases/db'],
  '/_settee/databases/:db/alarms': ['/_settee/databases/db/alarms'],
  '/_settee/databases/:db/conflicts': ['/_settee/databases/db/conflicts'],
  '/_settee/databases/:db/growth': ['/_settee/databases/db/growth'],
  '/_settee/databases/:db/history': ['/_settee/databases/db/history'],
  '/_settee/databases/:db/indexes': ['/_settee/databases/db/indexes'],
  '/_settee/databases/:db/size': ['/_settee/databases/db/size'],
  '/_settee/databases/:db/version': [`/_settee/databases/db/version?id=doc&rev={rev}&attachments=true`],
  '/_settee/log': ['/_settee/log'],
  '/_settee/moves': ['/_settee/moves'],
  '/_settee/moves/:id': [`/_settee/moves/${PAGE_ID}`],
  '/_settee/moves/:id/databases': [`/_settee/moves/${PAGE_ID}/databases`],
  '/_settee/owners/:name': [`/_settee/owners/mallory`],
  '/_settee/samples': ['/_settee/samples'],
  '/_settee/standby': ['/_settee/standby'],
  '/_settee/standby/settings': ['/_settee/standby/settings'],
  '/_settee/standby/tokens': ['/_settee/standby/tokens'],
  '/_settee/tokens': ['/_settee/tokens?account=mallory'],
  '/_up': ['/_up?deep=1'],
  '/_utils': ['/_utils/'],
  '/_utils/*': ['/_utils/index.html', `/_utils/${PAGE_ID}`],
  '/_uuids': ['/_uuids', `/_uuids?count=${PAGE_ID}`],
  '/:db': ['/db', `/${PAGE_ID}`],
  '/:db/_all_docs': ['/db/_all_docs?include_docs=true&attachments=true', `/db/_all_docs?limit=${PAGE_ID}`],
  '/:db/_design_docs': ['/db/_design_docs?include_docs=true'],
  '/:db/_local_docs': ['/db/_local_docs?include_docs=true'],
  '/:db/_changes': [
    '/db/_changes?include_docs=true&attachments=true',
    '/db/_changes?feed=eventsource&include_docs=true&timeout=1',
    '/db/_changes?feed=continuous&include_docs=true&timeout=1',
    '/db/_changes?callback=alert',
  ],
  '/:db/_index': ['/db/_index'],
  '/:db/_purged_infos': ['/db/_purged_infos'],
  '/:db/_purged_infos_limit': ['/db/_purged_infos_limit'],
  '/:db/_revs_limit': ['/db/_revs_limit'],
  '/:db/_security': ['/db/_security'],
  '/:db/_partition': ['/db/_partition'],
  '/:db/:docid': [
    '/db/doc',
    '/db/doc?attachments=true',
    '/db/doc?open_revs=all&attachments=true',
    '/db/doc?callback=alert',
    `/db/doc?rev=${PAGE_ID}`,
    `/db/${PAGE_ID}`,
    '/db/files?attachments=true',
  ],
  '/:db/:docid/*': [
    ...Object.keys(FILES).map((name) => `/db/files/${encodeURIComponent(name)}`),
    '/db/files/page.html?callback=alert',
    `/db/files/${PAGE_ID}`,
  ],
  '/:db/_local/:local': ['/db/_local/page'],
  '/:db/_local/:local/*': [`/db/_local/page/${PAGE_ID}`],
  '/:db/_design/:ddoc': ['/db/_design/app', '/db/_design/app?attachments=true'],
  '/:db/_design/:ddoc/*': ['/db/_design/app/page.html'],
  '/:db/_design/:ddoc/_*': [`/db/_design/app/_${PAGE_ID}`],
  '/:db/_design/:ddoc/_info': ['/db/_design/app/_info'],
  '/:db/_design/:ddoc/_view/:view': [
    '/db/_design/app/_view/pages?reduce=false&include_docs=true',
    '/db/_design/app/_view/pages?group=true',
  ],
  '/:db/_design/:ddoc/_show': ['/db/_design/app/_show'],
  '/:db/_design/:ddoc/_show/:fn': Object.keys(DESIGN.shows).map((name) => `/db/_design/app/_show/${name}`),
  '/:db/_design/:ddoc/_show/:fn/*': [
    '/db/_design/app/_show/typed0/doc',
    `/db/_design/app/_show/thrown/${PAGE_ID}`,
  ],
  '/:db/_design/:ddoc/_list': ['/db/_design/app/_list'],
  '/:db/_design/:ddoc/_list/:fn': ['/db/_design/app/_list/pages'],
  '/:db/_design/:ddoc/_list/:fn/:view': ['/db/_design/app/_list/pages/pages?reduce=false'],
  '/:db/_design/:ddoc/_list/:fn/:other/:view': ['/db/_design/app/_list/pages/app/pages?reduce=false'],
  '/:db/_design/:ddoc/_list/:fn/:other/:view/*': [`/db/_design/app/_list/pages/app/pages/${PAGE_ID}`],
  '/:db/_design/:ddoc/_update': ['/db/_design/app/_update'],
  '/:db/_design/:ddoc/_update/:fn': ['/db/_design/app/_update/save'],
  '/:db/_design/:ddoc/_update/:fn/*': ['/db/_design/app/_update/save/doc'],
  '/:db/_design/:ddoc/_rewrite': ['/db/_design/app/_rewrite'],
  '/:db/_design/:ddoc/_rewrite/*': [
    ...WRITES.map(([name]) => `/db/_design/app/_rewrite/${name}`),
    '/db/_design/app/_rewrite/answer',
    '/db/_design/app/_rewrite/..%2F..%2Ffiles%2Fpage.html',
    '/db/_design/app/_rewrite/_show%2Ftyped0',
    '/db/_design/app/_rewrite/_list%2Fpages%2Fpages',
    '/db/_design/app/_rewrite/..%2F..%2F..%2F_utils%2F',
  ],
  '/:db/_partition/:partition/*': [`/db/_partition/x/${PAGE_ID}`],
  '/:db/_partition/:partition/_design/:ddoc/_info': ['/db/_partition/x/_design/app/_info'],
  '/:db/_partition/:partition': [`/db/_partition/${PAGE_ID}`],
  '/:db/_partition/:partition/_all_docs': ['/db/_partition/x/_all_docs'],
  '/:db/_partition/:partition/_design/:ddoc/_view/:view': ['/db/_partition/x/_design/app/_view/pages'],
}

async function must(server: TestServer, method: string, path: string, body?: unknown, options = {}) {
  const answer = await server.request(method, path, { auth: AUTH, body, ...options })
  if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${answer.text}`)
  return answer
}

/** A server with pages wherever a database's admin can store them. Only what a server admin must do is done by one. */
async function hostileServer(t: Test): Promise<{ server: TestServer; rev: string }> {
  const dataDir = await temporaryFolder(t)
  const settings = '[chttpd_auth]\niterations = 10\n[chttpd]\nsecure_rewrites = false\nallow_jsonp = true\n'
  await writeFile(join(dataDir, 'local.ini'), `[admins]\n${ADMIN.name} = ${ADMIN.password}\n${settings}`)
  const server = await startTestServer(t, { dataDir })
  await must(server, 'PUT', '/_users/org.couchdb.user:mallory', { ...MALLORY, type: 'user', roles: [] })
  await must(server, 'PUT', '/db')
  await must(server, 'PUT', '/db/_security', { admins: { names: ['mallory'] }, pages: HTML })
  await must(server, 'PUT', '/_node/_local/_config/pages/page', JSON.stringify(HTML.replaceAll('\n', ' ')))
  const asMallory = { auth: 'mallory:mallory' }
  const { json } = await must(server, 'PUT', '/db/doc', { page: HTML, [HTML]: [HTML] }, asMallory)
  await must(server, 'PUT', `/db/${PAGE_ID}`, { page: HTML }, asMallory)
  await must(server, 'PUT', '/db/_local/page', { page: HTML }, asMallory)
  await must(server, 'PUT', '/db/_design/app', DESIGN, asMallory)
  await must(server, 'POST', '/db/_index', { index: { fields: [HTML] }, name: HTML }, asMallory)
  const put = async (path: string, type: string, body: string) => {
    const at = await server.request('HEAD', path, asMallory)
    const rev = String(at.headers.etag ?? '').replaceAll('"', '')
    return (name: string) =>
      must(server, 'PUT', `${path}/${encodeURIComponent(name)}${rev === '' ? '' : `?rev=${rev}`}`, body, {
        ...asMallory,
        headers: { 'content-type': type },
      })
  }
  for (const [name, [type, body]] of Object.entries(FILES)) await (await put('/db/files', type, body))(name)
  await (await put('/db/_design/app', 'text/html', HTML))('page.html')
  return { server, rev: (json as { rev: string }).rev }
}

/** All that a page could have changed. */
async function stateOf(server: TestServer): Promise<unknown> {
  const paths = [
    '/_all_dbs',
    '/_node/_local/_config',
    '/_settee/tokens?account=root',
    '/_users/_all_docs?include_docs=true',
    '/db/_changes?include_docs=true',
    '/db/_local_docs?include_docs=true',
    '/db/_security',
    '/db/_revs_limit',
    '/db/_purged_infos',
  ]
  return Promise.all(paths.map(async (path) => (await must(server, 'GET', path)).json))
}

/** A browser in which the server admin is signed in. */
async function signedIn(t: Test, server: TestServer): Promise<BrowserContext> {
  const browser = await launchBrowser(t)
  const context = await browser.newContext()
  context.setDefaultTimeout(PATIENCE)
  const login = await server.request('POST', '/_session', { body: ADMIN })
  const [pair = ''] = String(login.headers['set-cookie']).split(';')
  const at = pair.indexOf('=')
  const cookie = { name: pair.slice(0, at), value: pair.slice(at + 1), url: server.url }
  await context.addCookies([{ ...cookie, httpOnly: true, sameSite: 'Lax' }])
  return context
}

/** Frames and pictures have been loaded, and their events were sent. A header may lead to another page. */
async function settled(page: Page): Promise<void> {
  try {
    await page.evaluate('1')
  } catch (error) {
    if (!/context was destroyed/.test(String(error))) throw error
    await page.waitForLoadState()
    return settled(page)
  }
}

/**
 * Opens an address as a link does.
 * @returns the status, or null if the browser only saves the answer; whether a stored script ran
 */
async function open(
  context: BrowserContext,
  address: string,
): Promise<{ status: number | null; ran: boolean }> {
  const page = await context.newPage()
  let ran = false
  page.on('console', (message) => {
    ran ||= message.text().includes(RAN)
  })
  page.on('dialog', (dialog) => {
    ran = true
    void dialog.dismiss()
  })
  try {
    const answer = await page.goto(address)
    await settled(page)
    return { status: answer?.status() ?? null, ran }
  } catch (error) {
    if (/Download is starting|ERR_ABORTED|ERR_UNSAFE_REDIRECT|ERR_INVALID_RESPONSE/.test(String(error)))
      return { status: null, ran }
    throw error
  } finally {
    await page.close()
  }
}

t.test('no stored page runs, and no link writes', async (t) => {
  const { app } = await startMemoryServer(t)
  const routes = app.paths.filter(({ methods }) => methods.GET !== undefined).map(({ url }) => url)
  t.strictSame(Object.keys(ADDRESSES).sort(), [...new Set(routes)].sort(), 'each route has its addresses')
  const { server, rev } = await hostileServer(t)
  const context = await signedIn(t, server)
  const before = await stateOf(server)
  for (const [route, addresses] of Object.entries(ADDRESSES)) {
    for (const address of addresses) {
      const { ran } = await open(context, server.url + address.replace('{rev}', rev))
      t.notOk(ran, `${route}: ${address.slice(0, 100)}`)
    }
  }
  t.strictSame(await stateOf(server), before, 'nothing was written')

  await t.test('but without the policy they would', async (t) => {
    for (const kind of ['attachments', 'showlist'])
      await must(server, 'PUT', `/_node/_local/_config/csp/${kind}_enable`, '"false"')
    // The first one keeps the policy of the pages that it has.
    const other = await signedIn(t, server)
    for (const address of [
      '/db/files/page.html',
      '/db/files/image.svg',
      '/db/files/page.xhtml',
      '/db/files/styled.xml',
      '/db/_design/app/_show/typed0',
      '/db/_design/app/_list/pages/pages?reduce=false',
      '/db/_design/app/_rewrite/answer',
    ])
      t.ok((await open(other, server.url + address)).ran, address)
    t.not(JSON.stringify(await stateOf(server)), JSON.stringify(before))
  })
})
