/** Documents with given histories, for the tables about documents. */
import { type Ask, stored } from './table.ts'

/**
 * The document `x` with a history, newest revision first.
 * @param path such as `3-c b a`
 */
export function x(path: string, more: Readonly<Record<string, unknown>> = {}) {
  return of('x', path, more)
}

/** Another document with a history. */
export function of(id: string, path: string, more: Readonly<Record<string, unknown>> = {}) {
  const [newest = '', ...older] = path.split(' ')
  const [start, hash = ''] = newest.split('-')
  return { _id: id, ...more, _revisions: { start: Number(start), ids: [hash, ...older] } }
}

export const DELETED = { _deleted: true } as const

/** `x`: its winner 2-c, the conflict 2-b, and the deleted branch 2-d, all over 1-a. */
export const CONFLICT: Ask = stored(
  x('1-a', { v: 1 }),
  x('2-b a', { v: 2 }),
  x('2-c a', { v: 3 }),
  x('2-d a', { ...DELETED, v: 4 }),
)

/** `x`: 1-a, 2-b and 3-c, each with its body. */
export const CHAIN: Ask = stored(x('1-a', { v: 1 }), x('2-b a', { v: 2 }), x('3-c b a', { v: 3 }))

/** `x`, whose winner is the tombstone 2-b. */
export const GONE: Ask = stored(x('1-a', { v: 1 }), x('2-b a', DELETED))

/** An attachment of ten bytes, as JSON and as it is read. */
export const INLINE = { content_type: 'text/plain', data: 'MDEyMzQ1Njc4OQ==' } as const
export const DIGEST = 'md5-eB5eJF1ptWaXm4bijSPyxw=='
export const STUB = {
  content_type: 'text/plain',
  revpos: 1,
  digest: DIGEST,
  length: 10,
  stub: true,
} as const
export const DATA = { content_type: 'text/plain', revpos: 1, digest: DIGEST, data: INLINE.data } as const
