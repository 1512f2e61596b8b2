/** Single documents: every method, parameter and header. */
import type { CarefulChoices as Choices } from '../careful.ts'
import type { Step } from '../step.ts'
import {
  anyId,
  count,
  docPath,
  document,
  type Family,
  filled,
  flag,
  get,
  HASHES,
  json,
  ODD_REVS,
  oddBody,
  query,
  revision,
  typed,
  type Value,
} from './family.ts'

const revs: Value = (c) =>
  c.mostly(
    [`["{rev:d1}"]`, '["{rev:d1}","{old:d1}"]', 'all', '[]', `["1-${HASHES[0]}"]`],
    ['{}', '"all"', '', '[1]', 'x', '["x"]', 'null'],
    0.2,
  )

const reading = (of: string): Readonly<Record<string, Value>> => ({
  rev: (c) => revision(c, of),
  revs: flag,
  revs_info: flag,
  conflicts: flag,
  deleted_conflicts: flag,
  meta: flag,
  local_seq: flag,
  latest: flag,
  open_revs: (c) => revs(c).replaceAll(':d1', `:${of}`),
  attachments: flag,
  att_encoding_info: flag,
  atts_since: (c) => revs(c).replaceAll(':d1', `:${of}`),
  r: count,
})

const writing = (of: string): Readonly<Record<string, Value>> => ({
  rev: (c) => revision(c, of),
  new_edits: flag,
  batch: (c) => c.mostly(['ok'], ['', 'true', 'x']),
  w: count,
})

const ACCEPTS = [
  'application/json',
  '*/*',
  'multipart/mixed',
  'multipart/related',
  'text/plain',
  'text/html,application/xhtml+xml',
  '',
]

function conditions(c: Choices, of: string): Record<string, string> {
  return {
    ...(c.chance(0.1) && {
      'If-None-Match': c.pick([
        '"{etag}"',
        `"${revision(c, of)}"`,
        '*',
        '{etag}',
        'W/"{etag}"',
        '"x", "{etag}"',
      ]),
    }),
    ...(c.chance(0.3) && { Accept: c.pick(ACCEPTS) }),
    ...(c.chance(0.03) && { Prefer: 'return=minimal' }),
  }
}

/** A document's body, mostly as it should be. */
export function body(c: Choices, of: string): string {
  if (c.oddly(0.06)) return oddBody(c)
  const doc: Record<string, unknown> = document(c)
  if (c.chance(0.6)) doc._rev = revision(c, of)
  if (c.oddly(0.1)) doc._id = c.pick([of, 'other', '', 1, null, '_x'])
  if (c.chance(0.1)) doc._deleted = c.mostly<unknown>([true, false], [1, 'true', null], 0.3)
  if (c.oddly(0.05))
    Object.assign(
      doc,
      c.pick([
        { _rev: 1 },
        { _rev: null },
        { _x: 1 },
        { _conflicts: [] },
        { _revs_info: [] },
        { _local_seq: 1 },
        { _revisions: 1 },
        { _revisions: { start: 1, ids: ['a'] } },
        { _attachments: null },
        { _attachments: [] },
        { _attachments: {} },
        { _attachments: { a: {} } },
        { _attachments: { a: 1 } },
        { _deleted_conflicts: [] },
        { _access: [] },
        { _: 1 },
      ]),
    )
  return JSON.stringify(doc)
}

function copy(c: Choices, of: string): Step {
  const to = c.pick(['d1', 'new', 'd4', '_local/c', '_design/c', 'x%2Fy', 'x/y', 'a%20b'])
  const destination = c.mostly(
    [to, `${to}?rev={rev:${to}}`, `${to}?rev={rev:d0}`],
    [
      `/{db}/${to}`,
      '',
      '?rev=1-a',
      `${to}?rev=`,
      `${to}?rev=x`,
      `${to}?foo=1`,
      `http://HOST/{db}/${to}`,
      `http://example.org/${to}`,
      'é',
      '%zz',
      '_x',
    ],
    0.2,
  )
  return {
    method: 'COPY',
    path: docPath(of) + query(c, { rev: (c) => revision(c, of), batch: () => 'ok' }, 1),
    headers: c.chance(0.03) ? {} : { Destination: destination },
  }
}

