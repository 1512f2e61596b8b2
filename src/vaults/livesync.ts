/** What Obsidian LiveSync wants of a server's configuration: the nine keys that its set-up scripts write; clients.md 1.2. */
import { memberView, type Values, valueIn } from '../config/member-view.ts'
import { APP_ORIGINS } from '../core/network.ts'

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
 * The keys that still need to be written; stricter settings stay unchanged.
 * @param read the configuration
 * @param hasAdmin whether there is a server admin; without one, `require_valid_user` would lock everybody out
 */
export function liveSyncChanges(read: Read, hasAdmin: boolean): KeyChange[] {
  const wanted: [section: string, key: string, value: string | null][] = [
    ...(hasAdmin
      ? [isTrue(read, 'chttpd', 'require_valid_user'), isTrue(read, 'chttpd_auth', 'require_valid_user')]
      : []),
    ['httpd', 'WWW-Authenticate', read('httpd', 'WWW-Authenticate') ? null : 'Basic realm="couchdb"'],
    isTrue(read, 'httpd', 'enable_cors'),
    isTrue(read, 'chttpd', 'enable_cors'),
    atLeast(read, 'chttpd', 'max_http_request_size', MAX_REQUEST),
    atLeast(read, 'couchdb', 'max_document_size', MAX_DOCUMENT),
    isTrue(read, 'cors', 'credentials'),
    ['cors', 'origins', originsFrom(read('cors', 'origins') ?? '')],
  ]
  return wanted.flatMap(([section, key, value]) => (value === null ? [] : [{ section, key, value }]))
}

/**
 * What LiveSync's check finds fault with.
 * @param account that asks; it sees what of the configuration concerns it
 * @returns `section/key` of each
 */
export function liveSyncFaults(config: Values, account: string): string[] {
  const view = memberView(config, { name: account })
  const changes = liveSyncChanges((section, key) => valueIn(view, section, key), true)
  return changes.map(({ section, key }) => `${section}/${key}`)
}

function isTrue(read: Read, section: string, key: string): [string, string, string | null] {
  return [section, key, read(section, key) === 'true' ? null : 'true']
}

/** The client knows numbers alone; `infinity` is no reason to lower it. */
function atLeast(read: Read, section: string, key: string, bytes: number): [string, string, string | null] {
  const found = read(section, key) ?? ''
  return [section, key, found === 'infinity' || Number(found) >= bytes ? null : String(bytes)]
}

/** The client cuts the list at its commas and trims nothing. */
function originsFrom(found: string): string | null {
  if (found.trim() === '*') return null
  const listed = found.split(',').flatMap((origin) => origin.trim() || [])
  const all = [...new Set([...listed, ...APP_ORIGINS])].join(',')
  return all === found ? null : all
}

/**
 * The design document by which a note app's mobile devices leave out pictures, which are documents whose id contains
 * `file:`; the app replicates with `filter=mobile/sync` (clients.md 1.3).
 */
export const MOBILE_DESIGN_ID = '_design/mobile'

/** Its `filters.sync`. */
export const MOBILE_FILTER = "function (doc) { return doc._id.indexOf('file:') === -1 }"
