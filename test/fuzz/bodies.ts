/** A body for each call, as its grammar has it. */
import { gzipSync } from 'node:zlib'
import { holdsReplications } from '../../src/core/ids.ts'
import { md5 } from '../helpers/related.ts'
import type { Choices } from './choices.ts'
import { designText, documentText, ordinary } from './documents.ts'
import {
  ADMIN,
  ATTACHMENT_NAMES,
  type Facts,
  GUARDED_VAULT,
  KEPT_IDS,
  ODD_IDS,
  ODD_REVISIONS,
  REVISIONS,
  VAULTS,
  WILD_DATABASES,
  WILD_IDS,
} from './world.ts'

export interface BodyPlace {
  readonly choices: Choices
  readonly facts: Facts
  readonly route: string
  readonly method: string
  readonly database: string
}

export interface FuzzBody {
  readonly bytes: Buffer
  /** The media type that fits; null: any. */
  readonly type: string | null
  /** It must go out as it is, since a slip could touch what is kept. */
  readonly isFixed?: boolean
}

type Maker = (place: BodyPlace) => FuzzBody

const JSON_TYPE = 'application/json'
const BOUNDARY = 'fuzz-boundary'

/** By the route, or by its method and route where they differ; other routes get JSON of any kind. */
const MAKERS: Readonly<Record<string, Maker>> = {
  '/:db': document,
  'POST /:db/:docid': form,
  '/:db/:docid': (place) => (place.choices.chance(0.2) ? multipart(place) : document(place)),
  'POST /:db/_design/:ddoc': form,
  '/:db/_design/:ddoc': ({ choices, database }) => json(designText(choices, isVault(database))),
  '/:db/_local/:local': ({ choices }) => json(`{${ordinary(choices).join(',')}}`),
  '/:db/:docid/*': content,
  '/:db/_design/:ddoc/*': content,
  '/:db/_bulk_docs': bulkDocs,
  '/:db/_bulk_get': bulkGet,
  '/:db/_revs_diff': (place) => json(idsAndRevs(place, true)),
  '/:db/_missing_revs': (place) => json(idsAndRevs(place, true)),
  '/:db/_purge': (place) => json(idsAndRevs(place, false)),
  '/:db/_all_docs': list,
  '/:db/_design_docs': list,
  '/:db/_local_docs': list,
  '/:db/_all_docs/queries': lists,
  '/:db/_design_docs/queries': lists,
  '/:db/_local_docs/queries': lists,
  '/:db/_design/:ddoc/_view/:view': list,
  '/:db/_design/:ddoc/_view/:view/queries': lists,
  '/:db/_design/:ddoc/_list/:fn/:view': list,
  '/:db/_design/:ddoc/_list/:fn/:other/:view': list,
  '/:db/_find': find,
  '/:db/_explain': find,
  '/:db/_index': index,
  '/:db/_index/_bulk_delete': ({ choices }) =>
    json(`{"docids":${JSON.stringify(choices.some([...WILD_IDS, 'd'], 0.4))}}`),
  '/:db/_changes': changes,
  '/:db/_security': security,
  '/:db/_revs_limit': limit,
  '/:db/_purged_infos_limit': limit,
  '/_node/:node/_config/:section/:key': setting,
  '/_config/:section/:key': setting,
  '/_replicate': replication,
  '/_settee/vaults': vault,
  '/_settee/moves': move,
  '/_dbs_info': ({ choices }) =>
    json(`{"keys":${JSON.stringify(choices.some([...WILD_DATABASES, ...VAULTS, 'x'], 0.4))}}`),
}

/** Without LiveSync, whose settings would close the server to anonymous callers. */
function vault({ choices }: BodyPlace): FuzzBody {
  const names = WILD_DATABASES.filter((name) => !name.startsWith('_'))
  return json(
    JSON.stringify({
      vault: choices.pick([...names, 'A', 7]),
      for: choices.mostly(['pouchdb', 'inkdrop'], ['', 'x', 7], 0.2),
      account: choices.pick([undefined, 'x', 'a:b', 'fuzz', '']),
      device: choices.pick([undefined, 'x', ' ', 'x'.repeat(300)]),
      host: choices.pick([undefined, 'http://127.0.0.1:5984', 'https://[::1]:1/', 'x']),
      renew: choices.pick([undefined, true, false, 'x']),
    }),
  )
}

