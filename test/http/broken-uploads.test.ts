/** Uploads of attachments that lie about themselves or are cut off. */

import { connect as connectSocket } from 'node:net'
import { gzipSync } from 'node:zlib'
import t from 'tap'
import { follows, md5, named, type RelatedPart, related } from '../helpers/related.ts'
import type { Ask } from './client.ts'
import { bad, LARGE, OTHER_LARGE, RELATED, type Refusal, startUntouched } from './untouched.ts'

/**
 * False statements about attachments, over every call: PUT and POST of JSON, `_bulk_docs`, multipart/related, and PUT of an
 * attachment. Each is an error, after which the database's file is unchanged row by row, and no body is left in the folder
 * of bodies. Statements that CouchDB ignores, such as the digest of inline data, are ignored here, too. Protocol.md 1.2, 4.1,
 * 7.1, 7.2, 7.4.
 */
t.test('lies', async (t) => {
  const BASE64 = LARGE.toString('base64')
  /** With which nothing is wrong. */
  const FINE = { data: Buffer.alloc(3000, 'fine').toString('base64') }

  t.setTimeout(900_000)

  const CONTROL = bad('Attachment name must not contain control characters')
  const SEGMENT = bad('Attachment name must not contain the segments . or ..')

  /** A revision as a replicator names it, above one that may be stored. */
  function replica(doc: object, parent: string): object {
    const [, id] = parent.split('-') as [string, string]
    return { ...doc, _revisions: { start: 2, ids: ['f'.repeat(32), id] } }
  }

  /** The ways of JSON, each with a document that is to be written over the revision `rev` of `doc`. */
  const JSON_WAYS: readonly {
    readonly way: string
    readonly isReplication?: true
    ask(doc: object, rev: string): [method: string, path: string, ask: Ask]
  }[] = [
    { way: 'PUT', ask: (doc, _rev) => ['PUT', '/db/doc', { json: { _rev, ...doc } }] },
    { way: 'POST', ask: (doc, _rev) => ['POST', '/db', { json: { _id: 'doc', _rev, ...doc } }] },
    {
      way: '_bulk_docs, behind a good one',
      ask: (doc, _rev) => [
        'POST',
        '/db/_bulk_docs',
        { json: { docs: [good('a'), { _id: 'doc', _rev, ...doc }] } },
      ],
    },
    {
      way: '_bulk_docs, before a good one',
      ask: (doc, _rev) => [
        'POST',
        '/db/_bulk_docs',
        { json: { docs: [{ _id: 'doc', _rev, ...doc }, good('a')] } },
      ],
    },
    {
      way: 'PUT, replicated',
      isReplication: true,
      ask: (doc, rev) => ['PUT', '/db/doc?new_edits=false', { json: replica(doc, rev) }],
    },
    {
      way: '_bulk_docs, replicated',
      isReplication: true,
      ask: (doc, rev) => {
        const docs = [replica({ ...good('a') }, rev), replica({ _id: 'doc', ...doc }, rev)]
        return ['POST', '/db/_bulk_docs', { json: { new_edits: false, docs } }]
      },
    },
  ]

  function good(_id: string) {
    return { _id, _attachments: { fine: FINE } }
  }

  const INLINE: readonly [title: string, entries: unknown, expected: Refusal][] = [
    ['no base64', { a: { data: 'notBase64Encoded=' } }, bad('Invalid attachment data for a')],
    ['base64 cut', { a: { data: `${BASE64}abc` } }, bad('Invalid attachment data for a')],
    ['base64 for addresses', { a: { data: 'ab_-' } }, bad('Invalid attachment data for a')],
    ['padding within', { a: { data: 'ab==abcd' } }, bad('Invalid attachment data for a')],
    ['data that is no text', { a: { data: 7 } }, bad('Invalid attachment data for a')],
    ['no data', { a: { content_type: 'a/b' } }, bad('Invalid attachment data for a')],
    ['a stub that is none', { a: { stub: false } }, bad('Invalid attachment data for a')],
    ['following, where nothing follows', { a: follows('x') }, bad('Invalid attachment data for a')],
    ['a type that is no text', { a: { data: '', content_type: 7 } }, bad('Invalid attachment data for a')],
    ['an entry that is none', { a: 'x' }, bad('Invalid attachment data for a')],
    ['entries that are none', [], { status: 400, reason: 'Bad special document member: _attachments' }],
    ['an underscore', { _a: { data: '' } }, bad("Attachment name '_a' starts with prohibited character '_'")],
    [
      'a stub of nothing',
      { b: { stub: true } },
      { status: 412, reason: 'Invalid attachment stub in doc for b' },
    ],
    [
      'a stub with another revpos',
      { small: { stub: true, revpos: 2 } },
      { status: 412, reason: 'Invalid attachment stub in doc for small' },
    ],
    [
      'a stub with revpos 0',
      { large: { stub: true, revpos: 0 } },
      { status: 412, reason: 'Invalid attachment stub in doc for large' },
    ],
  ]

  /** Refused in new documents, accepted from replication: they have no address, and are harmless. */
  const NAMES: readonly [title: string, name: string, expected: Refusal][] = [
    ['an empty name', '', bad('Attachment name must not be empty')],
    ['NUL', 'a\0b', CONTROL],
    ['a line end', 'a\r\nX: y', CONTROL],
    ['..', '..', SEGMENT],
    ['a way up', '../../etc/passwd', SEGMENT],
    ['a way up within', 'a/../../b', SEGMENT],
    ['.', 'a/./b', SEGMENT],
  ]

  t.test('in JSON', async (t) => {
    const { call, rev, refused } = await startUntouched(t)
    for (const { way, ask, isReplication } of JSON_WAYS) {
      for (const [title, entries, expected] of INLINE) {
        const more = Array.isArray(entries) ? entries : { fine: FINE, ...(entries as object) }
        const asked = ask({ _attachments: more }, rev)
        refused(t, `${way}: ${title}`, await call(...asked), expected)
      }
      if (isReplication) continue
      for (const [title, name, expected] of NAMES) {
        const asked = ask({ _attachments: { fine: FINE, [name]: { data: 'eA==' } } }, rev)
        refused(t, `${way}: ${title}`, await call(...asked), expected)
      }
    }
  })

  t.test('odd but legal names, and ignored members', async (t) => {
    const { call, rev } = await startUntouched(t)
    const lies = { digest: md5('another'), length: 1, revpos: 7, encoding: 'gzip', encoded_length: 1 }
    const names = ['a/b', '/', 'a//b', '...', 'a..b', 'ä%2F', '"', 'constructor']
    const _attachments = Object.fromEntries(names.map((name) => [name, { data: 'dHJ1ZQ==', ...lies }]))
    await call('PUT', '/db/strange', { json: { _attachments } })
    const docs = [{ _id: 'bulk', _attachments }]
    t.match(await call('POST', '/db/_bulk_docs', { json: { docs } }), { status: 201, json: [{ ok: true }] })
    const stub = { length: 4, digest: md5('true'), stub: true }
    const truth = (revpos: number) => Object.fromEntries(names.map((name) => [name, { ...stub, revpos }]))
    for (const id of ['strange', 'bulk']) {
      t.match((await call('GET', `/db/${id}`)).json, { _attachments: truth(1) }, id)
      t.equal((await call('GET', `/db/${id}/a/b`)).text, 'true')
    }
    // Replication alone says what the revpos is.
    const replicated = replica({ _id: 'doc', _attachments }, rev)
    const answer = await call('POST', '/db/_bulk_docs', { json: { new_edits: false, docs: [replicated] } })
    t.strictSame(answer.json, [])
    t.match((await call('GET', '/db/doc')).json, { _attachments: truth(7) })
    const headers = { 'content-md5': 'bm9uZSBvZiBpdHMgb3du', 'content-type': 'a/b' }
    t.match(await call('PUT', '/db/alone/a', { body: 'true', headers }), { status: 201 })
    t.match((await call('GET', '/db/alone')).json, { _attachments: { a: { ...stub, revpos: 1 } } })
  })

  type Entries = Readonly<Record<string, unknown>>

  const ZIPPED = gzipSync(LARGE)
  const CODED = { follows: true, encoding: 'gzip', encoded_length: ZIPPED.length }
  const large: RelatedPart = { content: LARGE }

  /** Each behind an attachment that is staged already when the lie is found, and one that stays as it is. */
  const FOLLOWING: readonly [title: string, entries: Entries, parts: RelatedPart[], expected: Refusal][] = [
    ['longer', { b: follows('on') }, [{ content: 'one' }], bad('attachment longer than expected')],
    ['shorter', { b: follows('one!') }, [{ content: 'one' }], bad('attachment shorter than expected')],
    [
      'a large one, longer',
      { b: { ...follows(OTHER_LARGE), length: 599_999 } },
      [{ content: OTHER_LARGE }],
      bad('attachment longer than expected'),
    ],
    ['a length that is none', { b: follows('one', { length: 3.5 }) }, [{ content: 'one' }], bad()],
    ['digest', { b: follows('one', { digest: md5('two') }) }, [{ content: 'one' }], bad('md5_mismatch')],
    [
      'digest of a large one',
      { b: follows(OTHER_LARGE, { digest: md5(LARGE) }) },
      [{ content: OTHER_LARGE }],
      bad('md5_mismatch'),
    ],
    [
      'digest of what gzip decodes to',
      { b: { ...CODED, digest: md5(LARGE) } },
      [{ content: ZIPPED }],
      bad('md5_mismatch'),
    ],
    [
      'no gzip',
      { b: { follows: true, encoding: 'gzip' } },
      [large],
      bad('Request body is not properly gzipped.'),
    ],
    [
      'gzip that is cut',
      { b: { follows: true, encoding: 'gzip' } },
      [{ content: ZIPPED.subarray(0, -9) }],
      bad('Request body is not properly gzipped.'),
    ],
    [
      'another coding',
      { b: follows('one', { encoding: 'br' }) },
      [{ content: 'one' }],
      { status: 415, reason: 'Only gzip and identity content-encodings are supported' },
    ],
    ['a part missing', { b: follows('one') }, [], bad()],
    ['a part too many', {}, [{ content: 'one' }], bad()],
    [
      'a boundary in the content',
      { b: follows('one\r\n--B\r\n\r\ntwo') },
      [{ content: 'one\r\n--B\r\n\r\ntwo' }],
      bad(),
    ],
    [
      'the last boundary in the content',
      { b: follows('one\r\n--B--\r\ntwo') },
      [{ content: 'one\r\n--B--\r\ntwo' }],
      bad('attachment shorter than expected'),
    ],
    ['inline data that is none', { b: { data: 'x' } }, [], bad('Invalid attachment data for b')],
    ['a name with an underscore', { _b: follows('one') }, [{ content: 'one' }], bad()],
    [
      'a stub of nothing',
      { b: { stub: true } },
      [],
      { status: 412, reason: 'Invalid attachment stub in doc for b' },
    ],
    [
      'a stub with another revpos',
      { large: { stub: true, revpos: 2 } },
      [],
      { status: 412, reason: 'Invalid attachment stub in doc for large' },
    ],
  ]

  t.test('in multipart/related', async (t) => {
    const { call, rev, refused } = await startUntouched(t)
    const put = (entries: Entries, parts: RelatedPart[], isReplication: boolean, boundary = 'B') => {
      const doc = { _attachments: { a: follows(LARGE), small: { stub: true }, ...entries } }
      const body = related(boundary, isReplication ? replica(doc, rev) : { _rev: rev, ...doc }, [
        large,
        ...parts,
      ])
      return call('PUT', `/db/doc?new_edits=${!isReplication}`, { body, headers: RELATED })
    }
    for (const isReplication of [false, true]) {
      const way = isReplication ? 'replicated, ' : ''
      for (const [title, entries, parts, expected] of FOLLOWING) {
        refused(t, way + title, await put(entries, parts, isReplication), expected)
      }
      refused(t, `${way}another boundary`, await put({}, [], isReplication, 'C'), bad())
      const swapped = [
        { content: LARGE, ...named('b') },
        { content: OTHER_LARGE, ...named('a') },
      ]
      const doc = { _attachments: { a: follows(LARGE), b: follows(OTHER_LARGE) } }
      const body = related('B', isReplication ? replica(doc, rev) : { _rev: rev, ...doc }, swapped)
      const answer = await call('PUT', `/db/doc?new_edits=${!isReplication}`, { body, headers: RELATED })
      refused(t, `${way}parts with each other's names`, answer, bad('attachment shorter than expected'))
    }
    for (const [title, name, expected] of NAMES) {
      refused(t, title, await put({ [name]: follows('one') }, [{ content: 'one' }], false), expected)
    }
    const stale = related('B', { _attachments: { a: follows(LARGE) } }, [large])
    refused(t, 'no revision', await call('PUT', '/db/doc', { body: stale, headers: RELATED }), {
      status: 409,
    })
    const unfinished = stale.subarray(0, -2)
    refused(t, 'no end', await call('PUT', '/db/new', { body: unfinished, headers: RELATED }), bad())
    const json = await call('PUT', '/db/new', {
      body: stale,
      headers: { 'content-type': 'application/json' },
    })
    refused(t, 'multipart said to be JSON', json, bad())
    const plain = await call('PUT', '/db/new', { body: '{}', headers: RELATED })
    refused(t, 'JSON said to be multipart', plain, bad())
  })

  t.test('at their own addresses', async (t) => {
    const { call, rev, refused } = await startUntouched(t)
    const gzip = { 'content-encoding': 'gzip' }
    const cases: [title: string, path: string, ask: Ask, expected: Refusal][] = [
      ['no gzip', `a?rev=${rev}`, { headers: gzip }, bad('Request body is not properly gzipped.')],
      ['gzip that is cut', `a?rev=${rev}`, { headers: gzip, body: ZIPPED.subarray(0, -1) }, bad()],
      ['another coding', `a?rev=${rev}`, { headers: { 'content-encoding': 'br' } }, { status: 415 }],
      ['an underscore', `_a?rev=${rev}`, {}, bad()],
      ['NUL', `a%00b?rev=${rev}`, {}, CONTROL],
      ['a line end', `a%0D%0Ab?rev=${rev}`, {}, CONTROL],
      ['..', `%2E%2E?rev=${rev}`, {}, SEGMENT],
      ['a way up', `..%2F..%2Fetc?rev=${rev}`, {}, SEGMENT],
      ['a way up within', `a/b%2F..%2Fc?rev=${rev}`, {}, SEGMENT],
      ['no revision', 'a', {}, { status: 409 }],
      ['an unknown revision', `a?rev=2-${'0'.repeat(32)}`, {}, { status: 409, reason: 'missing_rev' }],
      ['two revisions', `a?rev=${rev}`, { headers: { 'if-match': '"1-x"' } }, bad()],
      ['no UTF-8', `%ff?rev=${rev}`, {}, bad('invalid_url_encoding')],
    ]
    for (const [title, path, ask, expected] of cases) {
      refused(t, title, await call('PUT', `/db/doc/${path}`, { body: LARGE, ...ask }), expected)
    }
    const local = await call('PUT', '/db/_local/l/a', { body: LARGE })
    refused(t, 'of a _local document', local, bad('_local documents do not accept attachments.'))
  })

  t.test('too large, over every call', async (t) => {
    const { call, rev, refused } = await startUntouched(t)
    await call('PUT', '/_node/_local/_config/couchdb/max_attachment_size', { json: '650000' })
    const refusal = { status: 413, reason: 'b' }
    const fits = Buffer.alloc(640_000, 'x')
    const fine = { data: fits.toString('base64') }
    for (const { way, ask } of JSON_WAYS) {
      // The good ones of a bulk would be too large themselves.
      if (way.startsWith('_bulk_docs')) continue
      refused(t, way, await call(...ask({ _attachments: { a: fine, b: { data: BASE64 } } }, rev)), refusal)
    }
    const docs = [
      { _id: 'a', _attachments: { a: fine } },
      { _id: 'b', _attachments: { b: { data: BASE64 } } },
    ]
    refused(t, '_bulk_docs', await call('POST', '/db/_bulk_docs', { json: { docs } }), refusal)
    refused(t, 'by itself', await call('PUT', `/db/doc/b?rev=${rev}`, { body: LARGE }), refusal)
    const ask = { body: ZIPPED, headers: { 'content-encoding': 'gzip' } }
    refused(t, 'by itself, decoded', await call('PUT', `/db/doc/b?rev=${rev}`, ask), refusal)
    for (const [title, entry, content] of [
      ['behind its document', follows(LARGE), LARGE],
      ['behind its document, decoded', CODED, ZIPPED],
    ] as const) {
      const doc = { _rev: rev, _attachments: { a: follows(fits), b: entry } }
      const body = related('B', doc, [{ content: fits }, { content }])
      refused(t, title, await call('PUT', '/db/doc', { body, headers: RELATED }), refusal)
    }
  })
})

