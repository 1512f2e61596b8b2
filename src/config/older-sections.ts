/** Sections of CouchDB 1 and 2 whose keys count where the newer ones lack them, as in CouchDB 3.5 (protocol.md 12.1). */
import { knownKey } from './defaults.ts'
import type { Sections } from './ini-file.ts'

/** Keys of `[chttpd]` that CouchDB also reads from `[httpd]` (chttpd_util); `port` and `bind_address` are not among them. */
const FROM_HTTPD: ReadonlySet<string> = new Set([
  'allow_jsonp',
  'changes_timeout',
  'enable_cors',
  'max_http_request_size',
  'max_uri_length',
  'x_forwarded_host',
  'x_forwarded_proto',
  'x_forwarded_ssl',
])

/** @returns the section of CouchDB 1 and 2 whose key counts where this one lacks it (protocol.md 12.1); null for none */
export function olderSection(section: string, key: string): string | null {
  if (section === 'chttpd_auth') return 'couch_httpd_auth'
  return section === 'chttpd' && FROM_HTTPD.has(key) ? 'httpd' : null
}

/** The inverse of {@link olderSection}. */
export function newerSection(section: string, key: string): string | null {
  if (section === 'couch_httpd_auth') return 'chttpd_auth'
  return section === 'httpd' && FROM_HTTPD.has(key) ? 'chttpd' : null
}

/** What is set, without the defaults. */
export type Own = (section: string, key: string) => string | undefined

/** @returns what the sections set */
export function ownIn(sections: Sections): Own {
  return (section, key) => sections.get(section)?.get(key)
}

/** @returns the key's own value, that of the older section, or the default; undefined where there is none */
export function valueInEffect(own: Own, section: string, key: string): string | undefined {
  const value = own(section, key)
  if (value) return value
  const older = olderSection(section, key)
  const inherited = older === null ? undefined : own(older, key)
  return inherited || (value ?? knownKey(section, key)?.value ?? undefined)
}
