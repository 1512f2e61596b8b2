/** Which settings in effect are unsafe, and why: a table of rules over plain facts. */
import { isLoopback } from '../core/network.ts'
import { bindAddress } from './settings.ts'
import { parseClaims, parseHandlers } from './value-rules.ts'

/** What the rules look at. */
export interface SafetyFacts {
  readonly isHosted: boolean
  /** The value in effect; undefined or empty: the key is not set. */
  get(section: string, key: string): string | undefined
  /** Server admins that are configured. */
  readonly admins: number
  /** Seconds since the newest whole backup without damage began; null: there is none; undefined: not known. */
  readonly backupAge?: number | null
}

/** `danger`: somebody may get in, or data may be lost for good. `caution`: a protection is off. */
export type Severity = 'danger' | 'caution'

export interface UnsafeSetting {
  readonly section: string
  /** null: the whole section, as with missing admins. */
  readonly key: string | null
  readonly severity: Severity
  /** What can happen, and what to do, in whole sentences. */
  readonly reason: string
}

interface Rule {
  readonly section: string
  readonly key: string | null
  readonly severity: Severity
  /** @returns the reason; null if the setting is safe */
  check(facts: SafetyFacts): string | null
}

/** @param path `section/key` @param values that are unsafe */
function ifIn(path: string, severity: Severity, values: readonly string[], reason: string): Rule {
  const [section = '', key = ''] = path.split('/')
  const check = ({ get }: SafetyFacts) => (values.includes(get(section, key) ?? '') ? reason : null)
  return { section, key, severity, check }
}

/** @param kind of the keys in section `[csp]` @param what the pages are */
function pageRule(kind: string, what: string): Rule {
  const check = ({ get }: SafetyFacts) => {
    const isOn = get('csp', `${kind}_enable`) !== 'false'
    // Without a value, the default counts.
    return isOn && isSandboxed(get('csp', `${kind}_header_value`) || 'sandbox')
      ? null
      : `Pages among the ${what} can do whatever the person who opens them may do here, a server admin as well. ` +
          'Use the policy sandbox, without allow-same-origin.'
  }
  return { section: 'csp', key: `${kind}_header_value`, severity: 'danger', check }
}

function isSandboxed(policy: string): boolean {
  return policy
    .toLowerCase()
    .split(/[;,]/)
    .some((directive) => /^\s*sandbox(?:\s|$)/.test(directive) && !directive.includes('allow-same-origin'))
}

/** OWASP's Password Storage Cheat Sheet asks for 600,000 rounds with SHA-256, and 210,000 with SHA-512. */
const FEW_ROUNDS = 210_000
/** A month, in seconds. */
const LONG_SESSION = 2_592_000
/** Days without a backup that count as no backups, in seconds. */
const OLD_BACKUP = 7 * 86_400
const SILENT_LEVELS = ['error', 'err', 'critical', 'crit', 'alert', 'emergency', 'emerg', 'none']

