/**
 * The server check of Self-hosted LiveSync's settings page: its requests, its conditions and its messages; clients.md
 * 1.2.
 */
import { request } from 'undici'

/** One line on the page. */
export interface CheckRow {
  readonly name: string
  readonly isGreen: boolean
  /** The value that was found. */
  readonly found: string | undefined
  /** The setting that the button of a red line writes: `section/key` and the value. */
  readonly fix?: readonly [path: string, value: string]
}

export interface CheckReport {
  readonly rows: readonly CheckRow[]
  /** For information only: whether the account is in `admins`. */
  readonly isAdmin: boolean
}

/** The server to check, and the account. */
export interface Target {
  /** Without a slash at the end. */
  readonly url: string
  /** `name:password`. */
  readonly auth: string
}

/** The origins of Obsidian's pages: computers, iOS, Android. */
export const ORIGINS = ['app://obsidian.md', 'capacitor://localhost', 'http://localhost'] as const

/** The settings that the setup scripts write, in their order. */
export const SETTINGS: readonly (readonly [path: string, value: string])[] = [
  ['chttpd/require_valid_user', 'true'],
  ['chttpd_auth/require_valid_user', 'true'],
  ['httpd/WWW-Authenticate', 'Basic realm="couchdb"'],
  ['httpd/enable_cors', 'true'],
  ['chttpd/enable_cors', 'true'],
  ['chttpd/max_http_request_size', '4294967296'],
  ['couchdb/max_document_size', '50000000'],
  ['cors/credentials', 'true'],
  ['cors/origins', ORIGINS.join(',')],
]

type Config = Readonly<Record<string, Readonly<Record<string, unknown>> | undefined>>

/**
 * Reads the server's configuration and checks it.
 * @throws if the page could not continue with the answer
 */
export async function checkConfiguration(target: Target): Promise<CheckReport> {
  const { status, headers, text } = await ask(target, 'GET', '/_node/_local/_config', { origin: ORIGINS[0] })
  if (status === 401 || status === 403) throw new Error(`access forbidden: ${status}`)
  const config = JSON.parse(text) as Config
  const [name = ''] = target.auth.split(':')
  // The page reads these two without checking that they exist.
  const { admins, httpd } = config as Record<string, Record<string, unknown>>
  const isAdmin = name in admins!
  const isNew = isAtLeast32(String(headers.server))
  return {
    isAdmin,
    rows: [...rowsOfAccess(config, httpd!, isNew), ...rowsOfSizes(config), ...rowsOfCors(config)],
  }
}

function rowsOfAccess(config: Config, httpd: Record<string, unknown>, isNew: boolean): CheckRow[] {
  const challenge = httpd['WWW-Authenticate']
  return [
    isTrue(config, isNew ? 'chttpd' : 'chttpd_auth', 'require_valid_user'),
    row('httpd/WWW-Authenticate', challenge, Boolean(challenge), 'Basic realm="couchdb"'),
    isTrue(config, isNew ? 'chttpd' : 'httpd', 'enable_cors'),
  ]
}

function rowsOfSizes(config: Config): CheckRow[] {
  return (
    [
      ['chttpd', 'max_http_request_size', 4_294_967_296],
      ['couchdb', 'max_document_size', 50_000_000],
    ] as const
  ).map(([section, key, wanted]) => {
    const found = config[section]?.[key]
    return row(`${section}/${key}`, found, !(Number(found ?? 0) < wanted), String(wanted))
  })
}

function rowsOfCors(config: Config): CheckRow[] {
  const found = config.cors?.origins
  // Split at the commas, and not trimmed.
  const listed = String(found ?? '').split(',')
  const isGreen = found === '*' || ORIGINS.every((origin) => listed.includes(origin))
  const wanted = [...new Set([...listed.map((origin) => origin.trim()), ...ORIGINS])].join(',')
  return [isTrue(config, 'cors', 'credentials'), row('cors/origins', found, isGreen, wanted)]
}

function isTrue(config: Config, section: string, key: string): CheckRow {
  const found = config[section]?.[key]
  return row(`${section}/${key}`, found, found === 'true', 'true')
}

function row(path: string, found: unknown, isGreen: boolean, wanted: string): CheckRow {
  const said = { name: path, isGreen, found: found === undefined ? undefined : String(found) }
  return isGreen ? said : { ...said, fix: [path, wanted] }
}

function isAtLeast32(banner: string): boolean {
  const [, version = '0.0.0'] = /CouchDB\/([0-9.]+)/.exec(banner) ?? []
  const [major = 0, minor = 0] = version.split('.').map(Number)
  return major > 3 || (major === 3 && minor >= 2)
}

/** Repeats the request as a page of each origin, and checks the CORS headers. */
export async function checkOrigins(target: Target): Promise<CheckRow[]> {
  const rows: CheckRow[] = []
  for (const origin of ORIGINS) {
    const { headers } = await ask(target, 'GET', '/_node/_local/_config', { origin })
    for (const [name, wanted] of [
      ['access-control-allow-credentials', 'true'],
      ['access-control-allow-origin', origin],
    ] as const) {
      const found = headers[name]?.toString()
      rows.push({ name: `${origin} ${name}`, isGreen: found === wanted, found })
    }
  }
  return rows
}

/** @returns the status of the request of the "fix" button, which must be 200 */
export async function write(target: Target, path: string, value: string): Promise<number> {
  const body = JSON.stringify(value)
  return (await ask(target, 'PUT', `/_node/_local/_config/${path}`, { body })).status
}

/** The red rows, for the messages of tests. */
export function red(rows: readonly CheckRow[]): string[] {
  return rows.filter(({ isGreen }) => !isGreen).map(({ name, found }) => `${name}: ${found}`)
}

async function ask(
  { url, auth }: Target,
  method: 'GET' | 'PUT',
  path: string,
  { origin, body }: { readonly origin?: string; readonly body?: string },
) {
  const answer = await request(url + path, {
    method,
    headers: {
      authorization: `Basic ${Buffer.from(auth).toString('base64')}`,
      'content-type': 'application/json',
      ...(origin !== undefined && { origin }),
    },
    body: body ?? null,
    reset: true,
  })
  return { status: answer.statusCode, headers: answer.headers, text: await answer.body.text() }
}
