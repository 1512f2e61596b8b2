/**
 * What hosted mode refuses: each kind of thing that it takes none of, through each way in that a document or an
 * attachment can come. A cell is the requests of one kind through one way, or why there are none.
 */

import { gzipSync } from 'node:zlib'
import type { Database } from '../../src/documents/database.ts'
import { follows, named, related } from '../helpers/related.ts'
import type { Ask } from './client.ts'

export const KINDS = [
  'design document',
  'its tombstone',
  'inline attachment',
  'stub',
  'following attachment',
  'standalone attachment',
] as const
type Kind = (typeof KINDS)[number]

/** Revisions of what is stored from before. */
export interface Stored {
  /** Of `pictured`, with the attachment `a`. */
  readonly pictured: string
  /** Of `plain`, with none. */
  readonly plain: string
  /** Of `_design/old`. */
  readonly design: string
}

export interface Refused {
  readonly title: string
  readonly method: string
  /** Below the database's address. */
  readonly path: string
  readonly ask: Ask
  /** Of a bulk: the id of the document whose row refuses it. */
  readonly row?: string
}

/** @param tag a part of ids that no other cell has */
type Way = (kind: Kind, stored: Stored, tag: string) => readonly Refused[] | string

/** A document that is refused. */
interface Bad {
  readonly title: string
  readonly id: string
  readonly doc: Record<string, unknown>
  /** Its parent's revision, where it is stored already. */
  readonly rev?: string
}

const BOUNDARY = 'B'
const CONTENT = 'the content '.repeat(40_000)
const HEADERS = { 'content-type': `multipart/related;boundary="${BOUNDARY}"` }
const FUNCTIONS = { validate_doc_update: 'function () { throw { forbidden: "run" } }' }
const ONLY_DOCUMENTS = 'it is no part of a document'

/** Documents of a kind: one that is new here, one that follows a stored one. */
function badDocs(kind: Kind, stored: Stored, tag: string): readonly Bad[] {
  const both = (fresh: string, old: string, rev: string, doc: Record<string, unknown>) => [
    { title: 'new', id: fresh, doc },
    { title: 'of a stored one', id: old, rev, doc },
  ]
  const design = (doc: Record<string, unknown>) => both(`_design/${tag}`, '_design/old', stored.design, doc)
  const pictured = (a: Record<string, unknown>) =>
    both(tag, 'pictured', stored.pictured, { n: 1, _attachments: { a } })
  switch (kind) {
    case 'design document':
      return design(FUNCTIONS)
    case 'its tombstone':
      return design({ _deleted: true })
    case 'inline attachment':
      return pictured({ data: Buffer.from(CONTENT).toString('base64'), content_type: 'text/plain' })
    case 'stub':
      return pictured({ stub: true })
    case 'following attachment':
      return pictured(follows(CONTENT))
    case 'standalone attachment':
      return []
  }
}

function addressOf(id: string): string {
  return `/${id.split('/').map(encodeURIComponent).join('/')}`
}

/** With its parent, as an edit; or with a history, as a replicator sends it. */
function withRev({ doc, rev }: Bad, newEdits: boolean): Record<string, unknown> {
  if (newEdits) return { ...doc, ...(rev !== undefined && { _rev: rev }) }
  const ids = ['abc', ...(rev === undefined ? [] : [rev.replace(/^\d+-/, '')])]
  return { ...doc, _revisions: { start: ids.length, ids } }
}

/** A way for documents, one a request. */
function documents(send: (bad: Bad, kind: Kind, tag: string) => Omit<Refused, 'title'>): Way {
  return (kind, stored, tag) => {
    const bad = badDocs(kind, stored, tag)
    return bad.length === 0
      ? ONLY_DOCUMENTS
      : bad.map((each) => ({ title: `${kind}, ${each.title}`, ...send(each, kind, tag) }))
  }
}

function json(value: unknown, query = ''): (bad: Bad) => Omit<Refused, 'title'> {
  return ({ id }) => ({ method: 'PUT', path: addressOf(id) + query, ask: { json: value } })
}

const put = (query: string, newEdits: boolean): Way =>
  documents((bad) => json(withRev(bad, newEdits), query)(bad))

const multipart = (query: string, newEdits: boolean): Way =>
  documents((bad, kind) => {
    const parts = kind === 'following attachment' ? [{ content: CONTENT, ...named('a') }] : []
    const body = related(BOUNDARY, withRev(bad, newEdits), parts)
    return { method: 'PUT', path: addressOf(bad.id) + query, ask: { body, headers: HEADERS } }
  })

const post: Way = documents((bad) => ({
  method: 'POST',
  path: '',
  ask: { json: { ...withRev(bad, true), _id: bad.id } },
}))

/** Between documents that are stored. */
const bulk = (newEdits: boolean): Way =>
  documents((bad, _kind, tag) => {
    const good = (n: number) => {
      const _id = `good-${tag}-${bad.title}-${n}`
      return newEdits ? { _id, n } : { _id, _revisions: { start: 1, ids: ['f'] }, n }
    }
    const docs = [good(1), { ...withRev(bad, newEdits), _id: bad.id }, good(2)]
    return {
      method: 'POST',
      path: '/_bulk_docs',
      ask: { json: { docs, new_edits: newEdits } },
      row: bad.id,
    }
  })

const FORM = 'multipart/form-data; boundary=F'

/** @param referer see routes/document.ts; the test adds the host */
function form(...fields: readonly (readonly [disposition: string, content: string])[]): Ask {
  const parts = fields.map(
    ([disposition, content]) => `--F\r\nContent-Disposition: form-data; ${disposition}\r\n\r\n${content}\r\n`,
  )
  return { body: `${parts.join('')}--F--\r\n`, headers: { 'content-type': FORM } }
}

