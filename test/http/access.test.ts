/** Who may do what, in single and in hosted mode; protocol.md 1.4, 11.2, 11.4, 11.6, 19.7. */

import { once } from 'node:events'
import { createConnection } from 'node:net'
import t, { type Test } from 'tap'
import { setAdmin } from '../../src/auth/admins.ts'
import { METHODS } from '../../src/threads/methods.ts'
import { ADMIN, body } from '../documents/helpers.ts'
import { type Ask, connect } from './client.ts'
import { checkRead, checkTable, checkTaken, fill, type HostedServer } from './hosted-checks.ts'
import { OTHER_METHODS, WAYS } from './hosted-table.ts'
import { startMemoryServer } from './memory-server.ts'

t.test('single mode', async (t) => {
  const JSON_BODY = (body: unknown): Ask => ({ json: body })
  const OPTIONS: Ask = {}

  /** A server with the admin `s`, and a database whose member is `m` and whose admin is `d`. */
  async function startSecured(t: Test, settings: Record<string, string> = {}) {
    const server = await startMemoryServer(t, settings)
    const call = connect(t, server)
    await call('PUT', '/db')
    await call('PUT', '/db/doc', { body: '{}' })
    const security = { admins: { names: ['d'] }, members: { names: ['m'] } }
    t.equal((await call('PUT', '/db/_security', { json: security })).status, 200)
    t.equal((await call('PUT', '/_config/admins/s', { body: '"s"' })).text, '""\n')
    return { ...server, call }
  }

  t.test('the rights matrix', async (t) => {
    const { call } = await startSecured(t)
    let serial = 0
    const matrix: [call: string, ask: Ask, a: number, o: number, m: number, d: number, s: number][] = [
      ['GET /db', OPTIONS, 401, 403, 200, 200, 200],
      ['HEAD /db', OPTIONS, 401, 403, 200, 200, 200],
      ['GET /db/doc', OPTIONS, 401, 403, 200, 200, 200],
      ['GET /db/missing', OPTIONS, 401, 403, 404, 404, 404],
      ['PUT /db/new-#', { body: '{}' }, 401, 403, 201, 201, 201],
      ['POST /db', JSON_BODY({}), 401, 403, 201, 201, 201],
      ['POST /db/_bulk_docs', JSON_BODY({ docs: [] }), 401, 403, 201, 201, 201],
      ['POST /db/_bulk_get', JSON_BODY({ docs: [] }), 401, 403, 200, 200, 200],
      ['POST /db/_revs_diff', JSON_BODY({}), 401, 403, 200, 200, 200],
      ['GET /db/_all_docs', OPTIONS, 401, 403, 200, 200, 200],
      ['PUT /db/_local/x', { body: '{}' }, 401, 403, 201, 201, 201],
      ['GET /db/_security', OPTIONS, 401, 403, 200, 200, 200],
      ['PUT /db/_design/x-#', { body: '{}' }, 401, 403, 403, 201, 201],
      ['PUT /db/_design%2Fy-#', { body: '{}' }, 401, 403, 403, 201, 201],
      ['PUT /db/_revs_limit', { body: '1000' }, 401, 403, 403, 200, 200],
      ['PATCH /db', OPTIONS, 401, 403, 405, 405, 405],
      ['GET /db/_bulk_docs', OPTIONS, 401, 403, 405, 405, 405],
      ['POST /db/_bulk_docs', { body: '{' }, 401, 403, 415, 415, 415],
      ['PUT /other-#', OPTIONS, 401, 401, 401, 401, 201],
      ['PUT /Illegal', OPTIONS, 401, 401, 401, 401, 400],
      ['DELETE /missing', OPTIONS, 401, 401, 401, 401, 404],
      ['GET /missing', OPTIONS, 401, 404, 404, 404, 404],
      ['GET /missing/_all_docs', OPTIONS, 401, 404, 404, 404, 404],
      ['GET /_foo', OPTIONS, 401, 401, 401, 401, 404],
      ['GET /_foo/bar/baz', OPTIONS, 401, 401, 401, 401, 404],
      ['GET /_users', OPTIONS, 401, 404, 404, 404, 404],
      ['GET /_all_dbs', OPTIONS, 401, 401, 401, 401, 200],
      ['PUT /_all_dbs', OPTIONS, 401, 401, 401, 401, 405],
      ['GET /_dbs_info', OPTIONS, 401, 401, 401, 401, 200],
      ['GET /_config', OPTIONS, 401, 200, 200, 200, 200],
      ['GET /_node/_local/_config/admins', OPTIONS, 401, 200, 200, 200, 200],
      ['GET /_node/_local/_config/log/level', OPTIONS, 401, 404, 404, 404, 200],
      ['PUT /_node/_local/_config/a/b', { body: '"c"' }, 401, 403, 403, 403, 200],
      ['DELETE /_node/_local/_config/a/b', OPTIONS, 401, 403, 403, 403, 200],
      ['POST /_node/_local/_config/_reload', OPTIONS, 401, 401, 401, 401, 200],
      ['GET /_cluster_setup', OPTIONS, 401, 401, 401, 401, 200],
      ['POST /_cluster_setup', JSON_BODY({ action: 'finish_cluster' }), 401, 401, 401, 401, 201],
      ['GET /_node/_local/_prometheus', OPTIONS, 401, 401, 401, 401, 200],
      ['GET /_node/_local/_stats/couchdb', OPTIONS, 401, 401, 401, 401, 200],
      ['GET /_node/_local/_system', OPTIONS, 401, 401, 401, 401, 200],
      ['GET /', OPTIONS, 200, 200, 200, 200, 200],
      ['GET /_up', OPTIONS, 200, 200, 200, 200, 200],
      ['GET /_uuids', OPTIONS, 200, 200, 200, 200, 200],
    ]
    for (const [line, ask, ...expected] of matrix) {
      const seen: number[] = []
      for (const auth of [undefined, 'o:o', 'm:m', 'd:d', 's:s']) {
        const [method = '', path = ''] = line.replace('#', String(serial++)).split(' ')
        seen.push((await call(method, path, auth === undefined ? ask : { ...ask, auth })).status)
      }
      t.strictSame(seen, expected, line)
    }
    for (const [path, status] of [
      ['/', 401],
      ['/db', 401],
      ['/missing', 401],
      ['/_uuids', 401],
      ['/_foo', 401],
    ] as const) {
      const answer = await call('GET', path, { auth: 's:wrong' })
      t.equal(answer.status, status, path)
      t.strictSame(answer.json, { error: 'unauthorized', reason: 'Name or password is incorrect.' })
    }
    t.equal((await call('GET', '/_up', { auth: 's:wrong' })).status, 200, '_up asks for no credentials')
  })

  t.test('the words of refusals', async (t) => {
    const { call } = await startSecured(t)
    const cases: [line: string, auth: string | undefined, status: number, error: string, reason: string][] = [
      ['GET /db', undefined, 401, 'unauthorized', 'You are not authorized to access this db.'],
      ['GET /db', 'o:o', 403, 'forbidden', 'You are not allowed to access this db.'],
      ['PUT /db/_security', undefined, 401, 'unauthorized', 'You are not authorized to access this db.'],
      ['PUT /db/_security', 'm:m', 403, 'forbidden', 'You are not a db or server admin.'],
      ['PUT /db/_design/x', 'm:m', 403, 'forbidden', 'You are not a db or server admin.'],
      ['PUT /db2', undefined, 401, 'unauthorized', 'You are not a server admin.'],
      ['PUT /db2', 'd:d', 401, 'unauthorized', 'You are not a server admin.'],
      ['PUT /db2', 's:no', 401, 'unauthorized', 'Name or password is incorrect. You are not a server admin.'],
      ['PUT /db/doc', 's:no', 401, 'unauthorized', 'Name or password is incorrect.'],
      ['DELETE /db', 's:no', 401, 'unauthorized', 'Name or password is incorrect.'],
    ]
    for (const [line, auth, status, error, reason] of cases) {
      const [method = '', path = ''] = line.split(' ')
      const answer = await call(method, path, auth === undefined ? { body: '{}' } : { body: '{}', auth })
      t.strictSame([answer.status, answer.json], [status, { error, reason }], `${line} ${auth}`)
      t.equal(answer.headers['www-authenticate'], undefined)
    }
  })

  t.test('only server admins list _users and _replicator; their members read documents', async (t) => {
    const { call } = await startSecured(t, { 'couchdb/users_db_security_editable': 'true' })
    const security = { admins: { names: ['d'] }, members: { names: ['m'] } }
    const callers = [undefined, 'o:o', 'm:m', 'd:d', 's:s']
    for (const db of ['_users', '_replicator', 'anna%2F_replicator']) {
      await call('PUT', `/${db}`, { auth: 's:s' })
      t.equal((await call('PUT', `/${db}/_security`, { json: security, auth: 's:s' })).status, 200)
      const lists: [method: string, path: string, ask: Ask][] = [
        ['GET', '_all_docs', OPTIONS],
        ['HEAD', '_all_docs', OPTIONS],
        ['POST', '_all_docs', JSON_BODY({ keys: ['x'] })],
        ['POST', '_all_docs/queries', JSON_BODY({ queries: [{}] })],
        ['PUT', '_all_docs', OPTIONS],
        ['GET', '_changes', OPTIONS],
        ['GET', '_changes?feed=continuous&timeout=0', OPTIONS],
        ['POST', '_changes?filter=_doc_ids', JSON_BODY({ doc_ids: ['x'] })],
      ]
      for (const [method, path, ask] of lists) {
        const good = method === 'PUT' ? 405 : 200
        const isNamed = db !== 'anna%2F_replicator'
        for (const [at, auth] of callers.entries()) {
          const answer = await call(method, `/${db}/${path}`, auth === undefined ? ask : { ...ask, auth })
          const line = `${method} /${db}/${path} as ${auth ?? 'nobody'}`
          t.equal(
            answer.status,
            isNamed ? [401, 401, 401, 401, good][at] : [401, 403, good, good, good][at],
            line,
          )
          if (isNamed && answer.status === 401 && method !== 'HEAD')
            t.strictSame(answer.json, { error: 'unauthorized', reason: 'You are not a server admin.' }, line)
        }
      }
      const absent: number[] = []
      for (const auth of callers)
        absent.push((await call('GET', `/${db}/absent`, auth ? { auth } : {})).status)
      t.strictSame(absent, [401, 403, 404, 404, 404], `a document of ${db}`)
    }
  })

  t.test('forms of credentials', async (t) => {
    const { call } = await startSecured(t)
    const base64 = (text: string) => Buffer.from(text).toString('base64')
    const cases: [header: string, status: number, reason?: string][] = [
      [`Basic ${base64('s:s')}`, 200],
      [`basic ${base64('s:s')}`, 200],
      [`BASIC   ${base64('s:s')} `, 200],
      [`Basic ${base64('nocolon')}`, 401, 'You are not authorized to access this db.'],
      [`Basic ${base64('_:_')}`, 401, 'You are not authorized to access this db.'],
      ['Basic', 401, 'You are not authorized to access this db.'],
      ['Basic !!!', 400, 'Authorization header has invalid base64 value'],
      [`Basic ${base64('s:s\u0007')}`, 401, 'Name or password is incorrect.'],
      [`Basic ${base64(':x')}`, 401, 'Name or password is incorrect.'],
      [`Basic ${base64('pässwörd:nö')}`, 401, 'Name or password is incorrect.'],
      [`Bearer ${base64('s:s')}`, 401, 'You are not authorized to access this db.'],
      ['Negotiate x', 401, 'You are not authorized to access this db.'],
    ]
    for (const [authorization, status, reason] of cases) {
      const answer = await call('GET', '/db', { headers: { authorization } })
      t.equal(answer.status, status, authorization)
      if (reason !== undefined) t.equal((answer.json as { reason: string }).reason, reason)
    }
  })

  t.test('without an admin, every caller is one, whatever their credentials', async (t) => {
    const { url, call } = await (async () => {
      const server = await startMemoryServer(t)
      return { ...server, call: connect(t, server) }
    })()
    t.ok(url)
    for (const authorization of ['Basic !!!', 'Basic dW5rbm93bjp1c2Vy', 'Bearer x']) {
      t.equal((await call('GET', '/_all_dbs', { headers: { authorization } })).status, 200)
    }
    t.equal((await call('PUT', '/db', { auth: 'nobody:knows' })).status, 201)
    t.equal((await call('PUT', '/db/_design/x', { body: '{}' })).status, 201)
  })

  t.test('the challenge of a 401 comes from the configuration or the client', async (t) => {
    const { call } = await startSecured(t)
    const asked = async (headers: Record<string, string> = {}) =>
      (await call('GET', '/db', { headers })).headers['www-authenticate']
    t.equal(await asked({ 'X-CouchDB-WWW-Authenticate': 'Cookie' }), 'Cookie')
    await call('PUT', '/_config/httpd/WWW-Authenticate', { body: '"Basic realm=\\"couchdb\\""', auth: 's:s' })
    t.equal(await asked(), 'Basic realm="couchdb"')
    await call('PUT', '/_config/chttpd/WWW-Authenticate', { body: '"Basic realm=\\"x\\""', auth: 's:s' })
    t.equal(await asked(), 'Basic realm="x"')
    t.equal(
      (await call('GET', '/db', { auth: 'o:o' })).headers['www-authenticate'],
      undefined,
      'not with 403',
    )
    await call('PUT', '/_config/chttpd/WWW-Authenticate', { body: '"漢字"', auth: 's:s' })
    const answer = await call('GET', '/db')
    t.match(answer, { status: 401, json: { error: 'unauthorized' } }, 'what no header can hold is left out')
    t.equal(answer.headers['www-authenticate'], undefined)
  })

  t.test('require_valid_user', async (t) => {
    const { call } = await startSecured(t, { 'chttpd/require_valid_user': 'true' })
    for (const path of ['/', '/_uuids', '/db', '/missing']) {
      const answer = await call('GET', path)
      t.strictSame(
        [answer.status, answer.json],
        [401, { error: 'unauthorized', reason: 'Authentication required.' }],
      )
      t.equal(answer.headers['www-authenticate'], 'Basic realm="server"')
    }
    t.equal((await call('GET', '/_up')).status, 200)
    t.equal((await call('GET', '/', { auth: 'o:o' })).status, 200)
  })

  t.test('without a security object, a database is for admins only', async (t) => {
    const { call } = await startSecured(t)
    await call('PUT', '/closed', { auth: 's:s' })
    t.equal((await call('GET', '/closed')).status, 401)
    t.equal((await call('GET', '/closed', { auth: 'm:m' })).status, 403)
    await call('PUT', '/closed/_security', { json: { admins: { names: ['m'] } }, auth: 's:s' })
    t.equal((await call('GET', '/closed', { auth: 'm:m' })).status, 200)
    t.equal((await call('GET', '/closed', { auth: 'o:o' })).status, 403, 'no members mentioned: closed')
    await call('PUT', '/closed/_security', { json: { members: { names: [], roles: [] } }, auth: 'm:m' })
    t.equal((await call('GET', '/closed')).status, 200, 'empty lists of members: public')
  })

  t.test(
    'a stranger is not told which databases there are, also not by the time that it takes',
    async (t) => {
      const { call } = await startSecured(t)
      for (const [method, path, ask] of [
        ['GET', '', {}],
        ['HEAD', '', {}],
        ['POST', '/_bulk_docs', JSON_BODY({ docs: [] })],
        ['PUT', '/doc', { body: '{}' }],
        ['PUT', '/_security', JSON_BODY({})],
        ['POST', '/_compact', JSON_BODY({})],
        ['DELETE', '', {}],
      ] as const) {
        const [there, absent] = [await timed(`/db${path}`), await timed(`/userdb-6f${path}`)]
        t.strictSame(absent.answer, there.answer, `${method} ${path}`)
        t.equal(there.answer[0], 401)
        // Who makes and deletes databases is asked before any is looked for.
        if (method !== 'DELETE') t.ok(Math.min(there.ms, absent.ms) > 18, `${there.ms} and ${absent.ms} ms`)
        async function timed(url: string) {
          const began = performance.now()
          const { status, headers, text } = await call(method, url, ask)
          const { date, 'x-couch-request-id': id, ...rest } = headers
          t.ok(date && id)
          return { answer: [status, rest, text], ms: performance.now() - began }
        }
      }
    },
  )
})

