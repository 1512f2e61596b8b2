/** Header fields beside those that frame the request. */
import type { Choices } from './choices.ts'
import { ADMIN, type Facts, KEPT_IDS, ODD_REVISIONS, REVISIONS, VAULTS, WILD_IDS } from './world.ts'

export type Header = readonly [name: string, value: string]

export interface HeadersPlace {
  readonly choices: Choices
  readonly facts: Facts
  readonly index: number
  readonly route: string
  readonly method: string
  readonly database: string
  /** The request can only read. */
  readonly isRead: boolean
}

const ACCEPTS = [
  '*/*',
  'application/json',
  'multipart/related',
  'multipart/mixed',
  'multipart/related;q=0.5, application/json;q=0.1',
  'multipart/mixed, application/json',
  'text/html',
  'application/*;q=0',
  ';;;,q=',
  '',
]

type Maker = (place: HeadersPlace) => string

const FIELDS: Readonly<Record<string, Maker>> = {
  Accept: ({ choices }) => choices.pick(ACCEPTS),
  'Accept-Encoding': ({ choices }) =>
    choices.pick([
      'gzip',
      'gzip, deflate, br',
      'br',
      'deflate',
      'identity',
      '*;q=0',
      'x',
      'gzip;q=0.5, br;q=0.4',
    ]),
  'If-Match': ({ choices }) => `"${choices.mostly(REVISIONS, ODD_REVISIONS)}"`,
  'If-None-Match': ({ choices, facts }) =>
    choices.pick(['*', `"${choices.pick(facts.revisions)}"`, `W/"${choices.pick(REVISIONS)}", x`, '""', '"']),
  'If-Range': ({ choices }) => choices.pick(['"x"', 'Wed, 21 Oct 2015 07:28:00 GMT', '']),
  Range: ({ choices }) =>
    choices.pick([
      'bytes=0-',
      'bytes=0-3',
      'bytes=-2',
      'bytes=2-1',
      'bytes=9999999-',
      'bytes=0-1,2-3,-1',
      `bytes=${'0-1,'.repeat(20)}2-3`,
      `bytes=0-${'9'.repeat(30)}`,
      'bytes=',
      'items=1-2',
      'x',
    ]),
  'Last-Event-ID': ({ choices, facts }) => choices.mostly(facts.tokens, ['x', '9', '"0"'], 0.3),
  Prefer: ({ choices }) => choices.pick(['return=minimal', 'return=representation', 'x', '']),
  Destination: ({ choices, database }) => destination(choices, database),
  'X-Couch-Full-Commit': ({ choices }) => choices.pick(['true', 'false', 'x']),
  'X-Couch-Persist': ({ choices }) => choices.pick(['true', 'false', 'x']),
  'X-CouchDB-WWW-Authenticate': ({ choices }) => choices.pick(['Cookie', 'Basic realm="x"', 'é\u00ff', '']),
  'X-Forwarded-Host': ({ choices }) => choices.pick(['example.org', 'a b', '[::1]:80', 'x"y', '\u00e9', '']),
  'X-Forwarded-Proto': ({ choices }) => choices.pick(['https', 'x', 'https,http']),
  'X-Forwarded-Ssl': ({ choices }) => choices.pick(['on', 'off']),
  'X-Forwarded-For': ({ choices }) => choices.pick(['1.2.3.4', 'x', '']),
  Referer: ({ choices }) => choices.pick(['http://127.0.0.1/', 'http://settee.test/x', 'x', '']),
  Origin: () => 'http://example.org',
  Cookie: ({ choices }) => choices.pick(['AuthSession=x', 'AuthSession=%%%', 'a=b; c', '']),
  'X-Auth-CouchDB-UserName': () => 'fuzz',
  'X-Auth-CouchDB-Roles': () => '_admin',
  'Content-MD5': () => 'x',
  'User-Agent': ({ choices }) => choices.pick(['CouchDB-Replicator/3.5.0', '\u00e9\u00fc', '']),
  'Access-Control-Request-Method': () => 'PUT',
  TE: () => 'trailers',
  Upgrade: ({ choices }) => choices.pick(['websocket', 'h2c']),
  'X-Long': () => 'x'.repeat(9000),
}

/** What such a call often comes with. */
function fitting(place: HeadersPlace): Header[] {
  const { choices, route, method } = place
  const isRead = method === 'GET' || method === 'HEAD'
  if (route.endsWith('/*') && isRead) return [['Range', (FIELDS.Range as Maker)(place)]]
  if (isRead && /:docid$|:ddoc$/.test(route)) return [['Accept', choices.pick(MULTIPART)]]
  if (route.endsWith('_bulk_get')) return [['Accept', choices.pick(MULTIPART)]]
  if (method === 'POST' && /:docid$|:ddoc$/.test(route)) return [['Referer', 'http://127.0.0.1/_utils']]
  return []
}

const MULTIPART = ['multipart/mixed', 'multipart/related', 'multipart/mixed, multipart/related;q=0.5']

/** Destinations in a vault name no revision that it has, so that nothing can be copied over what is kept. */
function destination(choices: Choices, database: string): string {
  const isVault = VAULTS.includes(database)
  const id = encodeURIComponent(choices.pick(isVault ? KEPT_IDS : WILD_IDS))
  if (isVault) return `${id}?rev=${choices.pick(REVISIONS)}`
  return choices.mostly(
    [id, `${id}?rev=${choices.pick(REVISIONS)}`],
    [
      '',
      '%zz',
      'http://example.org/x',
      '_design/x',
      '_local/x',
      '_x',
      `${id}?rev=`,
      `${id}?rev=%zz`,
      '?rev=1-a',
      '/',
    ],
    0.3,
  )
}

/** The fields of a request, those that frame it and `Content-Type` left out. */
export function makeHeaders(place: HeadersPlace): Header[] {
  const { choices, index, method } = place
  const headers: Header[] = []
  const credentials = authorization(choices)
  if (credentials !== null) headers.push(['Authorization', credentials])
  headers.push(['X-Couch-Request-ID', choices.chance(0.99) ? requestId(index) : 'not one of mine, é'])
  if (method === 'COPY' && choices.chance(0.9))
    headers.push(['Destination', destination(choices, place.database)])
  if (choices.chance(0.3)) headers.push(...fitting(place))
  const names = choices.chance(0.5) ? [] : choices.list(4, () => choices.pick(Object.keys(FIELDS)))
  for (const name of new Set(names)) {
    if (headers.some(([said]) => said === name)) continue
    headers.push([choices.chance(0.1) ? name.toLowerCase() : name, (FIELDS[name] as Maker)(place)])
  }
  if (choices.chance(0.005))
    headers.push(['X-Twice', 'a'], ['X-Twice', 'b'], ['Accept', 'x'], ['Accept', 'y'])
  return headers
}

/** By which the log names the request. */
export function requestId(index: number): string {
  return `fuzz-${index}`
}

function authorization(choices: Choices): string | null {
  const right = `Basic ${Buffer.from(`${ADMIN.name}:${ADMIN.password}`).toString('base64')}`
  if (choices.chance(0.96)) return right
  return choices.pick([
    null,
    'Basic',
    'Basic %%%',
    'Basic Og==',
    `Basic ${Buffer.from('fuzz:wrong').toString('base64')}`,
    `Basic ${Buffer.from('nobody\u0000:x').toString('base64')}`,
    'Basic //79/A==',
    'Bearer eyJhbGciOiJub25lIn0.e30.',
    'Digest x',
    '',
  ])
}