/** Between databases of the server alone. */
function replication({ choices }: BodyPlace): FuzzBody {
  // `_users` would bring its validate function along, and a vault must stay as it is.
  const names = WILD_DATABASES.filter((name) => name !== '_users')
  const batchSize = choices.chance(0.2) ? choices.pick([0, 1, 1e9, 'x']) : undefined
  // One change at a time would take longer than the test waits, so there are few changes.
  const isSlow = batchSize === 0 || batchSize === 1
  return json(
    JSON.stringify({
      source: choices.pick([...names, ...VAULTS, {}, 7]),
      target: choices.pick([...names, {}, 7]),
      ...(choices.chance(0.3) && { continuous: choices.pick([true, false, 'yes']) }),
      ...((isSlow || choices.chance(0.3)) && { doc_ids: choices.some([...WILD_IDS, 'd'], 0.4) }),
      ...(choices.chance(0.2) && { selector: choices.pick([{}, { a: 1 }, { $x: 1 }, []]) }),
      ...(choices.chance(0.2) && { filter: choices.pick(['_view', '_design', 'd/f', '']) }),
      ...(batchSize !== undefined && { worker_batch_size: batchSize }),
      ...(choices.chance(0.2) && { cancel: true }),
    }),
  )
}

/** From an address where nobody answers. */
function move({ choices }: BodyPlace): FuzzBody {
  return json(
    JSON.stringify({
      source: choices.mostly(['http://a:b@127.0.0.1:1/'], ['', 'x', '/etc/passwd', 'ftp://x/', 7, {}], 0.4),
      ...(choices.chance(0.3) && { databases: choices.pick([['x'], [], ['_users', '_x', 7], 'x']) }),
      ...(choices.chance(0.3) && { dry_run: choices.pick([true, false, 'yes']) }),
      ...(choices.chance(0.2) && { merge: choices.pick([true, 7]) }),
      ...(choices.chance(0.2) && { keep_uuid: choices.pick([true, null]) }),
    }),
  )
}

/** A document that starts a replication. */
function replicationDocument(place: BodyPlace): FuzzBody {
  const { choices } = place
  const request = replication(place).bytes.toString().slice(0, -1)
  const members = {
    ...(choices.chance(0.2) && { owner: choices.pick(['a', null, 7, ADMIN.name]) }),
    ...(choices.chance(0.2) && { user_ctx: choices.pick([{ name: 'a' }, { roles: [] }, { roles: [7] }, 7]) }),
    ...(choices.chance(0.2) && { sealed_credentials: choices.pick([{}, 7, { source: 'AAAA', target: '' }]) }),
    ...(choices.chance(0.2) && { proxy: choices.pick(['http://a:b@127.0.0.1:1/', 'x', 7]) }),
    ...(choices.chance(0.2) && {
      _replication_state: choices.pick(['completed', 'failed', 'error', 'odd', 7]),
    }),
    ...(choices.chance(0.4) && { _rev: choices.pick([...REVISIONS, ...ODD_REVISIONS]) }),
  }
  const more = JSON.stringify(members).slice(1)
  return json(more === '}' ? `${request}}` : `${request},${more}`)
}

export function makeBody(place: BodyPlace): FuzzBody {
  const { choices, method } = place
  const route = place.route.replace('/_partition/:partition', '')
  const make = MAKERS[`${method} ${route}`] ?? MAKERS[route]
  if (make === undefined || choices.chance(0.02)) return json(choices.json())
  return make(place)
}

function isVault(database: string): boolean {
  return VAULTS.includes(database)
}

function json(text: string): FuzzBody {
  return { bytes: Buffer.from(text), type: JSON_TYPE }
}

function document(place: BodyPlace): FuzzBody {
  const { choices, database } = place
  if (holdsReplications(database) && choices.chance(0.7)) return replicationDocument(place)
  return json(documentText(choices, { isVault: isVault(database), isListed: isVault(database) }))
}