/** docs/hosted.md, over the engine in memory. */
t.test('hosted mode', async (t) => {
  async function startHosted(t: Test): Promise<HostedServer> {
    const server = await startMemoryServer(t, { 'settee/mode': 'hosted' })
    const auth = 'root:secret'
    await setAdmin(server.config, 'root', 'secret')
    const call = connect(t, server)
    const stored = []
    for (const name of ['db', 'control']) {
      await server.databases.create(name)
      const database = server.before(name)
      stored.push(await fill(async (id, doc) => (await database.put(ADMIN, id, body(doc), {})).rev))
    }
    const [first] = stored
    if (first === undefined) throw new Error('nothing is stored')
    return {
      call: (method, path, ask) => call(method, path, { auth, ...ask }),
      host: `127.0.0.1:${server.port}`,
      stored: first,
    }
  }

  t.test('each method of a database is in the table, or accepts no document', async (t) => {
    const ways = Object.keys(WAYS)
    t.same([...ways, ...OTHER_METHODS].sort(), Object.keys(METHODS).sort())
  })

  t.test('refusals, over every call that writes', async (t) => {
    await checkTable(t, await startHosted(t), () => null)
  })

  t.test('accepted writes', async (t) => {
    await checkTaken(t, await startHosted(t))
  })

  t.test('documents from before hosted mode can be read', async (t) => {
    await checkRead(t, await startHosted(t))
  })

  t.test('filter functions are refused, other filters work', async (t) => {
    const { call } = await startHosted(t)
    for (const filter of ['old/all', 'no/such', '_view&view=old/v']) {
      for (const feed of ['normal', 'longpoll', 'continuous', 'eventsource']) {
        const answer = await call('GET', `/db/_changes?filter=${filter}&feed=${feed}`)
        const reason = /runs no functions.*_doc_ids, _selector and _design/
        t.match(answer, { status: 403, json: { error: 'forbidden', reason } }, `${filter} ${feed}`)
      }
    }
    const idsOf = async (filter: string, json?: unknown) => {
      const method = json === undefined ? 'GET' : 'POST'
      const answer = await call(method, `/db/_changes?filter=${filter}`, {
        ...(json !== undefined && { json }),
      })
      return (answer.json as { results: { id: string }[] }).results.map(({ id }) => id)
    }
    t.same(await idsOf('_design'), ['_design/old'])
    t.same(await idsOf('_doc_ids', { doc_ids: ['plain'] }), ['plain'])
    t.same(await idsOf('_selector', { selector: { _id: 'pictured' } }), ['pictured'])
  })

  t.test('an attachment and a design document are refused before their bodies are sent', async (t) => {
    const { host } = await startHosted(t)
    for (const path of ['/db/x/a', '/db/_design/x']) {
      const socket = createConnection(Number(host.split(':')[1]), '127.0.0.1')
      const auth = Buffer.from('root:secret').toString('base64')
      socket.write(
        `PUT ${path} HTTP/1.1\r\nHost: ${host}\r\nAuthorization: Basic ${auth}\r\nContent-Length: 1000000\r\n\r\n`,
      )
      const [head] = (await once(socket, 'data')) as [Buffer]
      t.match(head.toString(), /^HTTP\/1\.1 403 /, path)
      socket.destroy()
    }
  })

  t.test('a purge works as in single mode', async (t) => {
    const { call, stored } = await startHosted(t)
    const json = { '_design/old': [stored.design], pictured: [stored.pictured] }
    t.match(await call('POST', '/db/_purge', { json }), { status: 201, json: { purged: json } })
  })

  t.test(
    'a document has 1,000 conflicting revisions at most, and all others of a request are stored',
    async (t) => {
      const { call } = await startHosted(t)
      const docs = Array.from({ length: 1001 }, (_, n) => ({ _id: 'conflicts', _rev: `2-x${n}`, n }))
      const json = { new_edits: false, docs: [...docs, { _id: 'other', _rev: '1-a' }] }
      const answer = await call('POST', '/db/_bulk_docs', { json })
      const reason = /has 1000 conflicting revisions/
      t.match(answer, {
        status: 201,
        json: [{ id: 'conflicts', rev: '2-x1000', error: 'forbidden', reason }],
      })
      t.equal((answer.json as unknown[]).length, 1, 'nothing else is refused')
      t.equal((await call('GET', '/db/other')).status, 200)
      const one = await call('PUT', '/db/conflicts?new_edits=false', { json: { _rev: '2-y' } })
      t.match(one, { status: 403, json: { error: 'forbidden', reason } })
    },
  )
})
