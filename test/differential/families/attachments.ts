/** Attachments: written and read in every way, ranges, encodings, multipart bodies. */
import { gzipSync } from 'node:zlib'
import { follows, md5, named, related } from '../../helpers/related.ts'
import type { CarefulChoices as Choices } from '../careful.ts'
import type { Step } from '../step.ts'
import { type Family, flag, get, json, query, revision } from './family.ts'

const DOCS = ['d0', 'd1', 'd2'] as const
const NAMES = ['a.txt', 'b.bin', 'f/c.txt', 'é', 'a b', '+'] as const
const ODD_NAMES = ['_x', '', 'a%2Fb', '..', 'a"b'] as const
const CONTENTS = [
  'hello',
  'hello hello hello hello hello hello hello',
  '',
  'x'.repeat(5000),
  '\u00e9\u00e8',
] as const
const TYPES = [
  'text/plain',
  'image/png',
  'application/json',
  'text/plain; charset=utf-8',
  'application/octet-stream',
] as const
const RANGES = [
  'bytes=0-',
  'bytes=0-0',
  'bytes=0-3',
  'bytes=2-2',
  'bytes=-2',
  'bytes=1-1,3-4',
  'bytes=0-9999',
  'bytes=9999-',
  'bytes=3-2',
  'bytes=',
  'bytes=x',
  'items=0-1',
  'bytes=-0',
  'bytes=0-4',
  'bytes=-9999',
  'bytes=0-1,9999-',
]

function path(c: Choices, of: string): string {
  const name = c.mostly<string>(NAMES, ODD_NAMES, 0.05)
  return `/{db}/${of}/${name.split('/').map(encodeURIComponent).join('/')}`
}

function entry(c: Choices): unknown {
  const data = Buffer.from(c.pick(CONTENTS)).toString('base64')
  return c.mostly<unknown>(
    [{ data, content_type: c.pick(TYPES) }, { data }, { stub: true }, { stub: true, revpos: 1 }],
    [
      {},
      { data: 1 },
      { data: '%' },
      { data: 'aGk' },
      { stub: false },
      { follows: true },
      { data, content_type: 1 },
      { data, content_type: null },
      { data, digest: 'md5-x' },
      { data, length: 1 },
      { data, revpos: 7 },
      { stub: true, digest: 'md5-x' },
      1,
      null,
      { data: null },
      { data, encoding: 'gzip' },
      { data, x: 1 },
      { data, revpos: 0 },
    ],
    0.2,
  )
}

function multipart(c: Choices, of: string): Step {
  const names = c.some(NAMES.slice(0, 3), 0.6)
  // Without parts CouchDB waits for more.
  if (names.length === 0) names.push('a.txt')
  const parts = names.map((name) => ({ name, content: c.pick(CONTENTS) }))
  const attachments = Object.fromEntries(
    parts.map(({ name, content }) => [
      name,
      follows(
        content,
        c.mostly<Record<string, unknown>>(
          [{}, { digest: md5(content) }, { revpos: 1 }],
          [{ length: 1 }, { digest: 'md5-AAAAAAAAAAAAAAAAAAAAAA==' }, { follows: false }, { length: -1 }],
          0.1,
        ),
      ),
    ]),
  )
  const doc = { _rev: revision(c, of), _attachments: attachments, ...(c.chance(0.2) && { _deleted: true }) }
  if (doc._rev === '' || c.chance(0.2)) Reflect.deleteProperty(doc, '_rev')
  const body = related(
    'frontier',
    doc,
    parts.map(({ name, content }) => ({ content, ...(c.chance(0.7) && named(name)) })),
  )
  const type = c.mostly(
    ['multipart/related; boundary=frontier', 'multipart/related;boundary="frontier"'],
    ['multipart/related', 'multipart/mixed; boundary=frontier', 'multipart/related; boundary=other'],
    0.1,
  )
  return {
    method: 'PUT',
    path: `/{db}/${of}${c.chance(0.1) ? '?new_edits=false' : ''}`,
    headers: { 'Content-Type': type },
    body: body.toString('utf8'),
  }
}