function bulkDocs({ choices, database }: BodyPlace): FuzzBody {
  const most = choices.chance(0.02) ? 200 : 6
  const docs = choices.list(most, () => documentText(choices, { isVault: isVault(database), isListed: true }))
  if (choices.chance(0.5)) return json(`{"docs":[${docs}]}`)
  // Without a validate function, a replicated revision could win.
  if (isVault(database) && database !== GUARDED_VAULT) return losing(choices)
  return json(`{${choices.pick(['', '"all_or_nothing":false,'])}"docs":[${docs}],"new_edits":false}`)
}

/** Replicated branches of kept documents, none of which wins over what is kept. */
function losing(choices: Choices): FuzzBody {
  const docs = choices.list(4, () => ({
    _id: choices.pick(KEPT_IDS),
    _rev: choices.pick(REVISIONS),
    lost: true,
  }))
  return { ...json(JSON.stringify({ new_edits: false, docs })), isFixed: true }
}

function bulkGet({ choices, facts, database }: BodyPlace): FuzzBody {
  const ids = isVault(database) ? KEPT_IDS : WILD_IDS
  const revs = isVault(database) ? facts.revisions : REVISIONS
  const docs = choices.list(8, () => {
    const rev = choices.chance(0.5) ? `,"rev":${JSON.stringify(choices.mostly(revs, ODD_REVISIONS))}` : ''
    const since = choices.chance(0.1) ? `,"atts_since":${JSON.stringify([choices.pick(revs)])}` : ''
    return `{"id":${JSON.stringify(choices.mostly(ids, ODD_IDS))}${rev}${since}}`
  })
  return json(`{"docs":[${docs}]}`)
}

/** @param isRead whether the call can only read: what is right in a vault is told to no other */
function idsAndRevs({ choices, facts, database }: BodyPlace, isRead: boolean): string {
  const ids = isVault(database) ? KEPT_IDS : WILD_IDS
  const revs = isVault(database) && isRead ? facts.revisions : REVISIONS
  const members = choices.list(choices.chance(0.02) ? 120 : 6, () => {
    const listed = choices.list(4, () => choices.mostly(revs, ODD_REVISIONS))
    return `${JSON.stringify(choices.mostly(ids, ODD_IDS))}:${JSON.stringify(listed)}`
  })
  return `{${members}}`
}

function list(place: BodyPlace): FuzzBody {
  return json(listText(place))
}

function lists(place: BodyPlace): FuzzBody {
  return json(`{"queries":[${place.choices.list(5, () => listText(place))}]}`)
}

function listText({ choices }: BodyPlace): string {
  const id = () => JSON.stringify(choices.pick([...WILD_IDS, ...KEPT_IDS]))
  const members = {
    keys: () => `[${choices.list(8, () => (choices.chance(0.9) ? id() : choices.json()))}]`,
    key: () => choices.json(),
    startkey: id,
    end_key: id,
    descending: () => choices.mostly(['true', 'false'], ['1', '"true"']),
    limit: () => choices.mostly(['0', '3'], ['-1', '"3"', '1.5', '1e99']),
    skip: () => choices.edge(),
    include_docs: () => 'true',
    attachments: () => 'true',
    conflicts: () => 'true',
    update_seq: () => 'true',
    reduce: () => choices.pick(['true', 'false', 'null']),
    group: () => 'true',
    group_level: () => choices.edge(),
  }
  const chosen = choices.some(Object.entries(members), 0.2)
  return `{${chosen.map(([name, make]) => `"${name}":${make()}`)}}`
}

function changes({ choices }: BodyPlace): FuzzBody {
  const members: string[] = []
  if (choices.chance(0.5))
    members.push(`"doc_ids":${JSON.stringify(choices.some([...WILD_IDS, ...KEPT_IDS], 0.2))}`)
  if (choices.chance(0.6)) members.push(`"selector":${selector(choices, 3)}`)
  if (choices.chance(0.2))
    members.push(`"fields":${choices.pick(['["_id","n"]', '["a.b",["c"]]', '1', '[1]'])}`)
  return choices.chance(0.05) ? { bytes: Buffer.alloc(0), type: JSON_TYPE } : json(`{${members}}`)
}

