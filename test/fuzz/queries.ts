/** Query strings: every parameter that some call knows, with right, wrong and huge values. */
import { couchToken } from '../helpers/couch-tokens.ts'
import type { Choices } from './choices.ts'
import { type Facts, KEPT_IDS, MEMBER_NAMES, ODD_REVISIONS, REVISIONS, WILD_IDS } from './world.ts'

export interface QueryPlace {
  readonly choices: Choices
  readonly facts: Facts
  readonly route: string
  readonly method: string
  /** The request can only read: nothing it says can change a kept document. */
  readonly isRead: boolean
  /** It is about a vault. */
  readonly isVault: boolean
}

const NESTED = '['.repeat(2000) + ']'.repeat(2000)

type Value = (place: QueryPlace) => string

const boolean: Value = ({ choices }) => choices.mostly(['true', 'false'], ['TRUE', '1', '', 'null', 'yes'])
const count: Value = ({ choices }) =>
  choices.mostly(['0', '1', '2', '10', '1000'], ['-1', '', 'x', '1e3', '99999999999999999999999', '+1'])
const key: Value = ({ choices }) =>
  choices.mostly([JSON.stringify(choices.pick(WILD_IDS)), choices.json()], ['', '{', choices.text(), NESTED])
const docId: Value = ({ choices }) => choices.pick(WILD_IDS)
const rev: Value = (place) => revision(place)
const revs: Value = (place) =>
  place.choices.mostly(
    [JSON.stringify(place.choices.list(4, () => revision(place))), '[]'],
    ['all', '"all"', '{}', 'x', `[${place.choices.json()}]`],
    0.15,
  )

function revision({ choices, facts, isRead, isVault }: QueryPlace): string {
  // What is right in a vault is only told to those who read.
  const known = isVault && isRead ? facts.revisions : REVISIONS
  return choices.mostly(known, ODD_REVISIONS)
}

/** The members that several calls have in common. */
const READING = {
  rev,
  revs: boolean,
  revs_info: boolean,
  conflicts: boolean,
  deleted_conflicts: boolean,
  meta: boolean,
  local_seq: boolean,
  latest: boolean,
  open_revs: revs,
  attachments: boolean,
  att_encoding_info: boolean,
  atts_since: revs,
  deleted: boolean,
} satisfies Record<string, Value>

const WRITING = {
  rev,
  new_edits: boolean,
  batch: ({ choices }) => choices.mostly(['ok'], ['true', '']),
  w: count,
} satisfies Record<string, Value>

const LISTING = {
  key,
  keys: ({ choices }) =>
    choices.mostly([JSON.stringify(choices.some([...WILD_IDS, ...KEPT_IDS], 0.1))], ['{}', '[1', '"a"']),
  startkey: key,
  start_key: key,
  endkey: key,
  end_key: key,
  startkey_docid: docId,
  start_key_doc_id: docId,
  endkey_docid: docId,
  end_key_doc_id: docId,
  inclusive_end: boolean,
  descending: boolean,
  limit: count,
  skip: count,
  include_docs: boolean,
  conflicts: boolean,
  attachments: boolean,
  att_encoding_info: boolean,
  update_seq: boolean,
  stale: ({ choices }) => choices.mostly(['ok', 'update_after'], ['x']),
  update: ({ choices }) => choices.mostly(['true', 'false', 'lazy'], ['x']),
  stable: boolean,
  sorted: boolean,
  reduce: boolean,
  group: boolean,
  group_level: count,
  include_system: boolean,
  partition: ({ choices }) => choices.mostly(['a', 'p'], ['', '_x', 'a:b']),
  queries: ({ choices }) => choices.json(),
} satisfies Record<string, Value>

/** Of CouchDB and another settee: whole, cut, and much larger than it looks. */
const FOREIGN_TOKENS = [
  couchToken([5, 7]),
  couchToken([5, 7]).slice(0, 60),
  couchToken([5, 7], undefined, { padding: 1_000_000 }),
  '5-abcdefghijkl',
]

const LOG = {
  level: ({ choices }) => choices.mostly(['debug', 'warn', 'warning', 'fatal'], ['x', '']),
} satisfies Record<string, Value>

const FEED = {
  feed: ({ choices }) =>
    choices.mostly(['normal', 'longpoll', 'continuous', 'live', 'eventsource'], ['x', '']),
  since: ({ choices, facts }) =>
    choices.mostly(
      [...facts.tokens, '0', 'now'],
      ['5', '-1', '1-x', '"0"', '', choices.text(), '9'.repeat(400), ...FOREIGN_TOKENS],
      0.4,
    ),
  'last-event-id': ({ choices, facts }) => choices.pick(facts.tokens),
  limit: count,
  descending: boolean,
  style: ({ choices }) => choices.mostly(['main_only', 'all_docs'], ['x', '']),
  include_docs: boolean,
  conflicts: boolean,
  attachments: boolean,
  att_encoding_info: boolean,
  filter: ({ choices }) =>
    choices.mostly(
      ['_doc_ids', '_selector', '_design', '_view', ...functionNames(choices)],
      ['_x', 'x', '/', 'a/b/c', choices.text()],
    ),
  view: ({ choices }) => choices.pick(functionNames(choices)),
  heartbeat: ({ choices }) => choices.mostly(['50', '300', '60000', 'true'], ['0', '-1', 'x', '1']),
  timeout: ({ choices }) => choices.mostly(['0', '20', '80', '200'], ['-1', 'x', '9'.repeat(30)]),
  seq_interval: count,
  doc_ids: ({ choices }) => choices.mostly([JSON.stringify(choices.some(WILD_IDS, 0.1))], ['{}', '[1]', 'x']),
  fields: ({ choices }) => choices.json(),
  selector: ({ choices }) => choices.json(),
} satisfies Record<string, Value>

