/**
 * Which calls demand a JSON content type; protocol.md 1.3. What a form of a web page can send (POST, with one of three
 * types) must write nothing: a POST without a row below demands JSON, or fails here.
 */
import t from 'tap'
import { startTestServer } from '../helpers/server.ts'
import { connect } from './client.ts'
import { startMemoryServer } from './memory-server.ts'

/** POST calls that look at no type, or at another, and why that is no harm. */
const OTHERS: Readonly<Record<string, string>> = {
  '/_session':
    'takes a login form, as CouchDB; it lets in whoever has the password, and is refused to foreign pages',
  '/_node/:node/_config/_reload': 'as CouchDB; what it takes in is what local.ini says',
  '/_config/_reload': 'the same',
  '/_node': 'answers 400',
  '/_node/:node/*': 'answers 404',
  '/:db/_view_cleanup': 'as CouchDB; it changes nothing',
  '/:db/_all_docs/queries': 'as CouchDB; it reads',
  '/:db/_design_docs/queries': 'as CouchDB; it reads',
  '/:db/_local_docs/queries': 'as CouchDB; it reads',
  '/:db/_temp_view': 'answers 410',
  '/:db/:docid': 'a form upload, which demands a form and a Referer of this host',
  '/:db/_design/:ddoc': 'the same',
  '/:db/_local/:local': 'the same',
  '/:db/_local/:local/*': 'answers 400',
  '/:db/_design/:ddoc/_*': 'answers 404',
}

/** The column of protocol.md 1.3 of calls that demand it, as far as they are there. */
const DEMANDED = [
  '/:db',
  '/:db/_bulk_docs',
  '/:db/_bulk_get',
  '/:db/_purge',
  '/:db/_all_docs',
  '/:db/_design_docs',
  '/:db/_local_docs',
  '/:db/_changes',
  '/:db/_find',
  '/:db/_explain',
  '/:db/_revs_diff',
  '/:db/_missing_revs',
  '/:db/_ensure_full_commit',
  '/:db/_compact',
  '/:db/_design/:ddoc/_view/:view',
  '/:db/_design/:ddoc/_view/:view/queries',
  '/_dbs_info',
]

const FORMS = [
  'text/plain',
  'application/x-www-form-urlencoded',
  'multipart/form-data; boundary=x',
  undefined,
]

t.test('every POST demands JSON, or is known not to', async (t) => {
  const { app } = await startMemoryServer(t)
  const posts = app.paths.filter(({ methods }) => methods.POST !== undefined)
  const demanding = posts.filter(({ methods }) => methods.POST?.json === true).map(({ url }) => url)
  const others = posts.map(({ url }) => url).filter((url) => !demanding.includes(url))
  t.strictSame(
    others.filter((url) => !Object.hasOwn(OTHERS, url)),
    [],
    'a call that a form could make',
  )
  for (const url of DEMANDED) t.ok(demanding.includes(url), url)
})

t.test('what a form can send changes nothing', async (t) => {
  const call = connect(t, await startTestServer(t))
  await call('PUT', '/db')
  await call('PUT', '/db/doc', { body: '{}' })
  const before = (await call('GET', '/db')).text
  const { app } = await startMemoryServer(t)
  const names: Readonly<Record<string, string>> = {
    node: '_local',
    docid: 'doc',
    ddoc: 'd',
    local: 'l',
    view: 'v',
  }
  for (const { url, methods } of app.paths) {
    if (methods.POST === undefined) continue
    const path = url.replace(/:(\w+)/g, (_, name: string) => names[name] ?? name).replace('*', 'x')
    for (const type of FORMS) {
      const headers = type === undefined ? {} : { 'content-type': type }
      const { status } = await call('POST', path, { body: '{"_id":"by-form","docs":[{"a":1}]}', headers })
      if (methods.POST.json) t.equal(status, 415, `${path} ${type}`)
    }
  }
  t.equal((await call('GET', '/db')).text, before)
})
