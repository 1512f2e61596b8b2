/**
 * Self-hosted LiveSync's check of a server, as its settings page makes it: what it asks for, what it looks at, and
 * what it then says; clients.md 1.2.
 */
import { request } from 'undici'

/** One line of what the page says. */
export interface CheckRow {
  readonly name: string
  readonly isGreen: boolean
  /** What was found. */
  readonly found: string | undefined
  /** What the button beside a red line writes: `section/key` and the value. */
  readonly fix?: readonly [path: string, value: string]
}

export interface CheckReport {
  readonly rows: readonly CheckRow[]
  /** Said without being judged: whether the account is one of `admins`. */
  readonly isAdmin: boolean
}

/** Whom it asks, and as whom. */
export interface Target {
  /** Without a slash at the end. */
  readonly url: string
  /** `name:password`. */
  readonly auth: string
}

/** The origins of Obsidian's pages: computers, iOS, Android. */
export const ORIGINS = ['app://obsidian.md', 'capacitor://localhost', 'http://localhost'] as const

/** What the setup scripts write, in their order. */
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
 * Reads the server's configuration and judges it.
 * @throws when the answer is not one that the page can go on with
 */
export async function checkConfiguration(target: Target): Promise<CheckReport> {
  const { status, headers, text } = await ask(target, 'GET', '/_node/_local/_config', { origin: ORIGINS[0] })
  if (status === 401 || status === 403) throw new Error(`access forbidden: ${status}`)
  const config = JSON.parse(text) as Config
  const [name = ''] = target.auth.split(':')
  // The page reads these two without asking whether they are there.
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
  // Cut at the commas, and not trimmed.
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

/** Asks once more as a page of each origin, and judges the headers of CORS. */
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

/** @returns the status that the "fix" button gets; 200 is what it needs */
export async function write(target: Target, path: string, value: string): Promise<number> {
  const body = JSON.stringify(value)
  return (await ask(target, 'PUT', `/_node/_local/_config/${path}`, { body })).status
}

/** The rows that are red, for a test to show. */
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
