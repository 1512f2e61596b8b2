/** Every setting with all that can be said of it, for `GET /_settee/configuration`. */
import type { Config } from './config.ts'
import { isSecretKey, KNOWN_KEYS, knownKey, READ_ONLY_SECTIONS, SECRET_MASK } from './defaults.ts'
import type { KnownKey, ValueKind } from './settee-keys.ts'
import type { Origin } from './sources.ts'
import type { Severity, UnsafeSetting } from './unsafe-settings.ts'
import { newerSection } from './values.ts'

/** The control that fits a value: its type, its bounds, or its choices. */
type ShownKind =
  | { readonly type: 'integer'; readonly min: number; readonly max: number }
  | { readonly type: 'bytes' | 'count'; readonly min: number }
  | { readonly type: 'choice'; readonly of: readonly string[] }
  | { readonly type: 'text' }

export interface ListedSetting {
  readonly section: string
  readonly key: string
  /** The value in effect, secrets as asterisks; null: there is none. */
  readonly value: string | null
  /** null: unset by default. */
  readonly default: string | null
  readonly kind: ShownKind
  /** What the key does, in one line; null for a key that settee does not read. */
  readonly about: string | null
  /** Where the value comes from. */
  readonly source: Origin['from'] | 'default'
  /** The environment variable or the flag; null for other sources. */
  readonly source_name: string | null
  readonly read_at_start: boolean
  /** Whether the value differs from the one that counts since the start. */
  readonly restart_needed: boolean
  /** Whether it can be changed with `_node/_local/_config`. */
  readonly editable: boolean
  readonly secret: boolean
  /** Why the present value is unsafe; null: it is not. */
  readonly unsafe: { readonly severity: Severity; readonly reason: string } | null
}

/** Keys of local.ini that settee does not know, at most; the others are counted. */
const MAX_UNKNOWN = 1000

/** Keys that settee reads, but whose names or sections are open. */
const OPEN_KEYS: Readonly<Record<string, string>> = {
  'chttpd/WWW-Authenticate': 'sent with a 401, except to scripts of web pages',
  'httpd/WWW-Authenticate': 'used if chttpd/WWW-Authenticate is not set',
}

/** @returns what the keys that are read at start have now; call it when the server starts */
export function valuesAtStart(config: Config): ReadonlyMap<KnownKey, string | undefined> {
  return new Map(
    KNOWN_KEYS.filter(({ isReadAtStart }) => isReadAtStart).map((known) => [
      known,
      config.get(known.section, known.key),
    ]),
  )
}

/**
 * Lists all keys that settee knows, then the others that are set. Section `[admins]` is left out: its keys are accounts.
 * @param atStart from {@link valuesAtStart}
 * @param unsafe from `unsafeSettings`
 * @returns the settings, and how many unknown ones were left out
 */
export function listSettings(
  config: Config,
  atStart: ReturnType<typeof valuesAtStart>,
  unsafe: readonly UnsafeSetting[],
): { readonly settings: ListedSetting[]; readonly leftOut: number } {
  const known = KNOWN_KEYS.map((each): ListedSetting => {
    const { section, key, kind, about, value, isReadAtStart } = each
    return {
      ...common(config, section, key, unsafe),
      default: value,
      kind: shownKind(kind),
      about,
      read_at_start: isReadAtStart,
      restart_needed: isReadAtStart && atStart.get(each) !== config.get(section, key),
      editable: kind.type !== 'shown' && kind.type !== 'local',
    }
  })
  const others = unknownKeys(config)
  const unknown = others.slice(0, MAX_UNKNOWN).map(([section, key]): ListedSetting => {
    return {
      ...common(config, section, key, unsafe),
      default: null,
      kind: { type: 'text' },
      about: aboutUnknown(section, key),
      read_at_start: false,
      restart_needed: false,
      editable: !READ_ONLY_SECTIONS.has(section),
    }
  })
  return { settings: [...known, ...unknown], leftOut: Math.max(0, others.length - MAX_UNKNOWN) }
}

type Common = 'section' | 'key' | 'value' | 'source' | 'source_name' | 'secret' | 'unsafe'

function common(
  config: Config,
  section: string,
  key: string,
  unsafe: readonly UnsafeSetting[],
): Pick<ListedSetting, Common> {
  const value = config.get(section, key) ?? null
  const origin = config.origin(section, key)
  const secret = isSecretKey(section, key)
  const found = unsafe.find((each) => each.section === section && each.key === key)
  return {
    section,
    key,
    value: value !== null && value !== '' && secret ? SECRET_MASK : value,
    source: origin?.from ?? 'default',
    source_name: origin?.name ?? null,
    secret,
    unsafe: found === undefined ? null : { severity: found.severity, reason: found.reason },
  }
}

function unknownKeys(config: Config): [section: string, key: string][] {
  return config
    .sections()
    .filter((section) => section !== 'admins')
    .flatMap((section) => Object.keys(config.section(section)).map((key): [string, string] => [section, key]))
    .filter(([section, key]) => knownKey(section, key) === undefined)
}

/** Keys of open families, and those of older sections, are read; others are only kept. */
function aboutUnknown(section: string, key: string): string | null {
  const open = OPEN_KEYS[`${section}/${key}`]
  if (open !== undefined) return open
  if (section === 'jwt_keys') return 'a key that verifies JSON web tokens'
  const newer = newerSection(section, key)
  if (newer !== null && knownKey(newer, key) !== undefined) return `used if ${newer}/${key} is not set`
  const general = section.startsWith('cors:') ? knownKey('cors', key) : undefined
  return general === undefined ? null : `${general.about}; for this host name alone`
}

function shownKind(kind: ValueKind): ShownKind {
  switch (kind.type) {
    case 'integer':
      return { type: 'integer', min: kind.min, max: kind.max }
    case 'bytes':
    case 'count':
      return { type: kind.type, min: kind.min }
    case 'choice':
      return { type: 'choice', of: kind.of }
    default:
      return { type: 'text' }
  }
}