function find({ choices }: BodyPlace): FuzzBody {
  const members = {
    limit: () => choices.mostly(['0', '3'], ['-1', '"3"', '1.5', '1e99']),
    skip: () => choices.edge(),
    sort: () =>
      choices.pick(['["_id"]', '[{"_id":"desc"}]', '["n"]', '[{"a":"up"}]', '{}', '["_id",{"a":"desc"}]']),
    fields: () => choices.pick(['["_id","n"]', '["a.b",["c"]]', '["a..b"]', '1', '[]']),
    bookmark: () => choices.pick(['"nil"', '""', 'null', '"WyJhIl0"', '"x"', '5']),
    use_index: () => choices.pick(['"x"', '["_design/x","y"]', 'null', '{}']),
    conflicts: () => choices.pick(['true', 'false', '1']),
    execution_stats: () => choices.pick(['true', '"true"']),
    allow_fallback: () => 'false',
    partition: () => choices.json(),
    r: () => choices.edge(),
  }
  const chosen = choices.some(Object.entries(members), 0.2).map(([name, make]) => `"${name}":${make()}`)
  const asked = choices.chance(0.3) ? '{"_id":{"$gt":null}}' : selector(choices, 3)
  return json(`{${[`"selector":${asked}`, ...chosen]}}`)
}

function index({ choices }: BodyPlace): FuzzBody {
  const fields = choices.mostly(
    ['["n"]', '["a","n"]', '[{"n":"desc"}]'],
    ['"n"', '[]', '["a..b"]', '[{"a":"up"}]'],
  )
  const filter = choices.chance(0.4) ? `,"partial_filter_selector":${selector(choices, 2)}` : ''
  const members = {
    name: () => choices.pick(['"n"', '""', '5']),
    ddoc: () => choices.pick(['"d"', '"_design/i"', '""', '"a/b"']),
    type: () => choices.pick(['"json"', '"text"', '1']),
    partitioned: () => choices.pick(['true', 'false', '1']),
    w: () => choices.edge(),
  }
  const chosen = choices.some(Object.entries(members), 0.2).map(([name, make]) => `"${name}":${make()}`)
  return json(`{${[`"index":{"fields":${fields}${filter}}`, ...chosen]}}`)
}

function selector(choices: Choices, depth: number): string {
  const below = () => selector(choices, depth - 1)
  if (depth > 0 && choices.chance(0.4)) {
    const operator = choices.pick([
      '$and',
      '$or',
      '$nor',
      '$not',
      '$all',
      '$elemMatch',
      '$allMatch',
      '$keyMapMatch',
    ])
    return `{"${operator}":${choices.chance(0.7) ? `[${choices.list(3, below)}]` : below()}}`
  }
  const operator = choices.pick(
    '$eq $ne $lt $lte $gt $gte $exists $type $in $nin $size $mod $regex $beginsWith $text $x'.split(' '),
  )
  const value = choices.pick([
    choices.json(),
    'true',
    '[2,1]',
    '[0,0]',
    '"(a+)+$"',
    '"string"',
    '"(?=x)"',
    `[${choices.json()},${choices.json()}]`,
  ])
  return `{"${choices.pick(['_id', 'n', 'a.b', 'a\\\\.b', '', 'type0'])}":{"${operator}":${value}}}`
}

function security({ choices }: BodyPlace): FuzzBody {
  const names = () => choices.mostly(['["anna"]', '[]'], ['[1]', '"x"', 'null'])
  const side = () => `{"names":${names()},"roles":${names()}}`
  return json(
    choices.mostly([`{"admins":${side()},"members":${side()}}`, '{}', `{"x":${choices.json()}}`], ['[]']),
  )
}

function limit({ choices }: BodyPlace): FuzzBody {
  return json(choices.mostly(['1', '2', '1000'], [choices.edge(), choices.json(), '']))
}

function setting({ choices }: BodyPlace): FuzzBody {
  return json(choices.mostly([JSON.stringify(choices.text()), '"5"', '"true"'], [choices.json()]))
}

