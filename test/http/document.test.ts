/** One document, alone or with the contents of its attachments; protocol.md 3, 4.2, 7.3, 19.4. */

import { gunzipSync, gzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { digestOf, storeRevisions } from '../documents/stored-attachments.ts'
import { boundaryOf, partsOf } from '../helpers/multipart-parts.ts'
import { startTestServer } from '../helpers/server.ts'
import { connect } from './client.ts'
import { startStoredServer } from './stored-server.ts'

/** One document; protocol.md 3 and 19.4. */
t.test('one document', async (t) => {
  async function start(t: Test) {
    const server = await startTestServer(t)
    const call = connect(t, server)
    await call('PUT', '/db')
    const put = (path: string, doc: unknown, headers: Record<string, string> = {}) =>
      call('PUT', path, { body: JSON.stringify(doc), headers })
    return { ...server, call, put }
  }

  function revOf({ json }: { json: unknown }): string {
    return (json as { rev: string }).rev
  }

  t.test('interactive writes', async (t) => {
    const { put, call, url } = await start(t)
    const first = await put('/db/x', {})
    t.match(first, { status: 201, json: { ok: true, id: 'x', rev: /^1-[0-9a-f]{32}$/ } })
    t.equal(first.headers.etag, `"${revOf(first)}"`)
    t.equal(first.headers.location, `${url}/db/x`)
    t.equal(revOf(await put('/db/y', {})), revOf(first), 'the same edit is the same revision')
    t.match(await put('/db/x', {}), {
      status: 409,
      json: { error: 'conflict', reason: 'Document update conflict.' },
    })
    const second = await put('/db/x', {}, { 'if-match': `"${revOf(first)}"` })
    t.match(second, { status: 201, json: { rev: /^2-/ } })
    t.equal((await call('DELETE', '/db/x', { headers: { 'if-match': `"${revOf(first)}"` } })).status, 409)
    t.equal((await call('DELETE', '/db/x')).status, 409)
    const third = await call('DELETE', '/db/x', { headers: { 'if-match': `"${revOf(second)}"` } })
    t.match(third, {
      status: 200,
      json: { ok: true, id: 'x', rev: /^3-/ },
      headers: { etag: `"${revOf(third)}"` },
    })
    const deleted = { status: 404, json: { error: 'not_found', reason: 'deleted' } }
    t.match(await call('GET', '/db/x'), deleted)
    for (const query of ['', '?rev=1-a', '?rev=rubbish'])
      t.match(await call('DELETE', `/db/x${query}`), deleted)
    t.match(await call('DELETE', '/db/none?rev=rubbish'), { status: 404, json: { reason: 'missing' } })
    for (const rev of [revOf(third), revOf(first)]) t.equal((await put('/db/x', { _rev: rev })).status, 409)
    t.match(await put('/db/x', {}), { status: 201, json: { rev: /^4-/ } })
    t.match((await call('GET', '/db/x?revs=true')).json, { _revisions: { start: 4, ids: { length: 4 } } })
  })

  t.test('refused writes store nothing', async (t) => {
    const { call, put } = await start(t)
    const rev = revOf(await put('/db/doc', { a: 1 }))
    const cases: [path: string, body: string, status: number, error: string, reason: string][] = [
      ['/db/n', '{"_zing":1}', 400, 'doc_validation', 'Bad special document member: _zing'],
      ['/db/n', '[]', 400, 'bad_request', 'Document must be a JSON object'],
      ['/db/n', '1', 400, 'bad_request', 'Document must be a JSON object'],
      ['/db/n', '{"a":', 400, 'bad_request', 'invalid UTF-8 JSON'],
      ['/db/n', '', 400, 'bad_request', 'invalid UTF-8 JSON'],
      ['/db/n?rev=x', '{}', 400, 'bad_request', 'Invalid rev format'],
      ['/db/_other', '{}', 400, 'illegal_docid', 'Only reserved document ids may start with underscore.'],
      ['/db/_design', '{}', 400, 'illegal_docid', 'Only reserved document ids may start with underscore.'],
      ['/db/_design%2F', '{}', 400, 'illegal_docid', 'Illegal document id `_design/`'],
      ['/db/_local', '{}', 400, 'bad_request', 'Invalid _local document id.'],
      ['/db/_local/', '{}', 400, 'bad_request', 'Invalid _local document id.'],
      ['/db/_local%2F', '{}', 400, 'bad_request', 'Invalid _local document id.'],
      ['/db/_local/a/b', '{}', 400, 'bad_request', '_local documents do not accept attachments.'],
      [
        `/db/doc?rev=${rev}`,
        '{"_rev":"1-abc"}',
        400,
        'bad_request',
        'Document rev from request body and query string have different values',
      ],
      [`/db/${'x'.repeat(10_000)}`, '{}', 400, 'illegal_docid', 'Document id is too long'],
    ]
    for (const [path, body, status, error, reason] of cases) {
      const answer = await call('PUT', path, { body })
      t.strictSame([answer.status, answer.json], [status, { error, reason }], path.slice(0, 60))
    }
    const differing = { status: 400, json: { reason: 'Document rev and etag have different values' } }
    t.match(await put('/db/doc', { _rev: rev }, { 'if-match': '1-abc' }), differing)
    t.match(await put(`/db/doc?rev=${rev}`, {}, { 'if-match': '1-abc' }), differing)
    const multipart = { 'content-type': 'multipart/related; boundary=x' }
    t.equal((await call('PUT', '/db/n', { body: '--x--', headers: multipart })).status, 415)
    t.match((await call('GET', '/db')).json, { doc_count: 1 })
  })

  t.test('the content type of a PUT does not matter', async (t) => {
    const { call } = await start(t)
    const types = ['application/x-www-form-urlencoded', 'text/plain', 'rubbish', ';;;', 'application/json']
    for (const [i, type] of types.entries()) {
      const answer = await call('PUT', `/db/${i}`, { body: '{"a":1}', headers: { 'content-type': type } })
      t.equal(answer.status, 201, type)
    }
  })

  t.test('documents come back exactly as sent', async (t) => {
    const { call } = await start(t)
    const text =
      '"2":1,"b":9007199254740993,"1":1e400,"c":1.0,"d":-0,"o":{"__proto__":{"x":1},"_x":2},"é":"\\u00e9\\/","n":[[[]]]'
    await call('PUT', '/db/x', { body: `{${text}}` })
    const { text: back, headers } = await call('GET', '/db/x')
    t.ok(back.endsWith(`,${text}}\n`), back)
    t.equal(headers['content-type'], 'application/json')
    t.equal(headers['content-length'], String(Buffer.byteLength(back)))
  })

  t.test('reading, with all options', async (t) => {
    const { call, put } = await start(t)
    await call('POST', '/db/_bulk_docs', {
      json: {
        new_edits: false,
        docs: ['b', 'c', 'd'].map((last) => ({
          _id: 'x',
          _revisions: { start: 2, ids: [last, 'a'] },
          ...(last === 'd' && { _deleted: true }),
          v: last,
        })),
      },
    })
    const get = async (query: string) => (await call('GET', `/db/x?${query}`)).json
    t.strictSame(await get(''), { _id: 'x', _rev: '2-c', v: 'c' })
    t.strictSame(await get('rev=2-b'), { _id: 'x', _rev: '2-b', v: 'b' })
    t.strictSame(await get('rev=2-d'), { _id: 'x', _rev: '2-d', v: 'd', _deleted: true })
    t.match(await get('conflicts=true'), { _conflicts: ['2-b'] })
    t.match(await get('deleted_conflicts=true'), { _deleted_conflicts: ['2-d'] })
    t.match(await get('revs=true'), { _revisions: { start: 2, ids: ['c', 'a'] } })
    t.match(await get('revs_info=true'), {
      _revs_info: [{ rev: '2-c', status: 'available' }, { rev: '1-a' }],
    })
    t.match(await get('meta=true'), { _conflicts: ['2-b'], _deleted_conflicts: ['2-d'], _revs_info: [] })
    t.match(await get('local_seq=true'), { _local_seq: Number })
    t.strictSame(await get('conflicts=TRUE&revs=1'), { _id: 'x', _rev: '2-c', v: 'c' })
    t.match(await call('GET', '/db/x?rev=2-z'), {
      status: 404,
      json: { error: 'not_found', reason: 'missing' },
    })
    t.match(await call('GET', '/db/x?rev=zz'), { status: 400, json: { reason: 'Invalid rev format' } })
    t.match(await call('GET', '/db/none'), { status: 404, json: { reason: 'missing' } })
    t.match(await call('GET', '/db/_none'), { status: 404, json: { reason: 'missing' } })
    t.equal((await call('GET', '/db/x?conflicts=true')).headers.etag, undefined, 'meta members: no ETag')
    t.equal((await call('GET', '/db/x?revs=true')).headers.etag, '"2-c"')
    await put('/db/deleted', { _deleted: true })
    t.equal((await call('GET', '/db/deleted')).status, 404)
    t.match(await call('GET', '/db/deleted?deleted=true'), { status: 200, json: { _deleted: true } })
  })

  t.test('open_revs', async (t) => {
    const { call } = await start(t)
    const docs = ['b', 'c'].map((last) => ({ _id: 'x', _revisions: { start: 2, ids: [last, 'a'] } }))
    await call('POST', '/db/_bulk_docs', { json: { new_edits: false, docs } })
    const ask = (value: string) => call('GET', `/db/x?open_revs=${encodeURIComponent(value)}`)
    for (const value of ['all', '"all"']) {
      const { json, headers, text } = await ask(value)
      const revs = (json as { ok: { _rev: string } }[]).map(({ ok }) => ok._rev)
      t.strictSame(new Set(revs), new Set(['2-b', '2-c']))
      t.equal(headers['content-type'], 'application/json')
      t.ok(text.endsWith(']\n'))
    }
    t.match((await ask('["2-b","3-z"]')).json, [{ ok: { _rev: '2-b' } }, { missing: '3-z' }])
    t.match(await call('GET', '/db/none?open_revs=["1-a"]'), { status: 200, json: [{ missing: '1-a' }] })
    t.match(await call('GET', '/db/none?open_revs=all'), { status: 404, json: { reason: 'missing' } })
    t.match(await ask('[1'), { status: 400, json: { reason: 'invalid UTF-8 JSON' } })
    t.match(await ask('{}'), { status: 400, json: { reason: 'Invalid list of revisions' } })
    t.match(await ask('["x"]'), { status: 400, json: { reason: 'Invalid rev format' } })
  })

  t.test('a client that has the document gets a 304', async (t) => {
    const { call, put } = await start(t)
    const rev = revOf(await put('/db/x', {}))
    const headers = (value: string) => ({ headers: { 'if-none-match': value } })
    for (const value of [`"${rev}"`, `W/"${rev}"`, `"other", W/"${rev}"`, `"other" "${rev}"`, '*']) {
      const answer = await call('GET', '/db/x', headers(value))
      t.match(answer, { status: 304, text: '', headers: { etag: `"${rev}"` } }, value)
      t.equal((await call('HEAD', '/db/x', headers(value))).status, 304)
    }
    t.equal((await call('GET', '/db/x', headers(rev))).status, 200, 'without quotes it is no ETag')
    t.equal((await call('GET', '/db/x', headers('"1-x"'))).status, 200)
  })

  t.test('HEAD is GET without a body', async (t) => {
    const { call, put } = await start(t)
    await put('/db/x', { a: 1 })
    const get = await call('GET', '/db/x')
    const head = await call('HEAD', '/db/x')
    t.match(head, { status: 200, text: '' })
    for (const name of ['etag', 'content-length', 'content-type'])
      t.equal(head.headers[name], get.headers[name])
    t.match(await call('HEAD', '/db/none'), { status: 404, text: '' })
    t.match(await call('HEAD', '/db/x?open_revs=all'), { status: 200, text: '' })
  })

  t.test('replicated writes, deletions and batches by PUT', async (t) => {
    const { call, put } = await start(t)
    t.match(await put('/db/x?new_edits=false', { _rev: '3-abc', a: 1 }), {
      status: 201,
      json: { rev: '3-abc' },
    })
    t.match(await put('/db/x?new_edits=false', { _rev: '3-abc', a: 1 }), {
      status: 201,
      json: { rev: '3-abc' },
    })
    t.match(await put('/db/y?new_edits=false', {}), { status: 400, json: { error: 'bad_request' } })
    t.match(await put('/db/x', { _rev: '3-abc', _deleted: true }), { status: 200, json: { rev: /^4-/ } })
    const batch = await put('/db/z?batch=ok', {})
    t.strictSame([batch.status, batch.json], [202, { ok: true, id: 'z' }])
    t.equal((await call('GET', '/db/z')).status, 200)
    // CouchDB answers before it looks for conflicts.
    t.match(await put('/db/z?batch=ok', { other: 1 }), { status: 202, json: { ok: true, id: 'z' } })
    t.match(await call('DELETE', '/db/z?batch=ok'), { status: 202, json: { ok: true, id: 'z' } })
    t.match(await call('GET', '/db/z'), { status: 200, json: { other: undefined } })
    t.match(await put('/db/z?batch=ok', { _bad: 1 }), { status: 400 })
  })

  t.test('_revisions lists at most _revs_limit, also after it was lowered', async (t) => {
    const { call, put } = await start(t)
    const _revisions = { start: 4, ids: ['d', 'c', 'b', 'a'] }
    await put('/db/x?new_edits=false', { _revisions })
    await call('PUT', '/db/_revs_limit', { body: '2' })
    const cut = { start: 4, ids: ['d', 'c'] }
    t.strictSame((await call('GET', '/db/x?revs=true')).json, { _id: 'x', _rev: '4-d', _revisions: cut })
    t.strictSame((await call('GET', '/db/x?open_revs=all&revs=true')).json, [
      { ok: { _id: 'x', _rev: '4-d', _revisions: cut } },
    ])
    const got = await call('POST', '/db/_bulk_get?revs=true', { json: { docs: [{ id: 'x' }] } })
    t.match(got.json, { results: [{ docs: [{ ok: { _revisions: { start: 4, ids: ['d', 'c'] } } }] }] })
    t.notMatch(got.text, /"b"/)
    const info = await call('GET', '/db/x?revs_info=true')
    t.match(info.json, { _revs_info: [{ rev: '4-d' }, { rev: '3-c' }, { rev: '2-b' }, { rev: '1-a' }] })
  })

  t.test('COPY', async (t) => {
    const { call, put, url } = await start(t)
    await put('/db/x', { a: 1 })
    const copy = (destination?: string, path = '/db/x') =>
      call('COPY', path, { headers: destination === undefined ? {} : { destination } })
    const made = await copy('y%2Fz')
    t.match(made, { status: 201, json: { ok: true, id: 'y/z' }, headers: { location: `${url}/db/y%2Fz` } })
    t.equal(made.headers.etag, `"${revOf(made)}"`)
    t.match((await call('GET', '/db/y%2Fz')).json, { a: 1 })
    t.match(await copy(), { status: 400, json: { reason: 'Destination header is mandatory for COPY.' } })
    t.match(await copy(`${url}/db/q`), { status: 400, json: { reason: 'Destination URL must be relative.' } })
    t.match(await copy('_bad?rev=1-abc'), { status: 400, json: { error: 'illegal_docid' } })
    t.match(await copy('%zz'), { status: 400, json: { reason: 'invalid_url_encoding' } })
    t.equal((await copy('y%2Fz')).status, 409)
    t.match(await copy(`y%2Fz?rev=${revOf(made)}`), { status: 201, json: { rev: /^2-/ } })
    t.match(await copy('q', '/db/none'), { status: 404 })
    t.equal((await copy('_local/l')).status, 201)
    t.equal((await copy('_design/d')).headers.location, `${url}/db/_design/d`)
  })

  t.test('ids in addresses', async (t) => {
    const { call, put } = await start(t)
    const cases: [written: string, id: string, ...read: string[]][] = [
      ['/db/a%2Fb', 'a/b', '/db/a%2fb', '/db//a%2Fb/'],
      ['/db/a+b', 'a b', '/db/a%20b'],
      ['/db/a%2Bb', 'a+b', '/db/a%2bb'],
      ['/db/%C3%A9%F0%9F%98%80', 'é😀', '/db/%c3%a9%f0%9f%98%80'],
      ['/db/..%2f..%2f', '../../', '/db/..%2F..%2F'],
      ['/db/%25', '%', '/db/%25'],
      ['/db/a%3Fb%23', 'a?b#', '/db/a%3fb%23'],
      ['/db/__proto__', '', '/db/__proto__'],
      ['/db/_design/d', '_design/d', '/db/_design%2Fd', '/db/_design%2fd'],
      ['/db/_design%2Fe', '_design/e', '/db/_design/e', '/db/_design/e/'],
      ['/db/_design/f%2Fg', '_design/f/g', '/db/_design%2Ff%2Fg'],
      ['/db/_local/l', '_local/l', '/db/_local%2Fl'],
      ['/db/_local/a%2Fb', '_local/a/b', '/db/_local%2Fa%2Fb'],
    ]
    for (const [written, id, ...read] of cases) {
      const answer = await put(written, {})
      if (id === '') {
        t.equal(answer.status, 400, 'an id may not begin with an underscore')
        continue
      }
      t.match(answer, { status: 201, json: { id } }, written)
      for (const path of read) t.match(await call('GET', path), { status: 200, json: { _id: id } }, path)
    }
  })

  t.test('a revision whose id is no valid header is stored and read, without an ETag', async (t) => {
    const { call } = await start(t)
    for (const [doc, _rev] of [
      ['/db/line', '1-a\nb'],
      ['/db/euro', '1-€'],
      ['/db/empty', '1-'],
    ] as const) {
      t.match(await call('PUT', `${doc}?new_edits=false`, { body: JSON.stringify({ _rev }) }), {
        status: 201,
        json: { rev: _rev },
      })
      t.match(await call('GET', doc), { status: 200, json: { _rev } })
    }
    t.equal((await call('GET', '/db/euro')).headers.etag, undefined)
    t.equal((await call('GET', '/db/empty')).headers.etag, '"1-"')
  })

  t.test('_local documents', async (t) => {
    const { call, put } = await start(t)
    t.match(await put('/db/_local/a', {}), { status: 201, json: { id: '_local/a', rev: '0-1' } })
    t.match(await put('/db/_local/a', {}), { status: 201, json: { rev: '0-1' } })
    t.match(await put('/db/_local/a', { _rev: '0-1', x: 1 }), { status: 201, json: { rev: '0-2' } })
    t.match(await call('GET', '/db/_local/a'), { status: 200, json: { _id: '_local/a', _rev: '0-2', x: 1 } })
    t.equal((await call('HEAD', '/db/_local/a')).status, 200)
    t.match(await call('DELETE', '/db/_local/a?rev=0-2'), { status: 200, json: { rev: '0-0' } })
    t.match(await call('GET', '/db/_local/a'), { status: 404, json: { reason: 'missing' } })
    for (const method of ['GET', 'PUT', 'DELETE']) {
      t.match(await call(method, '/db/_local', { body: '{}' }), {
        status: 400,
        json: { error: 'bad_request', reason: 'Invalid _local document id.' },
      })
    }
    t.match((await call('GET', '/db')).json, { doc_count: 0, update_seq: /^0-/ })
  })

  t.test('calls that do not exist', async (t) => {
    const { call, url } = await start(t)
    t.match(await call('POST', '/db/doc', { json: {} }), {
      status: 400,
      json: { error: 'bad_request', reason: 'Referer header required.' },
    })
    t.equal((await call('POST', '/db/doc', { body: '', headers: { referer: `${url}/` } })).status, 415)
    t.match(await call('POST', '/db/_unheard_of', { json: {} }), { status: 404, json: { reason: 'missing' } })
    t.match(await call('GET', '/db/_design/d/_view/v'), { status: 404, json: { reason: 'missing' } })
    t.match(await call('POST', '/db/doc', { body: '{}', headers: { 'X-HTTP-Method-Override': 'PUT' } }), {
      status: 201,
      json: { id: 'doc' },
    })
  })
})

/** Documents with the contents of their attachments over HTTP: protocol.md 3.1, 3.2, 4.2, 7.3. */
t.test('multipart answers', async (t) => {
  const CODED = 'a text that is stored as gzip'
  const STORED = gzipSync(CODED)
  const BIG = Buffer.alloc(
    700_000,
    Uint8Array.from({ length: 251 }, (_, i) => i),
  )

  interface Rows {
    readonly rows: readonly [{ readonly doc: { readonly _attachments: { readonly coded: unknown } } }]
  }

  async function start(t: Test) {
    const server = await startStoredServer(t)
    const call = connect(t, server)
    const { store } = server
    const old = { name: 'old', content: 'old one', revpos: 1 }
    await storeRevisions(
      store,
      'x',
      { rev: '1-a', superseded: true, attachments: [old] },
      { rev: '2-c', ancestors: ['1-a'], body: '{"n":"c"}' },
      {
        rev: '2-d',
        ancestors: ['1-a'],
        body: '{"n":"d"}',
        attachments: [
          { name: 'big', content: BIG, type: 'image/png', revpos: 2 },
          { name: 'coded', content: CODED, gzip: true, revpos: 2 },
          old,
        ],
      },
    )
    await storeRevisions(store, 'plain', { rev: '1-a', body: '{"n":1}' })
    const get = (path: string, accept?: string, method = 'GET') =>
      call(method, path, { headers: accept === undefined ? {} : { accept } })
    return { ...server, call, get }
  }

  t.test('a document and its attachments behind it', async (t) => {
    const { get, held } = await start(t)
    const answer = await get('/db/x?attachments=true', 'multipart/related')
    t.match(answer, { status: 200, headers: { etag: '"2-d"', vary: 'Accept' } })
    t.match(answer.headers['content-type'], /^multipart\/related; boundary="[0-9a-f]{32}"$/)
    t.equal(answer.headers['content-length'], String(answer.bytes.length))
    const [document, ...parts] = partsOf(answer.headers['content-type'], answer.bytes)
    t.same(document?.headers, { 'content-type': 'application/json' })
    t.ok(document?.text.endsWith('}'), 'without a newline')
    t.match(document?.json, {
      _id: 'x',
      n: 'd',
      _attachments: {
        big: { content_type: 'image/png', length: BIG.length, follows: true },
        coded: { follows: true, length: 29, encoding: 'gzip', encoded_length: STORED.length },
        old: { follows: true },
      },
    })
    const header = (name: string, type: string, length: number) => ({
      'content-disposition': `attachment; filename="${name}"`,
      'content-type': type,
      'content-length': String(length),
    })
    t.same(
      parts.map(({ headers }) => headers),
      [
        header('big', 'image/png', BIG.length),
        { ...header('coded', 'text/plain', STORED.length), 'content-encoding': 'gzip' },
        header('old', 'text/plain', 7),
      ],
    )
    t.ok(parts[0]?.content.equals(BIG))
    t.equal(gunzipSync(parts[1]?.content as Buffer).toString(), CODED)
    t.equal(parts[2]?.text, 'old one')
    const head = await get('/db/x?attachments=true', 'multipart/related', 'HEAD')
    t.match(head, { status: 200, text: '' })
    t.equal(head.headers['content-length'], String(answer.bytes.length))
    t.equal(held(), 0)
  })

  t.test('a multipart answer is never compressed', async (t) => {
    const { call } = await start(t)
    for (const [path, type] of [
      ['/db/x?attachments=true', 'multipart/related'],
      ['/db/x?open_revs=all', 'multipart/mixed'],
    ] as const) {
      const headers = { accept: type, 'accept-encoding': 'gzip, br' }
      const answer = await call('GET', path, { headers })
      t.equal(answer.headers['content-encoding'], undefined)
      t.ok(partsOf(answer.headers['content-type'], answer.bytes).length > 1)
    }
  })

  t.test('JSON for clients that do not name a multipart type', async (t) => {
    const { get } = await start(t)
    for (const accept of [undefined, '*/*', 'application/json', 'multipart/mixed, application/json']) {
      const answer = await get('/db/x?attachments=true', accept)
      t.match(answer, { status: 200, headers: { 'content-type': 'application/json', etag: '"2-d"' } })
      t.equal(answer.headers['content-length'], String(answer.bytes.length))
      t.match(answer.json, {
        _attachments: {
          big: { data: BIG.toString('base64') },
          coded: {
            data: Buffer.from(CODED).toString('base64'),
            encoding: undefined,
            digest: digestOf(STORED),
          },
        },
      })
      t.ok(answer.text.endsWith('}\n'))
    }
    t.match(await get('/db/x?attachments=true', undefined, 'HEAD'), { status: 200, text: '' })
  })

  t.test('JSON with contents is compressed if the client accepts it', async (t) => {
    const { call } = await start(t)
    const answer = await call('GET', '/db/x?attachments=true', { headers: { 'accept-encoding': 'gzip' } })
    t.match(answer.headers, { 'content-encoding': 'gzip', 'content-length': undefined })
    t.match(JSON.parse(gunzipSync(answer.bytes).toString()), { _id: 'x', _attachments: { old: {} } })
  })

  t.test('without contents to follow the answer is JSON', async (t) => {
    const { get } = await start(t)
    const since = encodeURIComponent('["2-d"]')
    for (const path of ['/db/plain?attachments=true', `/db/x?atts_since=${since}`, '/db/x']) {
      const answer = await get(path, 'multipart/related')
      t.match(answer, { status: 200, headers: { 'content-type': 'application/json' } }, path)
      t.equal(answer.headers['content-length'], String(answer.bytes.length))
      t.ok(answer.text.endsWith('}\n'))
    }
  })

  t.test('atts_since', async (t) => {
    const { get } = await start(t)
    const since = (revs: unknown) => `/db/x?atts_since=${encodeURIComponent(JSON.stringify(revs))}`
    const answer = await get(since(['1-a']), 'multipart/related')
    const [document, ...parts] = partsOf(answer.headers['content-type'], answer.bytes)
    t.match(document?.json._attachments, { big: { follows: true }, old: { stub: true } })
    t.equal(parts.length, 2)
    t.match((await get(since(['1-a']))).json, {
      _attachments: { coded: { data: String }, old: { stub: true, length: 7 } },
    })
    t.match((await get(`${since(['1-a'])}&att_encoding_info=true`)).json, {
      _attachments: { coded: { encoding: 'gzip', encoded_length: STORED.length } },
    })
    t.match(await get('/db/x?atts_since=x'), { status: 400, json: { reason: 'invalid UTF-8 JSON' } })
    t.match(await get(since('1-a')), { status: 400, json: { reason: 'Invalid list of revisions' } })
    for (const revs of [[1], ['bad']]) {
      t.match(await get(since(revs)), { status: 400, json: { reason: 'Invalid rev format' } })
    }
    t.match(await get('/db/x?open_revs=all&atts_since=x'), { status: 400 })
  })

  t.test('If-None-Match and missing documents', async (t) => {
    const { call, get } = await start(t)
    for (const accept of ['multipart/related', 'application/json']) {
      const headers = { accept, 'if-none-match': '"2-d"' }
      t.match(await call('GET', '/db/x?attachments=true', { headers }), { status: 304, text: '' })
      t.match(await get('/db/no?attachments=true', accept), {
        status: 404,
        json: { error: 'not_found', reason: 'missing' },
      })
    }
  })

  t.test('open_revs as multipart/mixed', async (t) => {
    const { get } = await start(t)
    const revs = encodeURIComponent('["2-d","2-c","9-no"]')
    const answer = await get(`/db/x?open_revs=${revs}`, 'multipart/mixed')
    t.match(answer, { status: 200, headers: { 'transfer-encoding': 'chunked', vary: 'Accept' } })
    t.match(answer.headers['content-type'], /^multipart\/mixed; boundary="[0-9a-f]{32}"$/)
    const [first, second, third] = partsOf(answer.headers['content-type'], answer.bytes)
    t.match(first?.headers, { 'content-type': /^multipart\/related; boundary="[0-9a-f]{32}"$/ })
    t.not(boundaryOf(first?.headers['content-type']), boundaryOf(answer.headers['content-type']))
    const nested = partsOf(first?.headers['content-type'], first?.content as Buffer)
    t.ok(nested[1]?.content.equals(BIG))
    t.match(second, { headers: { 'content-type': 'application/json' }, json: { _rev: '2-c', n: 'c' } })
    t.match(third, {
      headers: { 'content-type': 'application/json; error="true"' },
      json: { missing: '9-no' },
    })
    t.match(await get(`/db/x?open_revs=${revs}`, 'multipart/mixed', 'HEAD'), { status: 200, text: '' })
    t.match(await get('/db/no?open_revs=all', 'multipart/mixed'), { status: 404 })
    for (const accept of [undefined, '*/*', 'application/json']) {
      const { json, headers } = await get('/db/x?open_revs=all', accept)
      t.match(json, [{ ok: { _rev: '2-d' } }, { ok: { _rev: '2-c' } }])
      t.equal(headers['content-type'], 'application/json')
    }
  })

  t.test('_bulk_get as multipart', async (t) => {
    const { call } = await start(t)
    const ask = (accept: string, query = '') =>
      call('POST', `/db/_bulk_get${query}`, {
        json: { docs: [{ id: 'x', rev: '2-d' }, { id: 'plain' }, { id: 'no', rev: '1-a' }] },
        headers: { accept },
      })
    for (const type of ['multipart/mixed', 'multipart/related']) {
      const answer = await ask(type)
      t.equal(answer.status, 200)
      t.match(answer.headers['content-type'], new RegExp(`^${type}; boundary="[0-9a-f]{32}"$`))
      const [first, second, third] = partsOf(answer.headers['content-type'], answer.bytes)
      t.match(first?.headers, { 'x-doc-id': 'x', 'x-rev-id': '2-d' })
      const nested = partsOf(first?.headers['content-type'], first?.content as Buffer)
      t.equal(nested.length, 4)
      t.match(second?.json, { _id: 'plain' })
      t.match(third?.json, { id: 'no', rev: '1-a', error: 'not_found', reason: 'missing' })
    }
    for (const accept of ['*/*', 'multipart/mixed, application/json', 'text/html']) {
      const { json } = await ask(accept)
      t.match(json, {
        results: [{ id: 'x', docs: [{ ok: { _attachments: { big: { stub: true } } } }] }, {}, {}],
      })
    }
    const inline = await ask('*/*', '?attachments=true&att_encoding_info=true')
    t.match(inline.json, {
      results: [{ docs: [{ ok: { _attachments: { coded: { data: String, encoding: 'gzip' } } } }] }, {}, {}],
    })
    t.match(
      await call('POST', '/db/_bulk_get', {
        body: '{',
        headers: { accept: 'multipart/mixed', 'content-type': 'application/json' },
      }),
      {
        status: 400,
        headers: { 'content-type': 'application/json' },
      },
    )
  })

  t.test('att_encoding_info in rows', async (t) => {
    const { get } = await start(t)
    const stub = { content_type: 'text/plain', revpos: 2, digest: digestOf(STORED), length: 29, stub: true }
    const info = { encoding: 'gzip', encoded_length: STORED.length }
    const data = Buffer.from(CODED).toString('base64')
    const coded = async (query: string) => {
      const { json } = await get(`/db/_all_docs?key="x"&include_docs=true${query}`)
      return (json as Rows).rows[0].doc._attachments.coded
    }
    t.same(await coded(''), stub)
    t.same(await coded('&att_encoding_info=true'), { ...stub, ...info })
    t.match(await coded('&attachments=true'), { data, encoding: undefined })
    t.match(await coded('&attachments=true&att_encoding_info=true'), { data, ...info })
  })
})