/** Who has access, and how passwords are sent. */
const ACCESS_RULES: readonly Rule[] = [
  {
    section: 'admins',
    key: null,
    severity: 'danger',
    check: ({ admins, isHosted }) =>
      admins > 0 || isHosted
        ? null
        : 'There is no server admin: everybody who can reach this server may read and change everything. Create an admin.',
  },
  {
    section: 'chttpd',
    key: 'bind_address',
    severity: 'danger',
    check: (facts) =>
      isReachable(facts) && facts.get('ssl', 'enable') !== 'true' && !hasProxy(facts)
        ? 'Other machines can reach this server without TLS, so passwords and documents cross the network in clear ' +
          'text. Turn on TLS (ssl/enable), or put a proxy in front and name it in settee/trusted_proxies.'
        : null,
  },
  {
    section: 'couchdb',
    key: 'default_security',
    severity: 'danger',
    check: ({ get, isHosted }) =>
      isHosted || get('couchdb', 'default_security') === 'admin_only' || needsLogin(get)
        ? null
        : 'A new database is public: everybody who can reach this server may read and change it, without a login. ' +
          'Use admin_only, or set chttpd/require_valid_user to true.',
  },
  {
    section: 'cors',
    key: 'origins',
    severity: 'danger',
    check: ({ get }) =>
      (get('cors', 'origins') ?? '').split(',').some((origin) => origin.trim() === '*') &&
      get('cors', 'credentials') === 'true' &&
      (get('chttpd', 'enable_cors') || get('httpd', 'enable_cors')) !== 'false'
        ? 'Any web page that a user opens may use their session here. List the origins of your apps instead of *, ' +
          'or set cors/credentials to false.'
        : null,
  },
  ifIn(
    'chttpd/allow_jsonp',
    'danger',
    ['true'],
    'Any web page can read what its visitor’s session here can read. Set it to false unless an old app needs it.',
  ),
  ifIn(
    'chttpd/secure_rewrites',
    'caution',
    ['false'],
    'Rewrites of design documents may lead to other databases. Set it to true.',
  ),
  pageRule('attachments', 'attachments'),
  pageRule('showlist', 'answers of design documents'),
  ifIn(
    'chttpd_auth/same_site',
    'caution',
    ['none', 'None'],
    'Browsers send the session cookie with requests from all websites. Use lax unless an app on another site needs it.',
  ),
  ifIn(
    'chttpd_auth_lockout/mode',
    'danger',
    ['off', 'warn'],
    'Passwords can be guessed without limit. Use enforce.',
  ),
  {
    section: 'chttpd_auth',
    key: 'timeout',
    severity: 'caution',
    check: ({ get }) =>
      Number(get('chttpd_auth', 'timeout')) > LONG_SESSION
        ? 'Sessions last longer than a month, and a stolen cookie works for as long. Give devices tokens instead.'
        : null,
  },
  {
    section: 'settee',
    key: 'stranger_requests',
    severity: 'caution',
    check: (facts) =>
      facts.get('settee', 'stranger_requests') === '0' && (isReachable(facts) || hasProxy(facts))
        ? 'Requests without an account are not limited, so one network can keep this server busy. Set a limit.'
        : null,
  },
]

/** How passwords are stored, and who may vouch for accounts. */
const CREDENTIAL_RULES: readonly Rule[] = [
  {
    section: 'chttpd_auth',
    key: 'iterations',
    severity: 'danger',
    check: ({ get }) =>
      Number(get('chttpd_auth', 'iterations')) < FEW_ROUNDS
        ? 'New password hashes are weak: if they are stolen, the passwords are guessed sooner. Use 600,000 rounds.'
        : null,
  },
  ifIn(
    'chttpd_auth/pbkdf2_prf',
    'caution',
    ['sha', 'sha224'],
    'The digest of new password hashes is old. Use sha256 or sha512.',
  ),
  ifIn(
    'chttpd_auth/upgrade_hash_on_auth',
    'caution',
    ['false'],
    'Weak password hashes that were copied from older servers stay weak. Set it to true.',
  ),
  ifIn(
    'couchdb/users_db_security_editable',
    'caution',
    ['true'],
    'The security object of _users can be changed, which may let everybody create accounts. Set it to false when you are done.',
  ),
  {
    section: 'jwt_auth',
    key: 'required_claims',
    severity: 'danger',
    check: ({ get }) =>
      uses(get, 'jwt') &&
      !(parseClaims(get('jwt_auth', 'required_claims') ?? '') ?? []).some(({ name }) => name === 'exp')
        ? 'JSON web tokens without an expiry time are valid for ever. Require exp.'
        : null,
  },
  {
    section: 'settee',
    key: 'jwt_admin',
    severity: 'caution',
    check: ({ get }) =>
      uses(get, 'jwt') && get('settee', 'jwt_admin') === 'true'
        ? 'Whoever signs JSON web tokens for this server can become its admin. Set it to false unless you need it.'
        : null,
  },
  {
    section: 'chttpd_auth',
    key: 'proxy_use_secret',
    severity: 'caution',
    check: ({ get }) =>
      uses(get, 'proxy') && get('chttpd_auth', 'proxy_use_secret') !== 'true'
        ? 'The proxy vouches for accounts without a signature. If it passes on such headers from its clients, they can ' +
          'use any account. Set it to true, and give the proxy the secret.'
        : null,
  },
  ifIn(
    'replicator/verify_ssl_certificates',
    'danger',
    ['false'],
    'Replications do not check certificates, so anybody on the network path can read and change everything that is copied. Set it to true.',
  ),
]

