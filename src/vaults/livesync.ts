/** The nine configuration keys that Obsidian LiveSync's set-up scripts write; clients.md 1.2. */
import { memberView, type Values, valueIn } from '../config/member-view.ts'
import { APP_ORIGINS } from '../core/app-origins.ts'

/** The document that LiveSync writes into each database that it syncs with; clients.md 1.2. */
export const LIVESYNC_VERSION_ID = 'obsydian_livesync_version'

const MAX_REQUEST = 4_294_967_296
const MAX_DOCUMENT = 50_000_000

interface KeyChange {
  readonly section: string
  readonly key: string
  readonly value: string
}

type Read = (section: string, key: string) => string | undefined

/**
 * The keys that still need to be written. Sufficient settings stay unchanged.
 * @param read the configuration
 * @param hasAdmin whether there is a server admin; without one, `require_valid_user` would lock everybody out
 */
export function liveSyncChanges(read: Read, hasAdmin: boolean): KeyChange[] {
  const wanted: [section: string, key: string, value: string | null][] = [
    ...(hasAdmin
      ? [
          requireTrue(read, 'chttpd', 'require_valid_user'),
          requireTrue(read, 'chttpd_auth', 'require_valid_user'),
        ]
      : []),
    ['httpd', 'WWW-Authenticate', read('httpd', 'WWW-Authenticate') ? null : 'Basic realm="couchdb"'],
    requireTrue(read, 'httpd', 'enable_cors'),
    requireTrue(read, 'chttpd', 'enable_cors'),
    requireBytes(read, 'chttpd', 'max_http_request_size', MAX_REQUEST),
    requireBytes(read, 'couchdb', 'max_document_size', MAX_DOCUMENT),
    requireTrue(read, 'cors', 'credentials'),
    ['cors', 'origins', withAppOrigins(read('cors', 'origins') ?? '')],
  ]
  return wanted.flatMap(([section, key, value]) => (value === null ? [] : [{ section, key, value }]))
}

/**
 * The settings that LiveSync's check complains about.
 * @param account the account that asks, which sees only a part of the configuration
 * @returns `section/key` of each
 */
export function liveSyncFaults(config: Values, account: string): string[] {
  const view = memberView(config, { name: account })
  const changes = liveSyncChanges((section, key) => valueIn(view, section, key), true)
  return changes.map(({ section, key }) => `${section}/${key}`)
}

function requireTrue(read: Read, section: string, key: string): [string, string, string | null] {
  return [section, key, read(section, key) === 'true' ? null : 'true']
}

/** The client understands only numbers, but `infinity` is not lowered for it. */
function requireBytes(
  read: Read,
  section: string,
  key: string,
  bytes: number,
): [string, string, string | null] {
  const found = read(section, key) ?? ''
  return [section, key, found === 'infinity' || Number(found) >= bytes ? null : String(bytes)]
}

/** Without spaces: the client splits the list at its commas, and does not trim the parts. */
function withAppOrigins(found: string): string | null {
  if (found.trim() === '*') return null
  const listed = found.split(',').flatMap((origin) => origin.trim() || [])
  const all = [...new Set([...listed, ...APP_ORIGINS])].join(',')
  return all === found ? null : all
}

/**
 * The design document with the filter that leaves out pictures on a note app's mobile devices. Pictures are documents
 * whose id contains `file:`; the app replicates with `filter=mobile/sync` (clients.md 1.3).
 */
export const MOBILE_DESIGN_ID = '_design/mobile'

/** The function `filters.sync` of {@link MOBILE_DESIGN_ID}. */
export const MOBILE_FILTER = "function (doc) { return doc._id.indexOf('file:') === -1 }"
