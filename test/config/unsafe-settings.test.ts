/** Which settings are unsafe: one case for each rule, and that the defaults are safe. */
import t from 'tap'
import { knownKey } from '../../src/config/defaults.ts'
import { type SafetyFacts, unsafeSettings } from '../../src/config/unsafe-settings.ts'

const HANDLERS = (name: string) => `{chttpd_auth, ${name}_authentication_handler}`

/** The defaults with other values, by `section/key`. */
function facts(set: Readonly<Record<string, string>> = {}, others: Partial<SafetyFacts> = {}): SafetyFacts {
  return {
    isHosted: false,
    admins: 1,
    backupAge: 3600,
    get: (section, key) => set[`${section}/${key}`] ?? knownKey(section, key)?.value ?? undefined,
    ...others,
  }
}

const found = (asked: SafetyFacts) =>
  unsafeSettings(asked).map(({ section, key }) => `${section}/${key ?? ''}`)

t.test('the defaults are safe with an admin and a backup', async (t) => {
  t.strictSame(unsafeSettings(facts()), [])
  t.strictSame(unsafeSettings(facts({ 'settee/mode': 'hosted' }, { isHosted: true, admins: 0 })), [])
})

t.test('each rule', async (t) => {
  const cases: [Readonly<Record<string, string>>, unsafe: string | null][] = [
    [{ 'chttpd/bind_address': '0.0.0.0' }, 'chttpd/bind_address'],
    [{ 'chttpd/bind_address': 'any' }, 'chttpd/bind_address'],
    [{ 'chttpd/bind_address': '::1' }, null],
    [{ 'chttpd/bind_address': '0.0.0.0', 'ssl/enable': 'true' }, null],
    [{ 'chttpd/bind_address': '0.0.0.0', 'settee/trusted_proxies': 'loopback' }, null],
    [{ 'couchdb/default_security': 'everyone' }, 'couchdb/default_security'],
    [{ 'couchdb/default_security': 'admin_local' }, 'couchdb/default_security'],
    [{ 'couchdb/default_security': 'everyone', 'chttpd/require_valid_user': 'true' }, null],
    [{ 'cors/origins': 'app://x, *', 'cors/credentials': 'true' }, 'cors/origins'],
    [{ 'cors/origins': '*', 'cors/credentials': 'true', 'httpd/enable_cors': 'false' }, null],
    [{ 'cors/origins': '*' }, null],
    [{ 'chttpd/allow_jsonp': 'true' }, 'chttpd/allow_jsonp'],
    [{ 'chttpd/secure_rewrites': 'false' }, 'chttpd/secure_rewrites'],
    [{ 'csp/attachments_enable': 'false' }, 'csp/attachments_header_value'],
    [{ 'csp/showlist_header_value': "default-src 'self'" }, 'csp/showlist_header_value'],
    [{ 'csp/showlist_header_value': 'sandbox allow-scripts allow-same-origin' }, 'csp/showlist_header_value'],
    [{ 'csp/showlist_header_value': "script-src 'self'; Sandbox allow-scripts" }, null],
    [{ 'csp/showlist_header_value': '' }, null],
    [{ 'chttpd_auth/same_site': 'None' }, 'chttpd_auth/same_site'],
    [{ 'chttpd_auth_lockout/mode': 'warn' }, 'chttpd_auth_lockout/mode'],
    [{ 'chttpd_auth/timeout': '2592000' }, null],
    [{ 'chttpd_auth/timeout': '2592001' }, 'chttpd_auth/timeout'],
    [{ 'settee/stranger_requests': '0' }, null],
    [{ 'settee/stranger_requests': '0', 'settee/trusted_proxies': '10.0.0.1' }, 'settee/stranger_requests'],
    [{ 'chttpd_auth/iterations': '209999' }, 'chttpd_auth/iterations'],
    [{ 'chttpd_auth/pbkdf2_prf': 'sha' }, 'chttpd_auth/pbkdf2_prf'],
    [{ 'chttpd_auth/upgrade_hash_on_auth': 'false' }, 'chttpd_auth/upgrade_hash_on_auth'],
    [{ 'couchdb/users_db_security_editable': 'true' }, 'couchdb/users_db_security_editable'],
    [{ 'jwt_auth/required_claims': 'iss' }, null],
    [
      { 'jwt_auth/required_claims': 'iss', 'chttpd/authentication_handlers': HANDLERS('jwt') },
      'jwt_auth/required_claims',
    ],
    [{ 'settee/jwt_admin': 'true', 'chttpd/authentication_handlers': HANDLERS('jwt') }, 'settee/jwt_admin'],
    [{ 'chttpd/authentication_handlers': HANDLERS('proxy') }, 'chttpd_auth/proxy_use_secret'],
    [{ 'replicator/verify_ssl_certificates': 'false' }, 'replicator/verify_ssl_certificates'],
    [{ 'settee/backup_interval': '24' }, 'settee/backup_folder'],
    [{ 'settee/backup_interval': '24', 'settee/backup_folder': '/mnt/backups' }, null],
    [{ 'settee/keep_days': '0' }, 'settee/keep_days'],
    [{ 'settee/keep_bytes': '0' }, 'settee/keep_bytes'],
    [{ 'settee/mass_deletion': '0' }, 'settee/mass_deletion'],
    [{ 'settee/upgrade_copies_days': '0' }, 'settee/upgrade_copies_days'],
    [{ 'couch_peruser/delete_dbs': 'true' }, 'couch_peruser/delete_dbs'],
    [{ 'quota/bytes': 'infinity' }, null],
    [{ 'log/level': 'none' }, 'log/level'],
    [{ 'log/level': 'warning' }, null],
  ]
  for (const [set, unsafe] of cases) {
    t.strictSame(found(facts(set)), unsafe === null ? [] : [unsafe], JSON.stringify(set))
  }
  t.strictSame(found(facts({}, { admins: 0 })), ['admins/'])
  t.strictSame(found(facts({ 'quota/bytes': 'infinity' }, { isHosted: true })), ['quota/bytes'])
  t.strictSame(found(facts({}, { backupAge: null })), ['settee/backup_interval'])
  t.strictSame(found(facts({}, { backupAge: 8 * 86_400 })), ['settee/backup_interval'])
  const { backupAge, ...noBackups } = facts()
  t.strictSame(found(noBackups), [], 'a server without backups has no finding about them')
})

t.test('dangers come first', async (t) => {
  const all = unsafeSettings(facts({ 'chttpd/secure_rewrites': 'false', 'settee/keep_days': '0' }))
  t.match(all, [{ severity: 'danger' }, { severity: 'caution' }])
  t.ok(all.every(({ reason }) => /^[A-Z].*\.$/.test(reason)))
})
