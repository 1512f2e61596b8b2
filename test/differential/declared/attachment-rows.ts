/** Declared differences of attachments. */
import type { Declared } from './declaration.ts'
import { errorOf, isEqualBut, isMultipart, isOfFunction, membersRow, shown, sorted } from './likeness.ts'

export const ATTACHMENT_ROWS: readonly Declared[] = [
  {
    row: 'Range: bytes=-N with N above the length',
    is: (_, { step, couchdb, settee }) =>
      /^bytes=-\d+$/.test(step.headers?.Range ?? '') &&
      couchdb.headers['content-range']?.startsWith('bytes 1-') === true &&
      settee.headers['content-range']?.startsWith('bytes 0-') === true,
  },
  {
    row: 'Range of an attachment that is stored gzipped',
    is: (_, { step, couchdb, settee }) =>
      step.headers?.Range !== undefined && couchdb.status === 416 && settee.status === 200,
  },
  {
    row: 'multipart answers, 304, and those of functions',
    is: (what, { step, couchdb }) =>
      what === 'header cache-control' &&
      (couchdb.status === 304 ||
        isMultipart(couchdb) ||
        isOfFunction(step.path) ||
        /multipart/.test(step.headers?.Accept ?? '')),
  },
  {
    row: 'several ranges of an attachment',
    is: (what, { couchdb }) =>
      ['header accept-ranges', 'header etag'].includes(what) &&
      couchdb.headers['content-type']?.startsWith('multipart/byteranges') === true,
  },
  {
    row: 'open_revs and attachments=true with Accept: */*',
    is: (_, { couchdb, settee, step }) =>
      isMultipart(couchdb) && !isMultipart(settee) && !/multipart/.test(step.headers?.Accept ?? ''),
  },
  {
    row: 'PUT of an attachment',
    is: (what, { step }) =>
      what === 'header etag' && step.method === 'PUT' && /^\/\{db\}\/[^/]+\/./.test(step.path),
  },
  {
    row: 'the answers 405 and 416',
    is: (what, { couchdb, settee }) =>
      what.startsWith('header ') && [405, 416].includes(couchdb.status) && couchdb.status === settee.status,
  },
  {
    row: 'a digest that does not match',
    is: (_, { settee }) => errorOf(settee).reason === 'md5_mismatch',
  },
  {
    row: 'names of new attachments',
    is: (_, { settee }) => /Attachment name must not contain/.test(errorOf(settee).reason ?? ''),
  },
  {
    row: 'an attachment with an empty name',
    is: (_, { settee }) => errorOf(settee).reason === 'Attachment name must not be empty',
  },
  {
    row: 'an attachment that is no object',
    is: (_, { settee }) => /^Invalid attachment data/.test(errorOf(settee).reason ?? ''),
  },
  membersRow('length of an attachment that was sent gzipped', /"length":\d+/g),
  {
    row: 'length of an attachment that was sent gzipped',
    is: (_, { settee }) => errorOf(settee).reason === 'Request body is not properly gzipped.',
  },
  membersRow(
    'an empty Content-Type of an attachment',
    /"content_type":"(application\/octet-stream)?"|"Content-Type: (application\/octet-stream)?"/g,
  ),
  {
    row: 'an empty Content-Type of an attachment',
    is: (what, { couchdb, settee }) =>
      what === 'header content-type' &&
      couchdb.headers['content-type'] === '' &&
      settee.headers['content-type'] === 'application/octet-stream',
  },
  {
    row: 'If-Range',
    is: (_, { step, couchdb, settee }) =>
      step.headers?.['If-Range'] !== undefined && couchdb.status === 206 && settee.status === 200,
  },
  {
    row: 'an attachment with revpos 0',
    is: (what, { step, couchdb, settee }) => {
      if (what !== 'body' || !shown(step).includes('atts_since')) return false
      const bodies = [couchdb.body, settee.body].map((body) => withoutContent(body, (revpos) => revpos === 0))
      // The order of the leaves may differ as well.
      const [theirs, ours] = /open_revs=|_bulk_get/.test(step.path)
        ? bodies.map((body) => sorted(body))
        : bodies
      return isEqualBut(theirs, ours, /^$/g)
    },
  },
  {
    row: 'a part of multipart/related that is longer',
    is: (_, { settee }) => /^attachment (longer|shorter) than expected$/.test(errorOf(settee).reason ?? ''),
  },
  {
    row: 'a multipart body without its boundary',
    is: (what, { settee }) => what === 'body' && /boundary/.test(errorOf(settee).reason ?? ''),
  },
  membersRow('revpos in a document that is made again', /"revpos":\d+/g),
  {
    row: 'revpos in a document that is made again',
    is: (what, { step, before, couchdb, settee }) => {
      if (what !== 'body' || !shown(step).includes('atts_since') || !/DELETE|_deleted/.test(before))
        return false
      const [theirs, ours] = [couchdb.body, settee.body].map((body) => withoutContent(body, () => true))
      return isEqualBut(theirs, ours, /"revpos":\d+/g)
    },
  },
]

/** Without what is a stub in one answer and the content in another: of some attachments, by their `revpos`. */
function withoutContent(value: unknown, isOne: (revpos: unknown) => boolean): unknown {
  if (Array.isArray(value)) return value.map((each) => withoutContent(each, isOne))
  if (typeof value !== 'object' || value === null) return value
  const { data: _1, length: _2, stub: _3, ...facts } = value as Record<string, unknown>
  if (facts.revpos !== undefined && isOne(facts.revpos)) return facts
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, withoutContent(each, isOne)]))
}