function content({ choices }: BodyPlace): FuzzBody {
  const bytes = choices.bytes(
    choices.chance(0.05) ? choices.pick([70_000, 290_000, 290_000, 310_000]) : choices.below(300),
  )
  const type = choices.pick([
    'text/plain',
    'image/jpeg',
    'application/json',
    'x',
    '',
    'text/plain; charset="é"',
  ])
  return { bytes: choices.chance(0.1) ? gzipSync(bytes) : bytes, type }
}

function multipart({ choices, database }: BodyPlace): FuzzBody {
  const names = choices.some(ATTACHMENT_NAMES, 0.2)
  const contents = names.map(() => choices.bytes(choices.below(choices.chance(0.02) ? 90_000 : 100)))
  const entries = names.map(
    (name, at) => `${JSON.stringify(name)}:${follower(choices, contents[at] as Buffer)}`,
  )
  const following = `"_attachments":{${entries}}`
  const doc = documentText(choices, { isVault: isVault(database), isListed: isVault(database), following })
  const parts = names.map((name, at) => part(choices, name, contents[at] as Buffer))
  if (choices.chance(0.1)) parts.pop()
  if (choices.chance(0.1)) parts.push(part(choices, 'more', Buffer.from('more')))
  const head = Buffer.from(`--${BOUNDARY}\r\nContent-Type: application/json\r\n\r\n${doc}`)
  const bytes = Buffer.concat([head, ...parts, Buffer.from(`\r\n--${BOUNDARY}--`)])
  const boundary = choices.mostly(
    [BOUNDARY, `"${BOUNDARY}"`],
    ['other', '', `${BOUNDARY}x`, 'x'.repeat(300)],
    0.03,
  )
  return { bytes, type: `multipart/related; boundary=${boundary}` }
}

function follower(choices: Choices, bytes: Buffer): string {
  const length = choices.mostly([bytes.length], [0, 5, -1, 1e9])
  const digest = choices.mostly([md5(bytes)], ['md5-AAAAAAAAAAAAAAAAAAAAAA==', 'x'])
  const said = [`"follows":true`, `"length":${length}`, `"content_type":"text/plain"`]
  if (choices.chance(0.3)) said.push(`"digest":"${digest}"`)
  if (choices.chance(0.3)) said.push(`"revpos":${choices.below(4)}`)
  if (choices.chance(0.1)) said.push('"encoding":"gzip"', `"encoded_length":${bytes.length}`)
  return `{${said}}`
}

function part(choices: Choices, name: string, bytes: Buffer): Buffer {
  const headers = choices.chance(0.5)
    ? `Content-Disposition: attachment; filename="${name.replace(/["\r\n]/g, '')}"\r\n`
    : choices.pick(['', 'Content-Type: text/plain\r\n', 'broken\r\n', ': x\r\n'])
  return Buffer.concat([Buffer.from(`\r\n--${BOUNDARY}\r\n${headers}\r\n`), bytes])
}

function form({ choices, database }: BodyPlace): FuzzBody {
  const field = (name: string, value: Buffer | string, more = '') =>
    Buffer.concat([
      Buffer.from(`--${BOUNDARY}\r\nContent-Disposition: form-data; name="${name}"${more}\r\n\r\n`),
      Buffer.from(value),
      Buffer.from('\r\n'),
    ])
  const fields: Buffer[] = []
  if (choices.chance(0.6)) fields.push(field('_doc', documentText(choices, { isVault: isVault(database) })))
  if (choices.chance(0.6)) fields.push(field('_rev', choices.mostly(REVISIONS, ODD_REVISIONS)))
  for (const name of choices.some(ATTACHMENT_NAMES, 0.15)) {
    fields.push(field('_attachments', choices.bytes(30), `; filename="${name.replace(/["\r\n]/g, '')}"`))
  }
  const bytes = Buffer.concat([...fields, Buffer.from(`--${BOUNDARY}--\r\n`)])
  return { bytes, type: `multipart/form-data; boundary=${BOUNDARY}` }
}
