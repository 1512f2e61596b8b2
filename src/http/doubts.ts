/** Whatever can take back what lets callers in, heard in one place. */
import type { FastifyInstance } from 'fastify'
import type { AccountListener } from '../auth/accounts.ts'

/** Sections that hold keys which callers' tokens are signed with. */
const KEYS: ReadonlySet<string> = new Set(['jwt_auth', 'jwt_keys'])
/** What else of `[chttpd]` and `[chttpd_auth]` decides who is let in. */
const RULES: ReadonlySet<string> = new Set([
  'authentication_handlers',
  'require_valid_user',
  'require_valid_user_except_for_up',
  'secret',
  'proxy_use_secret',
])
const RULE_SECTIONS: ReadonlySet<string> = new Set(['chttpd', 'chttpd_auth', 'couch_httpd_auth'])

/**
 * Calls `listener` with the names of accounts that may have lost something: the account itself, its password, its
 * roles, one of its device tokens or sessions; with `all` where keys or rules have changed. That a cookie's or a
 * token's time is over is no such thing: what began in time goes on.
 * @returns what ends the calls
 */
export function onDoubt(app: FastifyInstance, listener: AccountListener): () => void {
  const { accounts, config, tokens } = app.services
  const forget = [accounts, tokens, app.sessions].map((source) => source.onChange(listener))
  forget.push(
    config.onChange((section, key) => {
      if (KEYS.has(section) || (RULE_SECTIONS.has(section) && RULES.has(key))) listener('all')
    }),
  )
  return () => {
    for (const each of forget) each()
  }
}
