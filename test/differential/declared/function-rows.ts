/** Declared differences of functions of design documents. */
import type { Declared } from './declaration.ts'
import { errorOf, isEqualBut, isOfFunction } from './likeness.ts'

export const FUNCTION_ROWS: readonly Declared[] = [
  {
    row: 'Content-Security-Policy',
    is: (what, { couchdb, settee }) =>
      what === 'header content-security-policy' &&
      couchdb.headers['content-security-policy'] === undefined &&
      settee.headers['content-security-policy'] === 'sandbox',
  },
  {
    row: '/{db}/_design/{doc}/_show',
    is: (_, { step, settee }) =>
      errorOf(settee).error === 'external_response_error' ||
      (/_show\/start/.test(step.path) && settee.status === 500) ||
      (step.method === 'PATCH' && settee.status === 405),
  },
  {
    row: 'an empty answer of a function',
    is: (what, { step, couchdb }) =>
      what.startsWith('header ') && couchdb.body === '' && isOfFunction(step.path),
  },
  {
    row: 'an error of JavaScript in a validate function',
    is: (what, { couchdb, settee }) =>
      what === 'body' &&
      isEqualBut(
        couchdb.body,
        settee.body,
        /"error":"(\w+Error|unknown_error)",("id":"\w+",)?"reason":"[^"]*"/g,
      ),
  },
  {
    row: 'req.requested_path',
    is: (what, { step, couchdb, settee }) =>
      what === 'body' &&
      /_show\/request/.test(step.path) &&
      isEqualBut(withoutThird(couchdb.body), withoutThird(settee.body), /^$/g),
  },
]

/** What a `request` function shows, without `requested_path`. */
function withoutThird(body: unknown): unknown {
  return Array.isArray(body) ? body.toSpliced(2, 1) : body
}
