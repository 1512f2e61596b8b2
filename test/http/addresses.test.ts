/** Addresses of requests: their forms, rewriting, method overrides, and hostile names. */

import { readdir } from 'node:fs/promises'
import type { IncomingMessage } from 'node:http'
import { join } from 'node:path'
import t from 'tap'
import { rewriteUrl } from '../../src/app.ts'
import { sharedTestServer, startTestServer, temporaryFolder } from '../helpers/server.ts'
import { type Ask, connect } from './client.ts'

/** Protocol.md 1.5, 2.1, 2.2, 17, 19.8. */
t.test('addresses', async (t) => {
  const start = sharedTestServer(t)
  t.test('slashes and spaces', async (t) => {
    const call = connect(t, await start())
    for (const name of ['db', 'a%2Fb', 'plus%2Bdb'])
      t.equal((await call('PUT', `/${name}`)).status, 201, name)
    for (const id of ['doc', 'x%2Fy', 'a%20b', 'a%2Bb']) {
      t.equal((await call('PUT', `/db/${id}`, { body: JSON.stringify({ id }) })).status, 201, id)
    }
    await call('PUT', '/db/_design/d', { body: '{"d":1}' })
    await call('PUT', '/db/_local/l', { body: '{"l":1}' })
    await call('PUT', '/db/_design/a%2Fb', { body: '{"d":2}' })
    const same: [one: string, expected: object][] = [
      ['/db/', { db_name: 'db' }],
      ['//db//', { db_name: 'db' }],
      ['/a%2Fb', { db_name: 'a/b' }],
      ['/a%2fb/', { db_name: 'a/b' }],
      ['/plus%2Bdb', { db_name: 'plus+db' }],
      ['/db/doc/', { id: 'doc' }],
      ['/db//doc', { id: 'doc' }],
      ['/db/x%2Fy', { _id: 'x/y' }],
      ['/db/a+b', { _id: 'a b' }],
      ['/db/a%20b', { _id: 'a b' }],
      ['/db/a%2Bb', { _id: 'a+b' }],
      ['/db/%64oc', { _id: 'doc' }],
      ['/db/_design/d', { _id: '_design/d' }],
      ['/db/_design%2Fd', { _id: '_design/d' }],
      ['/db/_design/d/', { _id: '_design/d' }],
      ['/db/_design/a%2Fb', { _id: '_design/a/b' }],
      ['/db/_local/l', { _id: '_local/l' }],
      ['/db/_local%2Fl', { _id: '_local/l' }],
      ['/db/_all_docs/', { total_rows: 6 }],
      ['/_all_dbs/', ['_users', 'a/b', 'db', 'plus+db']],
    ]
    for (const [path, expected] of same)
      t.match(await call('GET', path), { status: 200, json: expected }, path)
    t.match(await call('GET', '/a/b'), { status: 404, json: { reason: 'Database does not exist.' } })
    t.equal((await call('GET', '/plus+db')).status, 404, 'a space, which no name holds')
    const put = await call('PUT', '/a%2Fb/x%2Fy', { body: '{}' })
    t.match(put.headers.location, /\/a%2Fb\/x%2Fy$/)
  })

  t.test('addresses without a resource', async (t) => {
    const call = connect(t, await start())
    await call('PUT', '/db')
    await call('PUT', '/db/_design/d', { body: '{}' })
    const missing = [
      '/_all_dbs/x',
      '/_up/x',
      '/_uuids/x/y',
      '/_db_updates/x',
      '/_node/_local/x',
      '/_node/_local/x/y',
    ]
    const inside = [
      '/_node/_local/_config/a/b/c',
      '/db/_nothing',
      '/db/_design/d/_nothing',
      '/db/_design/d/_x/y',
    ]
    const deeper = ['/db/_all_docs/x', '/db/_changes/x', '/db/none/att', '/db/_design/none/att']
    for (const path of [...missing, ...inside, ...deeper]) {
      for (const method of ['GET', 'HEAD'])
        t.equal((await call(method, path)).status, 404, `${method} ${path}`)
      const { json } = await call('GET', path)
      t.match(json, { error: 'not_found', reason: /^missing$|^Document is missing attachment$/ }, path)
    }
    for (const path of ['/_nothing', '/_nothing/x', '/Upper', '/n%C3%A9', '/_stats', '/_log']) {
      t.match(await call('GET', path), { status: 404, json: { reason: 'Database does not exist.' } }, path)
    }
    t.match(await call('GET', '/_node'), {
      status: 400,
      json: { reason: 'Incomplete path to _node request' },
    })
    for (const path of ['/db/%zz', '/%', '/db?x=%zz', '/db/%ff']) {
      const { status, json } = await call('GET', path)
      t.strictSame([status, json], [400, { error: 'bad_request', reason: 'invalid_url_encoding' }], path)
    }
  })

  t.test('an address that is too long', async (t) => {
    const call = connect(t, await start())
    await call('PUT', '/db')
    t.equal((await call('GET', `/db?x=${'y'.repeat(20_000)}`)).status, 200, 'there is no limit by default')
    await call('PUT', '/_node/_local/_config/chttpd/max_uri_length', { body: '"1024"' })
    t.equal((await call('GET', `/db?x=${'y'.repeat(1018)}`)).status, 200)
    for (const path of [`/db?x=${'y'.repeat(1019)}`, `/db/${'y'.repeat(1021)}`, `/${'%20'.repeat(342)}`]) {
      const { status, json } = await call('GET', path)
      t.strictSame([status, json], [414, { error: 'too_long', reason: 'the request uri is too long' }])
    }
  })

  t.test('parameters of a content type', async (t) => {
    const call = connect(t, await start())
    await call('PUT', '/db')
    const types = ['application/json;charset=utf-8', 'application/json ; charset="UTF-8"', 'Application/JSON']
    for (const type of types) {
      const headers = { 'content-type': type }
      t.equal((await call('POST', '/db', { body: '{}', headers })).status, 201, type)
      t.equal((await call('POST', '/db/_all_docs', { body: '{}', headers })).status, 200, type)
    }
    for (const type of ['application/jsonp', 'text/json', 'application/json+x']) {
      const { status } = await call('POST', '/db', { body: '{}', headers: { 'content-type': type } })
      t.equal(status, 415, type)
    }
  })
})

