/** Addresses, made from the patterns of the route table: a route is covered as soon as it is registered. */
import { KNOWN_KEYS, READ_ONLY_SECTIONS } from '../../src/config/defaults.ts'
import type { Choices } from './choices.ts'
import {
  ACCOUNT_NAMES,
  ATTACHMENT_NAMES,
  DESIGN_NAMES,
  KEPT_ATTACHMENTS,
  KEPT_IDS,
  LOCAL_NAMES,
  MEMBER_NAMES,
  NO_DATABASES,
  ODD_IDS,
  PACKED_ID,
  VAULTS,
  WILD_DATABASES,
  WILD_IDS,
} from './world.ts'

/** What a generator of a path's parameter may look at. */
export interface Place {
  readonly choices: Choices
  readonly route: string
  /** Decoded. */
  readonly database: string
  /** The request can only read. */
  readonly isRead: boolean
}

export interface Address {
  /** As it stands in the request, without a query. */
  readonly path: string
  readonly parameters: Readonly<Record<string, string>>
}

type Generator = (place: Place) => string

/** Keys whose change would not keep the fuzz from going on: all the others are only read, or set to nonsense. */
const HARMLESS_KEYS = [
  ['chttpd', 'port'],
  ['chttpd', 'bind_address'],
  ['chttpd', 'WWW-Authenticate'],
  ['couchdb', 'max_dbs_open'],
  ['admins', 'another'],
  ['section', 'key'],
  ['__proto__', '__proto__'],
  ['é', 'with = sign'],
  ['a]b', '[c'],
  ['x\ny', ';k'],
] as const

/** By the name of the parameter in the pattern. */
const PARAMETERS: Readonly<Record<string, Generator>> = {
  db: ({ database }) => database,
  partition: ({ choices }) => choices.mostly(['a', 'p', 'é'], ['', '_x', 'a:b', choices.text()]),
  docid: documentId,
  ddoc: designName,
  local: ({ choices }) => choices.pick(LOCAL_NAMES),
  view: ({ choices }) => choices.pick(MEMBER_NAMES),
  node: ({ choices }) => choices.mostly(['_local', 'nonode@nohost'], ['couchdb@127.0.0.1', 'x', '']),
  section: (place) => configKey(place)[0],
  key: (place) => configKey(place)[1],
  fn: ({ choices }) => choices.pick([...MEMBER_NAMES, 'x']),
  other: ({ choices }) => choices.pick(DESIGN_NAMES),
  name: ({ choices }) => choices.pick([...ACCOUNT_NAMES, 'n']),
  id: ({ choices }) =>
    choices.pick(['', 'x', 'é', '__proto__', '0'.repeat(32), '2026-01-01T00-00-00Z', '..']),
  type: ({ choices }) => choices.mostly(['json'], ['text', 'special', '']),
  alarm: ({ choices }) => choices.pick(['', 'x', 'é', '__proto__', '0'.repeat(32)]),
  '*': (place) => (place.route === '/_scheduler/docs/*' ? replicationPlace(place) : attachmentName(place)),
}

/** The parameters of a pattern that nothing here can make. */
export function unknownParameters(route: string): string[] {
  return parametersOf(route).filter((name) => !Object.hasOwn(PARAMETERS, name))
}

export function pickDatabase(choices: Choices): string {
  const kind = choices.weighted({ wild: 60, vault: 35, none: 5 })
  if (kind === 'none') return choices.pick(NO_DATABASES)
  return choices.pick(kind === 'wild' ? WILD_DATABASES : VAULTS)
}

/** An address of the route. In a vault it is only bent where the request reads. */
export function makeAddress(place: Place): Address {
  const { choices, route, database, isRead } = place
  const parameters: Record<string, string> = {}
  const mayBend = isRead || !VAULTS.includes(database)
  const segments = route.split('/').map((segment) => {
    const name = parameterOf(segment)
    if (name === undefined) return segment
    const value = (PARAMETERS[name] as Generator)(place)
    parameters[name] = value
    const prefix = name === '*' ? segment.slice(0, -1) : ''
    return prefix + encoded(choices, value, mayBend, name === '*')
  })
  const path = segments.join('/')
  return { path: mayBend && choices.chance(0.03) ? bent(choices, path) : path, parameters }
}