const CREATING = {
  q: count,
  n: count,
  partitioned: boolean,
  placement: ({ choices }) => choices.text(),
  engine: ({ choices }) => choices.text(),
  rev,
} satisfies Record<string, Value>

const text: Value = ({ choices }) => choices.text()

/** Of settee's own lists. */
const PAGES = {
  limit: count,
  after: text,
  prefix: text,
  bookmark: ({ choices }) => choices.mostly(['0', '1', '7'], ['-1', 'x', '9'.repeat(30), '']),
  since: ({ choices }) => choices.mostly(['0', '2025-03-01'], ['x', '']),
  until: ({ choices }) => choices.mostly(['2025-03-01T14:05Z'], ['x', '']),
  deleted: boolean,
  id: docId,
  at: ({ choices }) => choices.mostly(['0', '2025-03-01'], ['x', '', '-1']),
  rev,
} satisfies Record<string, Value>

const OTHERS = {
  count,
  r: count,
  callback: text,
  ['__proto__']: text,
  constructor: text,
  toString: boolean,
  '': text,
} satisfies Record<string, unknown>

const ALL: Readonly<Record<string, Value>> = Object.assign(
  Object.create(null),
  PAGES,
  READING,
  WRITING,
  LISTING,
  FEED,
  LOG,
  CREATING,
  OTHERS,
)

/** Parameters that belong to a route; the others get them as well, more rarely. */
function namesFor(route: string): readonly string[] {
  if (/_changes|_db_updates/.test(route)) return Object.keys(FEED)
  if (route === '/_settee/log') return [...Object.keys(LOG), 'feed', 'since', 'limit', 'heartbeat', 'filter']
  if (/_all_docs|_design_docs|_local_docs|_view\/|_list\/|_all_dbs|_dbs_info/.test(route))
    return Object.keys(LISTING)
  if (route === '/_uuids') return ['count']
  if (/^\/_settee\/(?:databases|moves)/.test(route)) return Object.keys(PAGES)
  if (route === '/:db') return Object.keys(CREATING)
  return [...Object.keys(READING), ...Object.keys(WRITING)]
}

/** One that the body says more of, or one that there is. */
function fittingFilter({ choices, method, isVault }: QueryPlace): string {
  if (method === 'POST' && choices.chance(0.6)) return choices.pick(['_selector', '_doc_ids'])
  return `${isVault ? 'guard' : 'one'}/${choices.pick(['plain', 'heavy', 'broken', 'lib'])}`
}

function functionNames(choices: Choices): string[] {
  return ['one', 'guard'].map((design) => `${design}/${choices.pick(MEMBER_NAMES)}`)
}

/** A query string with its question mark; often none. */
export function makeQuery(place: QueryPlace): string {
  const { choices, route, isRead, isVault } = place
  const isFeed = /_changes|_db_updates|_settee\/log/.test(route)
  if (choices.chance(isFeed ? 0.1 : 0.45)) return ''
  const names = namesFor(route)
  const pairs = choices.list(isFeed ? 6 : 4, () => {
    const name = choices.chance(0.9) ? choices.pick(names) : choices.pick(Object.keys(ALL))
    // A waiting feed takes a connection for itself; one in a while is enough.
    if (name === 'feed' && choices.chance(0.7)) return ''
    if (name === 'new_edits' && isVault && !isRead) return ''
    return pair(choices, name, (ALL[name] as Value)(place))
  })
  if (isFeed) pairs.push(pair(choices, 'timeout', '30'))
  if (isFeed && choices.chance(0.4)) pairs.push(pair(choices, 'filter', fittingFilter(place)))
  if (choices.chance(0.08)) pairs.push(choices.pick(pairs) ?? '')
  const mayBend = isRead || !isVault
  if (mayBend && choices.chance(0.03)) pairs.push(bent(choices))
  const text = pairs.filter((each) => each !== '').join('&')
  return text === '' ? '' : `?${text}`
}

function pair(choices: Choices, name: string, value: string): string {
  const named = choices.chance(0.03) ? name.toUpperCase() : name
  if (choices.chance(0.02)) return encodeURIComponent(named)
  const escaped = encodeURIComponent(value)
  return `${encodeURIComponent(named)}=${choices.chance(0.1) ? escaped.replaceAll('%20', '+') : escaped}`
}

function bent(choices: Choices): string {
  return choices.pick([
    '%',
    'a=%zz',
    'rev=%c3',
    '%ed%a0%80=1',
    '=',
    '&&&',
    '?',
    'rev=a=b',
    'rev[]=1-a',
    `x=${'y'.repeat(15_000)}`,
    'a&'.repeat(2000),
    choices.text(),
  ])
}