t.test('rewriting', async (t) => {
  function rewrite(url: string, method = 'GET', headers: Record<string, string> = {}) {
    const request = { url, method, headers } as unknown as IncomingMessage
    return { url: rewriteUrl(request), method: request.method }
  }

  t.test('paths are normalized, queries are unchanged', async (t) => {
    const cases: [sent: string, expected: string][] = [
      ['/', '/'],
      ['//', '/'],
      ['/db', '/db'],
      ['/db/', '/db'],
      ['/db//', '/db'],
      ['//db///doc//', '/db/doc'],
      ['/db/a+b?key=a+b', '/db/a%20b?key=a+b'],
      ['/db/a%2Bb', '/db/a%2Bb'],
      ['/db/%2F%2F', '/db/%2F%2F'],
      ['/db/_design%2Fd', '/db/_design/d'],
      ['/db/_design%2fa%2Fb/', '/db/_design/a%2Fb'],
      ['//db/_design%2Fd/_view/v?key="_design%2Fd"', '/db/_design/d/_view/v?key="_design%2Fd"'],
      ['/db/_design%2F', '/db/_design%2F'],
      ['/db/doc/_design%2Fd', '/db/doc/_design%2Fd'],
      ['/db/_local%2Fl', '/db/_local%2Fl'],
      ['/db/?a=//b/', '/db?a=//b/'],
      ['/db?', '/db?'],
      ['?a=1', '/?a=1'],
      ['http://anna:secret@host:5984/db/doc?x=1', '/db/doc?x=1'],
      ['http://host', '/'],
      ['*', '*'],
    ]
    for (const [sent, expected] of cases) t.equal(rewrite(sent).url, expected, sent)
  })

  t.test('a POST may name another method', async (t) => {
    const header = { 'x-http-method-override': 'PUT' }
    t.equal(rewrite('/db', 'POST', header).method, 'PUT')
    t.equal(rewrite('/db', 'GET', header).method, 'GET')
    t.equal(rewrite('/db', 'POST', { 'x-http-method-override': 'put' }).method, 'POST')
    t.equal(rewrite('/db', 'POST', { 'x-http-method-override': 'PROPFIND' }).method, 'POST')
    t.equal(rewrite('/db', 'PUT', { 'x-http-method-override': 'DELETE' }).method, 'PUT')
    for (const method of ['GET', 'POST', 'PUT', 'DELETE', 'TRACE', 'CONNECT', 'COPY']) {
      t.equal(rewrite('/db', 'POST', { 'x-http-method-override': method }).method, method)
    }
    t.equal(rewrite('/db', 'POST', { 'x-http-method-override': 'HEAD' }).method, 'GET', 'whose body is read')
  })
})