function parametersOf(route: string): string[] {
  return route.split('/').flatMap((segment) => parameterOf(segment) ?? [])
}

function parameterOf(segment: string): string | undefined {
  if (segment.startsWith(':')) return segment.slice(1)
  return segment.endsWith('*') ? '*' : undefined
}

function documentId({ choices, database, isRead }: Place): string {
  if (!VAULTS.includes(database)) {
    return choices.chance(0.1) ? `new-${choices.below(100_000)}` : choices.mostly(WILD_IDS, ODD_IDS)
  }
  if (!isRead) return choices.pick(KEPT_IDS)
  return choices.chance(0.1) ? PACKED_ID : choices.mostly(KEPT_IDS, ODD_IDS)
}

function replicationPlace({ choices }: Place): string {
  const database = choices.mostly(
    ['wild/_replicator'],
    ['_replicator', 'wild-a', '_replicator/_replicator', ''],
  )
  return choices.chance(0.3) ? database : `${database}/${choices.mostly(WILD_IDS, ODD_IDS)}`
}

function attachmentName({ choices, database, isRead }: Place): string {
  const isKept = VAULTS.includes(database) && isRead && choices.chance(0.7)
  return choices.pick(isKept ? KEPT_ATTACHMENTS : ATTACHMENT_NAMES)
}

/** In a vault no other is written: its functions would decide on what is kept. */
function designName({ choices, database, isRead }: Place): string {
  if (VAULTS.includes(database) && (!isRead || choices.chance(0.7))) return 'guard'
  return choices.pick(DESIGN_NAMES)
}

/** Both parts from one choice; the pair is a pair often enough since each is drawn from few. */
function configKey({ choices, isRead }: Place): readonly [section: string, key: string] {
  if (!isRead) return [...choices.pick(HARMLESS_KEYS)]
  const { section, key } = choices.pick(KNOWN_KEYS)
  return choices.chance(0.8) ? [section, key] : [choices.pick([...READ_ONLY_SECTIONS, '']), choices.text()]
}

/** Percent-encoded, as clients do it; or, now and then, only what must be, or all of it. */
function encoded(choices: Choices, value: string, mayBend: boolean, keepsSlashes: boolean): string {
  const whole = encodeURIComponent(value)
  if (!mayBend || choices.chance(0.85)) {
    return keepsSlashes && choices.chance(0.5) ? whole.replaceAll('%2F', '/') : whole
  }
  if (choices.chance(0.5)) return value
  return [...Buffer.from(value)].map((byte) => `%${byte.toString(16).padStart(2, '0')}`).join('')
}

const BENDS: readonly ((path: string, choices: Choices) => string)[] = [
  (path) => `${path}/`,
  (path) => path.replaceAll('/', '//'),
  (path) => `http://example.org${path}`,
  (path) => `http://${path}`,
  (path) => path.slice(1),
  (path) => `${path}%`,
  (path) => `${path}%zz`,
  (path) => `${path}%c3`,
  (path) => `${path}%00`,
  (path) => `${path}%ed%a0%80`,
  (path) => `${path}/../..`,
  (path) => `${path}#part`,
  (path) => `${path};p=1`,
  (path) => path.toUpperCase(),
  (path, choices) => path.slice(0, choices.below(path.length)),
  (path, choices) => path + encodeURIComponent(choices.text()),
  (path, choices) => path + choices.text(),
  (path) => path + '/x'.repeat(200),
  (path) => `${path}/${'y'.repeat(18_000)}`,
]

function bent(choices: Choices, path: string): string {
  return choices.pick(BENDS)(path, choices)
}
