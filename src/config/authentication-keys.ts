/** The keys of authentication; protocol.md 11.2 to 11.5. */
import { DATABASE_NAME } from '../core/address.ts'
import { USERS_DATABASE } from '../core/ids.ts'
import { AT_START, BOOLEAN, integer, type KnownKey, row, TEXT, type ValueKind } from './settee-keys.ts'
import { problemOfClaims, problemOfHandlers, problemOfProxies } from './value-rules.ts'

/** Other names that begin with an underscore have meanings of their own. */
function problemOfUsersDatabase(name: string): string | null {
  if (name === USERS_DATABASE || DATABASE_NAME.test(name)) return null
  return 'must be the name of a database and begin with a letter'
}

const SAME_SITE: ValueKind = { type: 'choice', of: ['lax', 'strict', 'none', 'Lax', 'Strict', 'None', ''] }

/** Keys of logins, sessions, the lockout, tokens and proxies. */
export const AUTHENTICATION_KEYS: readonly KnownKey[] = [
  row(
    'chttpd',
    'authentication_handlers',
    null,
    { type: 'checked', problem: problemOfHandlers },
    'the authentication handlers in order: cookie, then default (Basic); name proxy and jwt to use them',
  ),
  row('chttpd', 'require_valid_user', null, TEXT, 'true: requests without credentials are refused'),
  row(
    'chttpd',
    'require_valid_user_except_for_up',
    null,
    TEXT,
    'true: requests without credentials are refused, except for _up',
  ),
  row(
    'chttpd_auth',
    'authentication_db',
    null,
    { type: 'checked', problem: problemOfUsersDatabase },
    'the database of accounts, _users if unset',
    AT_START,
  ),
  row('chttpd_auth', 'secret', null, TEXT, 'signs session cookies; generated when first needed'),
  row('chttpd_auth', 'timeout', 600, integer(1, 315_360_000), 'seconds until an unused session ends'),
  row(
    'chttpd_auth',
    'hash_algorithms',
    'sha256, sha',
    TEXT,
    'digests of session cookies; the first one signs',
  ),
  row(
    'chttpd_auth',
    'allow_persistent_cookies',
    'true',
    BOOLEAN,
    'false: cookies end with the browser window',
  ),
  row('chttpd_auth', 'cookie_domain', null, TEXT, 'the Domain of session cookies'),
  row('chttpd_auth', 'same_site', null, SAME_SITE, 'the SameSite of session cookies; Lax if unset or empty'),
  row('chttpd_auth', 'proxy_use_secret', 'false', BOOLEAN, 'true: a proxy must sign the user name'),
  row(
    'chttpd_auth',
    'x_auth_username',
    null,
    TEXT,
    'the header with the name; X-Auth-CouchDB-UserName if unset',
  ),
  row('chttpd_auth', 'x_auth_roles', null, TEXT, 'the header with the roles; X-Auth-CouchDB-Roles if unset'),
  row(
    'chttpd_auth',
    'x_auth_token',
    null,
    TEXT,
    'the header with the signature; X-Auth-CouchDB-Token if unset',
  ),
  row(
    'chttpd_auth_lockout',
    'mode',
    'enforce',
    { type: 'choice', of: ['off', 'warn', 'enforce'] },
    'enforce: failed logins lock an account for their address; warn: locks are only logged; off: no locks',
  ),
  row(
    'chttpd_auth_lockout',
    'threshold',
    5,
    integer(1, 1_000_000),
    'failed logins from one address that lock an account',
  ),
  row(
    'chttpd_auth_lockout',
    'max_lifetime',
    300_000,
    integer(1, 86_400_000),
    'milliseconds that an account stays locked',
  ),
  row(
    'chttpd_auth_lockout',
    'max_objects',
    10_000,
    integer(1, 1_000_000),
    'accounts and addresses whose failed logins are counted at the same time',
    AT_START,
  ),
  row(
    'jwt_auth',
    'required_claims',
    'exp',
    { type: 'checked', problem: problemOfClaims },
    'claims that a JSON web token must have; {claim, "value"} also requires the value',
  ),
  row('jwt_auth', 'roles_claim_name', '_couchdb.roles', TEXT, "the claim that holds a token's roles"),
  row(
    'jwt_auth',
    'roles_claim_path',
    null,
    TEXT,
    "a path to the claim that holds a token's roles, through nested claims",
  ),
  row(
    'settee',
    'jwt_admin',
    'false',
    BOOLEAN,
    'true: JSON web tokens may claim _admin and other roles that begin with _',
  ),
  row(
    'settee',
    'trusted_proxies',
    null,
    { type: 'checked', problem: problemOfProxies },
    'proxies whose X-Forwarded headers count',
  ),
]