/** `X-HTTP-Method-Override`; protocol.md 1.1, 19.8. */
t.test('method overrides', async (t) => {
  const start = sharedTestServer(t)
  t.test('a POST acts as the method in its header', async (t) => {
    const call = connect(t, await start())
    await call('PUT', '/db')
    const override = (method: string, path: string, ask: Ask = {}) =>
      call('POST', path, { ...ask, headers: { ...ask.headers, 'X-HTTP-Method-Override': method } })
    const put = await override('PUT', '/db/doc', { body: '{"a":1}' })
    t.match(put, { status: 201, json: { ok: true, id: 'doc', rev: /^1-/ } })
    const { rev } = put.json as { rev: string }
    t.match(await override('GET', '/db/doc'), { status: 200, json: { a: 1 } })
    t.match(await override('GET', '/db/doc', { body: 'ignored' }), { status: 200, json: { a: 1 } })
    t.match(await override('HEAD', '/db/doc'), { status: 200, json: { a: 1 } }, 'it is a POST to the client')
    t.match(await override('COPY', '/db/doc', { headers: { destination: 'copy' } }), {
      status: 201,
      json: { id: 'copy' },
    })
    t.match(await override('POST', '/db', { json: { _id: 'posted' } }), {
      status: 201,
      json: { id: 'posted' },
    })
    t.match(await override('DELETE', `/db/doc?rev=${rev}`), { status: 200, json: { id: 'doc', rev: /^2-/ } })
    t.equal((await call('GET', '/db/doc')).status, 404)
    for (const method of ['TRACE', 'CONNECT']) {
      t.match(
        await override(method, '/db/doc'),
        { status: 405, json: { error: 'method_not_allowed' } },
        method,
      )
    }
    t.equal((await override('PUT', '/other')).status, 201)
    t.equal((await override('DELETE', '/other')).status, 200)
  })

  t.test('unknown methods, and overrides without a POST, are ignored', async (t) => {
    const call = connect(t, await start())
    await call('PUT', '/db')
    await call('PUT', '/db/doc', { body: '{}' })
    for (const method of ['put', 'PATCH', 'PROPFIND', '', 'PUT, GET']) {
      const headers = { 'X-HTTP-Method-Override': method }
      const answer = await call('POST', '/db/doc', { body: '{}', headers })
      t.match(answer, { status: 400, json: { reason: 'Referer header required.' } }, method)
    }
    for (const method of ['GET', 'HEAD', 'PUT']) {
      const headers = { 'X-HTTP-Method-Override': 'DELETE' }
      const path = method === 'PUT' ? '/db/new' : '/db/doc'
      const answer = await call(method, path, { headers, ...(method === 'PUT' && { body: '{}' }) })
      t.equal(answer.status, method === 'PUT' ? 201 : 200, method)
    }
  })
})