/** Uploads of attachments that are cut, through every way in: nothing is stored, and nothing is left of their bodies. */
t.test('cuts', async (t) => {
  /** The requests that store `LARGE`: each is cut at every boundary of the chunks that it is sent in. */
  function uploads(
    rev: string,
  ): [title: string, path: string, type: string, body: Buffer, coding?: string][] {
    const a = { data: LARGE.toString('base64') }
    const doc = { _id: 'doc', _rev: rev, _attachments: { a } }
    const json = 'application/json'
    const one = Buffer.from(JSON.stringify(doc))
    const many = Buffer.from(
      JSON.stringify({ docs: [{ _id: 'first' }, doc, { _id: 'last', _attachments: { a } }] }),
    )
    const multipart = related('B', { _rev: rev, _attachments: { a: follows(LARGE) } }, [{ content: LARGE }])
    return [
      ['PUT', 'PUT /db/doc', json, one],
      ['POST', 'POST /db', json, one],
      ['PUT, gzipped', 'PUT /db/doc', json, gzipSync(one, { level: 0 }), 'gzip'],
      ['_bulk_docs', 'POST /db/_bulk_docs', json, many],
      ['multipart/related', 'PUT /db/doc', RELATED['content-type'], multipart],
      [
        'multipart/related, gzipped',
        'PUT /db/doc',
        RELATED['content-type'],
        gzipSync(multipart, { level: 0 }),
        'gzip',
      ],
      ['by itself', `PUT /db/doc/a?rev=${rev}`, 'a/b', LARGE],
      ['by itself, gzipped', `PUT /db/doc/a?rev=${rev}`, 'a/b', gzipSync(LARGE, { level: 0 }), 'gzip'],
    ]
  }

  t.test('an upload cut at every boundary of its chunks', async (t) => {
    const { call, url, rev, isUntouched } = await startUntouched(t)
    // Some of the bodies are spooled, some are not.
    await call('PUT', '/_node/_local/_config/settee/body_memory', { json: '1048576' })
    for (const [title, line, type, body, coding] of uploads(rev)) {
      const about = `Host: localhost\r\nContent-Type: ${type}\r\n${coding ? `Content-Encoding: ${coding}\r\n` : ''}`
      const chunks = inChunks(body, Math.ceil(body.length / 7))
      const ends = chunks.map((_, at) => Buffer.concat(chunks.slice(0, at)))
      const whole = Buffer.concat(chunks)
      // The last of them lacks only the end of the last, empty chunk.
      const cuts = [...ends, whole, Buffer.concat([whole, Buffer.from('0\r\n')])]
      const head = Buffer.from(`${line} HTTP/1.1\r\n${about}Transfer-Encoding: chunked\r\n\r\n`)
      const statuses = await Promise.all(cuts.map((cut) => sendAndCut(url, Buffer.concat([head, cut]))))
      t.ok(
        statuses.every((status) => status === undefined || status === 400),
        `${title}: ${statuses}`,
      )
      const sized = Buffer.from(`${line} HTTP/1.1\r\n${about}Content-Length: ${body.length}\r\n\r\n`)
      const short = [0, 1, body.length - 1].map((end) => Buffer.concat([sized, body.subarray(0, end)]))
      await Promise.all(short.map((bytes) => sendAndCut(url, bytes)))
      isUntouched(t, title)
    }
    for (const [title, line, type, body, coding] of uploads(rev).slice(-1)) {
      const [method, path] = line.split(' ') as [string, string]
      const headers = { 'content-type': type, ...(coding && { 'content-encoding': coding }) }
      t.match(await call(method, path, { body, headers }), { status: 201 }, `${title}, whole`)
    }
  })

  /** The body in the chunks of `Transfer-Encoding: chunked`, without the last, empty one. */
  function inChunks(body: Buffer, size: number): Buffer[] {
    return Array.from({ length: Math.ceil(body.length / size) }, (_, n) => {
      const chunk = body.subarray(n * size, (n + 1) * size)
      return Buffer.concat([Buffer.from(`${chunk.length.toString(16)}\r\n`), chunk, Buffer.from('\r\n')])
    })
  }

  /** Sends all of it, then closes; resolves when the server has closed, too, with the status it answered, if it did. */
  function sendAndCut(url: string, bytes: Buffer): Promise<number | undefined> {
    const { port } = new URL(url)
    return new Promise((resolve, reject) => {
      let answer = ''
      const socket = connectSocket(Number(port), '127.0.0.1', () => socket.end(bytes))
      socket.setEncoding('latin1').on('data', (text: string) => {
        answer += text
      })
      socket.on('error', reject)
      socket.on('close', () => {
        const [, status] = /^HTTP\/1\.1 (\d+)/.exec(answer) ?? []
        resolve(status === undefined ? undefined : Number(status))
      })
    })
  }
})
