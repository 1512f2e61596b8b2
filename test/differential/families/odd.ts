/** Methods, addresses and headers that a call does not know, at every address of the route table. */
import type { CarefulChoices as Choices } from '../careful.ts'
import type { Step } from '../step.ts'
import { count, type Family, filled, flag, json, oddBody, query, typed } from './family.ts'

const METHODS = [
  'GET',
  'HEAD',
  'POST',
  'PUT',
  'DELETE',
  'COPY',
  'OPTIONS',
  'PATCH',
  'TRACE',
  'FOO',
  'PROPFIND',
  'LOCK',
  'MKCOL',
  'SEARCH',
]

/** Below a database. */
const BELOW = [
  '',
  '/',
  '/d1',
  '/d1/a',
  '/none',
  '/_all_docs',
  '/_all_docs/queries',
  '/_design_docs',
  '/_local_docs',
  '/_bulk_docs',
  '/_bulk_get',
  '/_changes',
  '/_find',
  '/_explain',
  '/_index',
  '/_security',
  '/_revs_limit',
  '/_revs_diff',
  '/_missing_revs',
  '/_purge',
  '/_purged_infos',
  '/_purged_infos_limit',
  '/_compact',
  '/_compact/d',
  '/_view_cleanup',
  '/_ensure_full_commit',
  '/_temp_view',
  '/_design/d',
  '/_design/d/_view/v',
  '/_design/d/_info',
  '/_design/d/a',
  '/_design',
  '/_design/',
  '/_local',
  '/_local/',
  '/_local/l',
  '/_local/l/a',
  '/_design/d/_view',
  '/_design/d/_view/',
  '/_design/d/_view/none',
  '/_design/d/_none',
  '/_design/none/_view/v',
  '/_partition',
  '/_partition/p',
  '/_partition/p/_all_docs',
  '/_all_docs/x',
  '/_changes/x',
  '/_find/x',
  '/_security/x',
  '/_design/d/_view/v/x',
  '/_design/d/_view/v/queries',
  '/_none',
  '/_none/x',
  '/%2F',
  '/d1/',
  '//d1',
  '/_design%2Fd',
  '/_local%2Fl',
  '/_all_docs/',
  '/_bulk_docs/x',
  '/_revs_limit/x',
  '/_index/x',
  '/_search',
  '/_shards',
] as const
/** Without a database; what they change is undone, or nobody's. */
const SERVER = [
  '/',
  '/_up',
  '/_uuids',
  '/_all_dbs',
  '/_dbs_info',
  '/_session',
  '/_membership',
  '/_active_tasks',
  '/_scheduler/jobs',
  '/_scheduler/docs',
  '/_node/_local/_config/diff-none/x',
  '/_node/_local/_system',
  '/_none',
  '/_all_dbs/x',
  '/_up/x',
  '/_uuids/x',
  '/_membership/x',
  '/_session/x',
  '/_replicate/x',
  '/_utils/x',
  '/_config/x',
] as const

const HEADERS: readonly Readonly<Record<string, string>>[] = [
  {},
  {},
  {},
  { 'X-HTTP-Method-Override': 'PUT' },
  { 'X-HTTP-Method-Override': 'DELETE' },
  { 'X-HTTP-Method-Override': 'COPY' },
  { Accept: 'text/html' },
  { Accept: 'text/plain' },
  { Accept: 'application/json' },
  { Prefer: 'return=minimal' },
  { Authorization: 'Basic x' },
  { Authorization: 'Basic' },
  { Authorization: 'Bearer x' },
  { Authorization: 'x' },
  { Cookie: 'AuthSession=' },
  { 'If-None-Match': '*' },
]

function step(c: Choices): Step {
  const method = c.pick(METHODS)
  const isServer = c.chance(0.2)
  const path = isServer ? c.pick(SERVER) : `/{db}${c.pick(BELOW)}`
  const asked = query(
    c,
    { limit: count, rev: () => '{rev:d1}', include_docs: flag, timeout: () => '1', since: () => '0' },
    1,
  )
  const hasBody = c.chance(method === 'POST' || method === 'PUT' ? 0.7 : 0.1)
  return {
    method,
    path: path + asked,
    headers: { ...(hasBody ? typed(c) : {}), ...c.pick(HEADERS) },
    ...(hasBody && { body: oddBody(c) }),
  }
}

export const odd: Family = {
  begin: (c) => [
    ...filled(c),
    json('PUT', '/{db}/_design/d', { views: { v: { map: 'function (doc) { emit(doc._id) }' } } }),
    json('PUT', '/{db}/_local/l', {}),
  ],
  step,
  steps: 25,
}