/** Names that are meant to lead elsewhere: in addresses, and in the data folder. */
t.test('hostile names', async (t) => {
  /** Names after `PUT /` that create no database, with their statuses. */
  const NO_DATABASES: readonly (readonly [path: string, status: number])[] = [
    ['..', 400],
    ['%2e%2e', 400],
    ['%2E%2E%2F%2E%2E', 400],
    ['..%2f..%2fetc%2fpasswd', 400],
    ['.', 400],
    ['a%2f..%2fb', 400],
    ['a%2f.', 400],
    ['a..', 400],
    ['a.sqlite', 400],
    ['server.sqlite', 400],
    ['a%5c..%5cb', 400],
    ['c:', 400],
    ['a:stream', 400],
    ['a%00', 400],
    ['a%00.sqlite', 400],
    ['A', 400],
    ['Notes', 400],
    ['a%20', 400],
    ['a.', 400],
    ['%20a', 400],
    ['-a', 400],
    ['~', 400],
    ['a%252f', 400],
    ['%C3%A4', 400],
    ['a%EF%BC%8E', 400],
    ['%c0%ae%c0%ae', 400],
    ['a%c0%af', 400],
    ['a%ff', 400],
    ['a%ed%a0%80', 400],
    ['a%u002e', 400],
    ['a%2', 400],
    [`${'a'.repeat(241)}`, 400],
    [`a${'%2F'.repeat(300)}`, 400],
    [`${'a'.repeat(30_000)}`, 400],
    ['a/../b', 404],
    ['a/%2e%2e', 404],
    ['../a', 404],
  ]

  const DATABASES = [
    'con',
    'nul',
    'aux',
    'prn',
    'com1',
    'lpt9',
    'conf',
    'a%2Fcon',
    'con%2Fa',
    'a--',
    'a%2F%2Fb',
  ]

  t.test('names of databases cannot leave their folder', async (t) => {
    const outer = await temporaryFolder(t)
    const dataDir = join(outer, 'inner', 'data')
    const server = await startTestServer(t, { dataDir })
    const call = connect(t, server)
    for (const [path, status] of NO_DATABASES) {
      const { status: found, json } = await call('PUT', `/${path}`, { body: '{}' })
      t.equal(found, status, path.slice(0, 40))
      t.ok((json as { error?: string }).error)
      for (const method of ['GET', 'DELETE']) {
        const refused = (await call(method, `/${path}`)).status
        t.ok(refused === 404 || refused === 400, `${method} ${path.slice(0, 40)}: ${refused}`)
      }
    }
    t.strictSame((await call('GET', '/_all_dbs')).json, ['_users'])
    t.strictSame(await readdir(outer), ['inner'])
    t.strictSame(await readdir(join(outer, 'inner')), ['data'])
    for (const name of DATABASES) t.equal((await call('PUT', `/${name}`)).status, 201, name)
    const files = (await readdir(join(dataDir, 'databases'))).filter(
      (file) => file.endsWith('.sqlite') && file !== '_users.sqlite',
    )
    t.equal(files.length, DATABASES.length)
    for (const file of files) {
      t.notMatch(file, /^(?:con|nul|aux|prn|com\d|lpt\d)(?:\.|$)/i, 'no device of Windows')
      t.match(file, /^[a-z%][a-z0-9_$()+%A-F-]*\.sqlite$/, 'one that every file system holds')
    }
    t.equal(new Set(files.map((file) => file.toLowerCase())).size, files.length)
    await server.close()
    const again = connect(t, await startTestServer(t, { dataDir }))
    const names = [...DATABASES.map(decodeURIComponent), '_users'].sort()
    t.strictSame((await again('GET', '/_all_dbs')).json, names, 'found again at the next start')
  })

  t.test('names of documents and attachments are never paths', async (t) => {
    const call = connect(t, await startTestServer(t))
    await call('PUT', '/db')
    const ids = [
      '..',
      '.',
      '%2e%2e',
      '..%2f..%2fetc%2fpasswd',
      '%5c..',
      'con',
      'a%00b',
      'x%252fy',
      'A',
      'a',
      'a.',
      '%20',
    ]
    for (const id of ids)
      t.equal(
        (await call('PUT', `/db/${id}`, { body: JSON.stringify({ id }) })).status,
        id === '%2e%2e' ? 409 : 201,
        id,
      )
    for (const id of ids) {
      const { json } = await call('GET', `/db/${id}`)
      t.equal((json as { _id: string })._id, decodeURIComponent(id), id)
    }
    for (const id of ['%c0%ae%c0%ae', '%c0%af', '%ed%a0%80', '%ff', '%f8%88%80%80%80', '%zz', 'a%']) {
      t.match(
        await call('PUT', `/db/${id}`, { body: '{}' }),
        { status: 400, json: { reason: 'invalid_url_encoding' } },
        id,
      )
      t.match(await call('PUT', `/db/doc/${id}`, { body: '{}' }), { status: 400 }, id)
    }
    t.match(await call('PUT', `/db/${'x'.repeat(8001)}`, { body: '{}' }), {
      status: 400,
      json: { error: 'illegal_docid' },
    })
    const names: [name: string, status: number][] = [
      ['..', 400],
      ['%2e%2e', 400],
      ['a/../b', 400],
      ['a%2f..%2fb', 400],
      ['.', 400],
      ['a%00b', 400],
      ['a%0d%0aX:y', 400],
      ['con', 201],
      ['a%5c..%5cb', 201],
      ['%2fetc%2fpasswd', 201],
      ['a.', 201],
      ['x%252fy', 201],
    ]
    for (const [at, [name, status]] of names.entries()) {
      const path = `/db/files-${at}/${name}`
      t.equal((await call('PUT', path, { body: 'content' })).status, status, name)
      if (status === 201) t.equal((await call('GET', path)).text, 'content', name)
    }
    t.strictSame((await call('GET', '/_all_dbs')).json, ['_users', 'db'])
  })
})
