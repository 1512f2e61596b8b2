/** The settings in the groups in which people look for them. */
import type { Setting } from './setting.ts'

export const GROUPS = [
  'access',
  'network',
  'limits',
  'storage',
  'backups',
  'replication',
  'hosted',
  'log',
  'functions',
  'other',
] as const

export type GroupName = (typeof GROUPS)[number]

/** Whole sections. */
const SECTIONS: Readonly<Record<string, GroupName>> = {
  chttpd_auth: 'access',
  couch_httpd_auth: 'access',
  chttpd_auth_lockout: 'access',
  jwt_auth: 'access',
  jwt_keys: 'access',
  couch_peruser: 'access',
  ssl: 'network',
  cors: 'network',
  csp: 'network',
  chttpd: 'network',
  httpd: 'network',
  couchdb: 'limits',
  purge: 'limits',
  attachments: 'storage',
  replicator: 'replication',
  quota: 'hosted',
  log: 'log',
  mango: 'functions',
  uuids: 'functions',
}

/** Keys that belong elsewhere than their section, by `section/key`, or by a prefix of it that ends in `*`. */
const KEYS: readonly (readonly [pattern: string, group: GroupName])[] = [
  ['chttpd/authentication_handlers', 'access'],
  ['chttpd/require_valid_user*', 'access'],
  ['chttpd/WWW-Authenticate', 'access'],
  ['httpd/WWW-Authenticate', 'access'],
  ['couchdb/default_security', 'access'],
  ['couchdb/users_db_security_editable', 'access'],
  ['couchdb/database_dir', 'storage'],
  ['couchdb/max_dbs_open', 'storage'],
  ['couchdb/single_node', 'other'],
  ['couchdb/os_process_timeout', 'functions'],
  ['chttpd/max_*', 'limits'],
  ['chttpd/rewrite_limit', 'functions'],
  ['chttpd/secure_rewrites', 'functions'],
  ['cors:*', 'network'],
  ['settee/jwt_admin', 'access'],
  ['settee/max_tokens', 'access'],
  ['settee/token*', 'access'],
  ['settee/console', 'network'],
  ['settee/trusted_proxies', 'network'],
  ['settee/tls_bind_address', 'network'],
  ['settee/max_*', 'limits'],
  ['settee/stranger_requests', 'limits'],
  ['settee/body_*', 'limits'],
  ['settee/database_threads', 'limits'],
  ['settee/thread_heap', 'limits'],
  ['settee/function_memory', 'functions'],
  ['settee/sandbox_memory', 'functions'],
  ['settee/couchapps', 'functions'],
  ['settee/keep_*', 'storage'],
  ['settee/compaction*', 'storage'],
  ['settee/mass_deletion*', 'storage'],
  ['settee/replaced_days', 'storage'],
  ['settee/upgrade_copies_days', 'storage'],
  ['settee/free_space_floor', 'storage'],
  ['settee/store*', 'storage'],
  ['settee/drain_seconds', 'network'],
  ['settee/backup_*', 'backups'],
  ['settee/scrub_interval', 'backups'],
  ['settee/standby_max_lag', 'replication'],
  ['settee/mode', 'hosted'],
  ['settee/hosted_replication', 'hosted'],
  ['settee/sign_up', 'hosted'],
]

/** @returns the group of a setting; `other` for one that settee does not know */
export function groupOf({ section, key }: Pick<Setting, 'section' | 'key'>): GroupName {
  const path = `${section}/${key}`
  const found = KEYS.find(([pattern]) =>
    pattern.endsWith('*') ? path.startsWith(pattern.slice(0, -1)) : path === pattern,
  )
  if (found !== undefined) return found[1]
  return Object.hasOwn(SECTIONS, section) ? SECTIONS[section]! : 'other'
}

/** What the list of settings shows. */
export interface SettingFilter {
  /** A group, `unsafe`, `changed` (from the default), or `all`. */
  readonly group: GroupName | 'unsafe' | 'changed' | 'all'
  /** Words that must all occur in the key, its description, or its value. */
  readonly text: string
}

/** @returns the settings that fit, in the order of their keys within each section */
export function filterSettings(settings: readonly Setting[], { group, text }: SettingFilter): Setting[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean)
  return settings.filter(
    (setting) => isIn(setting, group) && words.every((word) => searchable(setting).includes(word)),
  )
}

function isIn(setting: Setting, group: SettingFilter['group']): boolean {
  if (group === 'all') return true
  if (group === 'unsafe') return setting.unsafe !== null
  if (group === 'changed') return setting.source !== 'default'
  return groupOf(setting) === group
}

function searchable({ section, key, about, value, secret }: Setting): string {
  return `${section}/${key} ${about ?? ''} ${secret ? '' : (value ?? '')}`.toLowerCase()
}