function local(c: Choices): Step {
  const of = `_local/${c.pick(['l', 'm', 'a/b', 'é'])}`
  const path = docPath(of)
  switch (c.weighted({ get: 4, put: 5, delete: 2, list: 1, head: 1, bulk: 1 })) {
    case 'get':
      return get(path + query(c, reading(of), 2))
    case 'head':
      return { method: 'HEAD', path }
    case 'put':
      return json(
        'PUT',
        path + query(c, { rev: () => `{rev:${of}}`, new_edits: flag, batch: () => 'ok' }, 1),
        c.mostly<unknown>(
          [{ n: 1, _rev: `{rev:${of}}` }, { n: 2 }, { n: 1, _rev: '0-1' }],
          [
            { _deleted: true, _rev: `{rev:${of}}` },
            { _attachments: { a: { data: 'aGk=' } } },
            { _x: 1 },
            '[]',
            '{',
            { _id: 'x' },
          ],
          0.3,
        ),
      )
    case 'delete':
      return {
        method: 'DELETE',
        path:
          path + query(c, { rev: () => c.pick([`{rev:${of}}`, '0-1', '0-9', 'x']), batch: () => 'ok' }, 2),
      }
    case 'list':
      return get(
        `/{db}/_local_docs${query(c, { include_docs: flag, limit: count, descending: flag, key: () => '"_local/l"', startkey: () => '"_local/m"' })}`,
      )
    case 'bulk':
      return json('POST', '/{db}/_bulk_docs', {
        docs: [
          {
            _id: of,
            n: 3,
            ...(c.chance(0.6) && { _rev: `{rev:${of}}` }),
            ...(c.chance(0.2) && { _deleted: true }),
          },
        ],
        ...(c.chance(0.2) && { new_edits: false }),
      })
  }
}

function bulk(c: Choices): Step {
  const docs = c.list(4, () => {
    const of = anyId(c)
    const doc = c.chance(0.95)
      ? (JSON.parse(body(c, of) === '' ? '{}' : safe(body(c, of))) as unknown)
      : c.pick([1, null, 'x', []])
    return typeof doc === 'object' && doc !== null && !Array.isArray(doc) && c.chance(0.9)
      ? { _id: of, ...doc }
      : doc
  })
  const more = c.chance(0.1)
    ? c.pick([
        { new_edits: true },
        { all_or_nothing: true },
        { all_or_nothing: false },
        { new_edits: 'x' },
        { x: 1 },
      ])
    : {}
  if (c.oddly(0.05)) return json('POST', '/{db}/_bulk_docs', oddBody(c), typed(c))
  return json('POST', '/{db}/_bulk_docs', { docs, ...more }, typed(c))
}

/** JSON, whatever the text is. */
function safe(text: string): string {
  try {
    JSON.parse(text)
    return text
  } catch {
    return '{}'
  }
}

function bulkGet(c: Choices): Step {
  const docs = c.list(4, () => {
    const of = anyId(c)
    return c.mostly<unknown>(
      [
        { id: of },
        { id: of, rev: revision(c, of) },
        { id: of, rev: revision(c, of), atts_since: [`{rev:${of}}`] },
      ],
      [
        {},
        { rev: '1-a' },
        { id: 1 },
        { id: of, rev: 1 },
        { id: of, atts_since: [] },
        { id: of, rev: null },
        1,
      ],
      0.15,
    )
  })
  const asked = c.chance(0.95) ? { docs } : c.pick<unknown>([{}, { docs: {} }, { keys: [] }, []])
  return json(
    'POST',
    `/{db}/_bulk_get${query(c, { revs: flag, latest: flag, attachments: flag, r: count })}`,
    asked,
    c.chance(0.15) ? { Accept: c.pick(ACCEPTS) } : {},
  )
}

function step(c: Choices): Step {
  const of = anyId(c)
  const path = docPath(of)
  switch (
    c.weighted({ get: 30, head: 5, put: 22, delete: 9, post: 6, copy: 9, local: 12, bulk: 9, bulkGet: 7 })
  ) {
    case 'get':
      return get(path + query(c, reading(of)), conditions(c, of))
    case 'head':
      return { method: 'HEAD', path: path + query(c, reading(of)), headers: conditions(c, of) }
    case 'put':
      return {
        method: 'PUT',
        path: path + query(c, writing(of), 2),
        body: body(c, of),
        headers: {
          ...typed(c),
          ...(c.chance(0.12) && {
            'If-Match': c.pick([`{rev:${of}}`, `"{rev:${of}}"`, '*', '"x"', ...ODD_REVS.slice(0, 4)]),
          }),
          ...(c.chance(0.04) && { 'X-Couch-Full-Commit': c.pick(['true', 'false', 'x']) }),
        },
      }
    case 'delete':
      return {
        method: 'DELETE',
        path: path + query(c, writing(of), 2),
        headers: c.chance(0.15) ? { 'If-Match': c.pick([`{rev:${of}}`, `"{rev:${of}}"`, '*']) } : {},
      }
    case 'post':
      return {
        method: 'POST',
        path: `/{db}${query(c, { batch: (c) => c.pick(['ok', '', 'x']), new_edits: flag, rev: () => '1-a' }, 1)}`,
        body: c.chance(0.5) ? JSON.stringify({ _id: c.pick([of, 'fresh']), ...document(c) }) : body(c, of),
        headers: typed(c),
      }
    case 'copy':
      return copy(c, of)
    case 'local':
      return local(c)
    case 'bulk':
      return bulk(c)
    case 'bulkGet':
      return bulkGet(c)
  }
}

export const documents: Family = { begin: filled, step }
