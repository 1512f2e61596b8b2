/** Declared differences of the server, its databases, and requests at large. */
import type { Comparable } from '../comparable.ts'
import type { Declared } from './declaration.ts'
import { errorOf, isEqualBut, isRefusal, membersRow } from './likeness.ts'

/** Methods that some call has. */
const USUAL = new Set(['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'COPY'])

export const SERVER_ROWS: readonly Declared[] = [
  {
    row: '500',
    is: (what, { couchdb, settee }) => what === 'body' && couchdb.status === 500 && settee.status === 500,
  },
  { row: 'a parameter given twice', is: (_, { step }) => isTwice(step.path) },
  {
    row: 'a method that no call has',
    is: (_, { step, couchdb, settee }) =>
      !USUAL.has(step.method) && (settee.status === 405 || [couchdb, settee].every(isRefusal)),
  },
  {
    row: 'a path below a call that ends there',
    is: (_, { step }) =>
      /\/_(?!design|local)\w+(\/v)?\/x($|\?)|_scheduler\/\w+\/[^/]+\/[^/]+\/x$|_design\/d\/_(none|view\/?($|\?))|\/_design\/\w+\/_view\/($|\?|\/)/.test(
        step.path,
      ),
  },
  {
    row: 'a POST to a /{db}/_x that does not exist',
    is: (_, { step, settee }) =>
      step.method === 'POST' && settee.status === 404 && /\/_\w+\/?(\?|$)/.test(step.path),
  },
  {
    row: '/{db}/_design%2Fx',
    is: (_, { step, couchdb }) => couchdb.status === 301 && /_design%2F/.test(step.path),
  },
  {
    row: '_auto_purge, _time_seq, _shards, _sync_shards',
    is: (_, { step }) => /\/_(shards|search|auto_purge)/.test(step.path),
  },
  { row: 'POST /{db}/_temp_view', is: (_, { step }) => step.path.includes('/_temp_view') },
  {
    row: '_node/x/_versions',
    is: (_, { step }) => /favicon|_scheduler(\/none|\/jobs\/none\/x|$)/.test(step.path),
  },
  { row: 'GET /_up |', is: (_, { step, settee }) => step.path.startsWith('/_up') && settee.status === 200 },
  {
    row: 'PUT, GET, HEAD, DELETE, POST /{db} |',
    is: (_, { step }) => step.method === 'PUT' && /[?&](placement|engine)=/.test(step.path),
  },
  {
    row: 'GET / |',
    is: (what, { step, couchdb, settee }) =>
      what === 'body' &&
      /^\/(\?|$)/.test(step.path) &&
      isEqualBut(couchdb.body, settee.body, /"git_sha":"<string>",/g, ''),
  },
  {
    row: 'GET /_dbs_info |',
    is: (what, { step }) => what === 'header etag' && step.path.startsWith('/_dbs_info'),
  },
  membersRow('PUT, GET, HEAD, DELETE, POST /{db} |', /"q":\d+/g, ({ step }) =>
    /^\/(\{(db|other)\}|_dbs_info)(\?|$)/.test(step.path),
  ),
  { row: 'a _node/{node}/x', is: (what, { step }) => what === 'body' && step.path === '/_node/_local/none' },
  {
    row: 'SameSite of the session cookie',
    is: (what, { couchdb, settee }) =>
      what === 'header set-cookie' &&
      cookie(couchdb) === cookie(settee).replace('; SameSite=Lax', '').replace('Max-Age=0', 'Max-Age=600'),
  },
  {
    row: 'a security object without members',
    is: (_, { couchdb, settee }) =>
      (couchdb.status < 400 ||
        /You are not a (db or server|server or db) admin/.test(errorOf(couchdb).reason ?? '')) &&
      /You are not (allowed|authorized) to access this db/.test(errorOf(settee).reason ?? ''),
  },
  {
    row: 'GET, POST /_cluster_setup',
    is: (what, { step }) => what === 'body' && step.path === '/_cluster_setup',
  },
  {
    row: 'an empty value of the configuration',
    is: (_, { step, settee }) => /_config\//.test(step.path) && settee.body === '',
  },
  {
    row: 'PUT /{db} with a wrong password',
    is: (what, { step, couchdb, settee }) =>
      what === 'body' &&
      step.method === 'PUT' &&
      errorOf(settee).reason === `${errorOf(couchdb).reason} You are not a server admin.`,
  },
]

function cookie({ headers }: Comparable): string {
  return headers['set-cookie'] ?? ''
}

function isTwice(path: string): boolean {
  const names = (path.split('?')[1] ?? '').split('&').map((pair) => pair.split('=')[0])
  return new Set(names).size < names.length
}
