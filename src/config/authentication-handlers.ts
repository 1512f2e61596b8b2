/** The ways in that `chttpd/authentication_handlers` names; protocol.md 11.2. */

/** CouchDB's names, as `GET /_session` lists them. */
export type HandlerName = 'cookie' | 'default' | 'proxy' | 'jwt'

/** CouchDB's own default: session cookies, then Basic. */
export const DEFAULT_HANDLERS: readonly HandlerName[] = ['cookie', 'default']

/** `chttpd_auth` since CouchDB 2; ini files that are older say `couch_httpd_auth`. */
const HANDLER =
  /^\{\s*(?:chttpd_auth|couch_httpd_auth)\s*,\s*(cookie|default|proxy|jwt)_authentication_handler\s*\}$/

/**
 * Reads CouchDB's text form, `{chttpd_auth, cookie_authentication_handler}, {chttpd_auth, default_authentication_handler}`.
 * @returns the handlers in their order, null when the text is no such list
 */
export function parseHandlers(text: string): readonly HandlerName[] | null {
  const names: HandlerName[] = []
  for (const item of text.split(/(?<=\})\s*,/)) {
    const name = HANDLER.exec(item.trim())?.[1] as HandlerName | undefined
    if (name === undefined || names.includes(name)) return null
    names.push(name)
  }
  return names
}

/** @returns what is wrong with a value of the key, in words that follow its name; null when nothing is */
export function problemOfHandlers(text: string): string | null {
  if (parseHandlers(text) !== null) return null
  return 'must be a list like {chttpd_auth, cookie_authentication_handler}, of the handlers cookie, default, proxy and jwt, each once'
}