/** What can be lost for good. */
const DATA_RULES: readonly Rule[] = [
  {
    section: 'settee',
    key: 'backup_interval',
    severity: 'danger',
    check: ({ get, backupAge }) =>
      get('settee', 'backup_interval') === '0' &&
      backupAge !== undefined &&
      (backupAge === null || backupAge > OLD_BACKUP)
        ? 'No backups are scheduled, and none was made in the last week. Set the hours between two backups, such as 24.'
        : null,
  },
  {
    section: 'settee',
    key: 'backup_folder',
    severity: 'caution',
    check: ({ get }) =>
      get('settee', 'backup_interval') !== '0' && !get('settee', 'backup_folder')
        ? 'Backups are in the data folder, so they are lost with its disk. Name a folder on another disk.'
        : null,
  },
  ifIn(
    'settee/keep_days',
    'danger',
    ['0'],
    'The time machine is off: an overwritten or deleted document cannot be brought back. Use 30.',
  ),
  ifIn(
    'settee/keep_bytes',
    'danger',
    ['0'],
    'The time machine keeps nothing: an overwritten or deleted document cannot be brought back.',
  ),
  ifIn(
    'settee/mass_deletion',
    'caution',
    ['0'],
    'No alarm is raised when a device deletes most of a database. Use 50.',
  ),
  ifIn(
    'settee/upgrade_copies_days',
    'caution',
    ['0'],
    'No copy is made before an upgrade changes a file, so you cannot go back to the older version. Use 30.',
  ),
  ifIn(
    'couch_peruser/delete_dbs',
    'caution',
    ['true'],
    "Deleting a user also deletes the user's database for good. Set it to false to keep it.",
  ),
  {
    section: 'quota',
    key: 'bytes',
    severity: 'caution',
    check: ({ get, isHosted }) =>
      isHosted && get('quota', 'bytes') === 'infinity'
        ? 'One tenant can fill the disk that all share. Set a limit in bytes.'
        : null,
  },
  ifIn(
    'log/level',
    'caution',
    SILENT_LEVELS,
    'Failed logins and mass deletions do not appear in the log. Use info or warning.',
  ),
]

const RULES = [...ACCESS_RULES, ...CREDENTIAL_RULES, ...DATA_RULES]

/** @returns what is unsafe, dangers first */
export function unsafeSettings(facts: SafetyFacts): UnsafeSetting[] {
  const found = RULES.flatMap(({ section, key, severity, check }) => {
    const reason = check(facts)
    return reason === null ? [] : [{ section, key, severity, reason }]
  })
  return [...found.filter(isDanger), ...found.filter((each) => !isDanger(each))]
}

function isDanger({ severity }: UnsafeSetting): boolean {
  return severity === 'danger'
}

type Get = SafetyFacts['get']

function isReachable({ get }: SafetyFacts): boolean {
  return !isLoopback(bindAddress({ get }))
}

function hasProxy({ get }: SafetyFacts): boolean {
  return (get('settee', 'trusted_proxies') ?? '').trim() !== ''
}

function needsLogin(get: Get): boolean {
  return ['require_valid_user', 'require_valid_user_except_for_up'].some(
    (key) => get('chttpd', key) === 'true',
  )
}

function uses(get: Get, handler: 'jwt' | 'proxy'): boolean {
  return (parseHandlers(get('chttpd', 'authentication_handlers') ?? '') ?? []).includes(handler)
}