const FILE = ['name="_attachments"; filename="a"', CONTENT] as const

const formDocument: Way = documents((bad) => ({
  method: 'POST',
  path: addressOf(bad.id),
  ask: form(['name="_doc"', JSON.stringify(withRev(bad, true))]),
}))

const formFile: Way = (kind, { plain, pictured }, tag) => {
  if (kind === 'stub') {
    // The stored document is taken with stubs for what it has.
    const ask = form(['name="_rev"', pictured])
    return [{ title: 'a revision with attachments', method: 'POST', path: '/pictured', ask }]
  }
  if (kind !== 'standalone attachment') return 'a file of a form is an attachment by itself'
  const send = (title: string, path: string, field: readonly [string, string]): Refused => {
    return { title, method: 'POST', path, ask: form(field, FILE) }
  }
  return [
    send('a file beside a new document', `/${tag}`, ['name="_doc"', '{}']),
    send('a file for a stored one', '/plain', ['name="_rev"', plain]),
  ]
}

const remove: Way = (kind, { design }) =>
  kind === 'its tombstone'
    ? [{ title: kind, method: 'DELETE', path: `/_design/old?rev=${design}`, ask: {} }]
    : 'a deletion has no content'

const copy: Way = (kind, { design, plain }, tag) => {
  const send = (title: string, from: string, destination: string): Refused => {
    return { title, method: 'COPY', path: from, ask: { headers: { destination } } }
  }
  switch (kind) {
    case 'design document':
      return [
        send('to a new one', '/plain', `_design/${tag}`),
        send('over a stored one', '/plain', `_design/old?rev=${design}`),
        send('of a stored one', '/_design/old', `_design/${tag}`),
      ]
    case 'stub':
      return [
        send('with its attachments', '/pictured', tag),
        send('over one without', '/pictured', `plain?rev=${plain}`),
      ]
    case 'its tombstone':
      return 'what is copied is live'
    default:
      return 'a copy takes what is stored'
  }
}

const putAttachment: Way = (kind, { pictured, plain, design }, tag) => {
  if (kind !== 'standalone attachment') return 'the address is of one attachment'
  const send = (title: string, path: string, body: Buffer, coding?: string): Refused => {
    const headers = { 'content-type': 'text/plain', ...(coding && { 'content-encoding': coding }) }
    return { title, method: 'PUT', path, ask: { body, headers } }
  }
  const content = Buffer.from(CONTENT)
  return [
    send('to no document', `/${tag}/a`, content),
    send('to a document', `/plain/a?rev=${plain}`, Buffer.from('small')),
    send('over another', `/pictured/a?rev=${pictured}`, content),
    send('gzipped', `/plain/a?rev=${plain}`, gzipSync(content), 'gzip'),
    send('to a design document', `/_design/old/a?rev=${design}`, content),
  ]
}

const removeAttachment: Way = (kind, { pictured }) =>
  kind === 'standalone attachment'
    ? [{ title: 'its removal', method: 'DELETE', path: `/pictured/a?rev=${pictured}`, ask: {} }]
    : 'the address is of one attachment'

/** The ways in, by the method of a database that takes what comes so. */
export const WAYS = {
  put: {
    PUT: put('', true),
    'PUT new_edits=false': put('?new_edits=false', false),
    'PUT batch=ok': put('?batch=ok', true),
    'multipart PUT': multipart('', true),
    'multipart PUT new_edits=false': multipart('?new_edits=false', false),
  },
  post: { POST: post },
  postForm: { 'a form’s document': formDocument, 'a form’s file': formFile },
  remove: { DELETE: remove },
  copy: { COPY: copy },
  bulkDocs: { _bulk_docs: bulk(true), '_bulk_docs new_edits=false': bulk(false) },
  putAttachment: { 'PUT of an attachment': putAttachment },
  removeAttachment: { 'DELETE of an attachment': removeAttachment },
} as const satisfies Partial<Readonly<Record<keyof Database, Readonly<Record<string, Way>>>>>

/** All other methods of a database: no document and no attachment comes in by them. */
export const OTHER_METHODS = [
  ...[
    'info',
    'partitionInfo',
    'checkPartition',
    'size',
    'conflicts',
    'brokenFunctions',
    'security',
    'setSecurity',
    'countDisallowed',
    'damagedLeaves',
    'exportLines',
    'revsLimit',
    'setRevsLimit',
  ],
  'compact',
  ...['purge', 'giveUp', 'purgedInfos', 'purgedInfosLimit', 'setPurgedInfosLimit'],
  ...['open', 'openRevs', 'openParts', 'openRevsMixed', 'bulkGet', 'bulkGetMixed', 'revsDiff', 'missingRevs'],
  ...['allDocs', 'allDocsQueries', 'openAttachment', 'readAttachment'],
  ...['view', 'viewQueries', 'viewInfo', 'changes', 'readFilterBody'],
  // They are refused there, since they run functions.
  ...['show', 'list', 'update', 'rewrite'],
  ...[
    'compactViews',
    'cleanUpViews',
    'find',
    'explain',
    'indexes',
    'indexReport',
    'discardIndex',
    'indexUsage',
  ],
  // They write design documents without functions, which hosted mode allows.
  ...['createIndex', 'deleteIndex', 'deleteIndexes'],
  // A rewind writes what is stored, and by the way of all edits.
  ...['history', 'overwritten', 'version', 'rewind'],
  // Moves and standbys alone call them, which hosted mode does not have.
  ...['copyLocals', 'rememberTokens'],
]
