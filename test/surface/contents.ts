/** For the tables about attachments: the text of protocol.md 19.6, plain and as gzip, and multipart bodies. */
import { gzipSync } from 'node:zlib'
import { md5, type RelatedPart, related } from '../helpers/related.ts'
import { type Ask, type AskMore, put } from './table.ts'

/** 29 bytes. */
export const TEXT = 'This is a base64 encoded text'
export const BASE64 = Buffer.from(TEXT).toString('base64')
export const DIGEST = 'md5-aEI7pOYCRBLTRQvvqYrrJQ=='
export const ETAG = '"aEI7pOYCRBLTRQvvqYrrJQ=="'

export const GZIP = gzipSync(TEXT)
export const GZIP_DIGEST = md5(GZIP)
export const GZIP_ETAG = `"${GZIP_DIGEST.slice('md5-'.length)}"`
/** What `att_encoding_info` adds. */
export const GZIP_INFO = { encoding: 'gzip', encoded_length: GZIP.length }

/** The text as it is written to a document, and as it is read. */
export const INLINE = { content_type: 'text/plain', data: BASE64 }
export const READ = { content_type: 'text/plain', revpos: 1, digest: DIGEST }
export const STUB = { ...READ, length: 29, stub: true }
/** The same, written by a client that does not know the stored attachment. */
export const KEPT = { stub: true }

/** The text at `/x/a`; `{first}` is the revision. */
export const ATTACHED: Ask = put('x', { _attachments: { a: INLINE } }, { keep: { first: 'rev' } })

/** The text at `/x/a`, sent and stored as gzip. */
export const ZIPPED: Ask = [
  'PUT /{db}/x/a',
  {
    headers: { 'Content-Type': 'text/plain', 'Content-Encoding': 'gzip' },
    body: GZIP,
    keep: { first: 'rev' },
  },
]

/** A document as multipart/related with its parts: a part is its content, or has headers as well. */
export function multipart(
  line: string,
  doc: unknown,
  parts: readonly (string | Buffer | RelatedPart)[],
  { epilogue = '', type = 'multipart/related;boundary="B"', ...more }: MultipartMore = {},
): Ask {
  const all = parts.map((part) =>
    typeof part === 'string' || Buffer.isBuffer(part) ? { content: part } : part,
  )
  const bytes = Buffer.concat([related('B', doc, all), Buffer.from(epilogue)])
  // Names can be put into text only.
  const body = all.some(({ content }) => typeof content !== 'string') ? bytes : bytes.toString()
  return [line, { headers: { 'Content-Type': type }, body, ...more }]
}

export interface MultipartMore extends Pick<AskMore, 'keep'> {
  readonly type?: string
  /** What comes behind the end. */
  readonly epilogue?: string
}

/** An entry of `_attachments` whose content follows. */
export function follows(content: string | Buffer, more: Readonly<Record<string, unknown>> = {}) {
  return { follows: true, content_type: 'text/plain', length: Buffer.byteLength(content), ...more }
}

/** A part of a multipart answer: its headers and its content. */
export function part(name: string, content: string, more: Readonly<Record<string, string>> = {}) {
  return {
    'content-disposition': `attachment; filename="${name}"`,
    'content-type': 'text/plain',
    'content-length': String(Buffer.byteLength(content)),
    ...more,
    content,
  }
}