function step(c: Choices): Step {
  const of = c.pick(DOCS)
  switch (
    c.weighted({
      get: 26,
      head: 6,
      put: 18,
      delete: 6,
      inline: 12,
      doc: 16,
      multipart: 9,
      bulkGet: 3,
      changes: 2,
      all: 2,
    })
  ) {
    case 'get':
      return get(path(c, of) + query(c, { rev: (c) => revision(c, of) }, 1), {
        ...(c.chance(0.4) && { Range: c.pick(RANGES) }),
        ...(c.chance(0.3) && {
          'Accept-Encoding': c.pick([
            'gzip',
            'identity',
            'deflate',
            '*',
            'gzip;q=0',
            'gzip, deflate',
            'x',
            'identity;q=0',
          ]),
        }),
        ...(c.chance(0.15) && { 'If-None-Match': c.pick(['"{etag}"', '*', '"x"', '{etag}']) }),
        ...(c.chance(0.05) && { 'If-Range': c.pick(['"{etag}"', '"x"']) }),
      })
    case 'head':
      return { method: 'HEAD', path: path(c, of) + query(c, { rev: (c) => revision(c, of) }, 1) }
    case 'put': {
      const content = c.pick(CONTENTS)
      const packed = c.chance(0.12)
      return {
        method: 'PUT',
        path:
          path(c, of) +
          query(
            c,
            {
              rev: () => c.pick([`{rev:${of}}`, `{rev:${of}}`, revision(c, of)]),
              batch: () => 'ok',
              new_edits: flag,
            },
            2,
          ),
        body: packed ? gzipSync(content) : content,
        headers: {
          ...(c.chance(0.9) && { 'Content-Type': c.mostly<string>(TYPES, ['x', ''], 0.1) }),
          ...(packed && { 'Content-Encoding': 'gzip' }),
          ...(c.chance(0.02) && { 'Content-Encoding': c.pick(['x', 'identity', 'gzip']) }),
          ...(c.chance(0.08) && {
            'Content-MD5': c.pick([md5(content).slice(4), 'AAAAAAAAAAAAAAAAAAAAAA==', 'x']),
          }),
          ...(c.chance(0.15) && { 'If-Match': c.pick([`{rev:${of}}`, `"{rev:${of}}"`, '*']) }),
        },
      }
    }
    case 'delete':
      return {
        method: 'DELETE',
        path:
          path(c, of) + query(c, { rev: () => c.pick([`{rev:${of}}`, `{rev:${of}}`, revision(c, of)]) }, 1),
      }
    case 'inline': {
      const isKnown = c.chance(0.85)
      const names = c.some<string>(NAMES, 0.35)
      if (c.chance(0.05)) names.push(c.pick(ODD_NAMES))
      return json('PUT', `/{db}/${of}`, {
        ...(isKnown && { _rev: `{rev:${of}}` }),
        _attachments: Object.fromEntries(names.map((name) => [name, entry(c)])),
        ...(c.chance(0.1) && { _deleted: true }),
      })
    }
    case 'doc':
      return get(
        `/{db}/${of}${query(c, { attachments: flag, att_encoding_info: flag, atts_since: () => c.pick([`["{rev:${of}}"]`, `["{old:${of}}"]`, '[]', 'x', `["7-${'7'.repeat(32)}"]`]), rev: (c) => revision(c, of), open_revs: () => c.pick(['all', `["{rev:${of}}"]`]), revs: flag })}`,
        { Accept: c.pick(['application/json', 'application/json', 'multipart/related', 'multipart/mixed']) },
      )
    case 'multipart':
      return multipart(c, of)
    case 'bulkGet':
      return json('POST', `/{db}/_bulk_get${query(c, { attachments: flag, revs: flag })}`, {
        docs: c.list(3, () => ({ id: c.pick(DOCS), ...(c.chance(0.4) && { atts_since: [`{rev:${of}}`] }) })),
      })
    case 'changes':
      return get(
        '/{db}/_changes' +
          query(c, { include_docs: () => 'true', attachments: flag, att_encoding_info: flag }),
      )
    case 'all':
      return get(
        '/{db}/_all_docs' +
          query(c, { include_docs: () => 'true', attachments: flag, att_encoding_info: flag }),
      )
  }
}

function begin(c: Choices): Step[] {
  const _attachments = {
    'a.txt': { data: Buffer.from('hello hello hello hello').toString('base64'), content_type: 'text/plain' },
    'b.bin': { data: 'AAECAwQFBgc=' },
  }
  return [
    json('PUT', '/{db}/d0', { _attachments }),
    {
      method: 'PUT',
      path: '/{db}/d1/a.txt',
      headers: { 'Content-Type': c.pick(TYPES) },
      body: c.pick(CONTENTS),
    },
  ]
}

export const attachments: Family = { begin, step }
