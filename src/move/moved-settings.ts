/** Which settings of the old server come along: admins, CORS, limits and access. Pure. */
import { isHashed } from '../auth/password.ts'
import { knownKey, SECRET_MASK } from '../config/defaults.ts'
import type { RemoteConfig } from '../replication/remote/remote-server.ts'

export interface MovedSetting {
  readonly section: string
  readonly key: string
  readonly value: string
}

/** A setting whose value the report must not show. */
export function isShown({ section, key }: Pick<MovedSetting, 'section' | 'key'>): boolean {
  return section !== 'admins' && section !== 'jwt_keys' && key !== 'secret'
}

/** A limit of what a database accepts. */
export function isLimit({ section, key }: Pick<MovedSetting, 'section' | 'key'>): boolean {
  return section === 'couchdb' && key.startsWith('max_')
}

/**
 * The keys, and the defaults of CouchDB's versions and of PouchDB's server: `_config` lists defaults as well, and settee
 * has its own (protocol.md 12.2).
 */
const KEYS: Readonly<Record<string, Readonly<Record<string, readonly string[]>>>> = {
  couchdb: {
    max_document_size: ['8000000', '4294967296', '67108864'],
    max_attachment_size: ['infinity', '1073741824'],
    max_document_id_length: ['infinity'],
    max_bulk_docs_count: ['10000'],
    max_bulk_get_count: ['10000'],
    os_process_timeout: ['5000'],
    users_db_security_editable: ['false'],
    default_security: ['admin_only', 'admin_local'],
  },
  chttpd: {
    max_http_request_size: ['4294967296', '67108864'],
    require_valid_user: ['false'],
    require_valid_user_except_for_up: ['false'],
    authentication_handlers: [
      '{chttpd_auth, cookie_authentication_handler}, {chttpd_auth, default_authentication_handler}',
      '{couch_httpd_auth, cookie_authentication_handler}, {couch_httpd_auth, default_authentication_handler}',
    ],
  },
  chttpd_auth: {
    secret: [],
    timeout: ['600'],
    allow_persistent_cookies: ['true', 'false'],
    cookie_domain: [],
    same_site: [],
    proxy_use_secret: ['false'],
    x_auth_username: ['X-Auth-CouchDB-UserName'],
    x_auth_roles: ['X-Auth-CouchDB-Roles'],
    x_auth_token: ['X-Auth-CouchDB-Token'],
    public_fields: [],
    users_db_public: ['false'],
    password_regexp: [],
  },
  couch_peruser: {
    enable: ['false'],
    delete_dbs: ['false'],
    database_prefix: ['userdb-'],
  },
  jwt_auth: {
    required_claims: ['', 'exp'],
    roles_claim_name: ['_couchdb.roles'],
    roles_claim_path: [],
  },
  mango: { default_limit: ['25'] },
  purge: { max_document_id_number: ['100'], max_revisions_number: ['1000'] },
}

/** These come along as a whole. */
const CORS_KEYS = ['origins', 'credentials', 'headers', 'methods', 'max_age', 'exposed_headers'] as const
/** The names of sections before CouchDB 2 and 3. */
const OLDER: Readonly<Record<string, string>> = { chttpd: 'httpd', chttpd_auth: 'couch_httpd_auth' }

/**
 * @param old the configuration of the old server
 * @returns admins first
 */
export function movedSettings(old: RemoteConfig): readonly MovedSetting[] {
  const found: MovedSetting[] = []
  const add = (section: string, key: string, value: string | undefined) => {
    if (value === undefined || value.trim() === '' || value === SECRET_MASK) return
    if (value !== knownKey(section, key)?.value) found.push({ section, key, value })
  }
  for (const [name, stored] of Object.entries(old.admins ?? {})) {
    if (isHashed(stored)) add('admins', name, stored)
  }
  for (const [section, keys] of Object.entries(KEYS)) {
    for (const [key, defaults] of Object.entries(keys)) {
      const value = old[section]?.[key] ?? old[OLDER[section] ?? '']?.[key]
      if (value !== undefined && !defaults.includes(normal(value))) add(section, key, value)
    }
  }
  for (const [key, value] of Object.entries(old.jwt_keys ?? {})) add('jwt_keys', key, value)
  // PouchDB's server is open to every origin unless somebody changes it.
  const isPouchDefault = old.pouchdb_server !== undefined && old.cors?.origins === '*'
  if ((old.chttpd?.enable_cors ?? old.httpd?.enable_cors) === 'true' && !isPouchDefault) {
    add('chttpd', 'enable_cors', 'true')
    for (const key of CORS_KEYS) add('cors', key, old.cors?.[key])
  }
  return found
}

function normal(value: string): string {
  return value.trim().replace(/\s+/g, ' ')
}
