/** Runs the doctor's checks one after the other. */
import { pathOf } from '../../api/client.ts'
import type { BodyFacts, Reply } from './facts.ts'
import type { CheckName, Finding } from './finding.ts'
import { BODIES, request, sendBody, watchFeed } from './probes.ts'
import {
  bodiesFinding,
  clockFinding,
  compressionFinding,
  encryptionFinding,
  feedFinding,
  headersFinding,
  httpFinding,
  isServerReply,
  localFinding,
  locationFinding,
  longFeedFinding,
  originsFinding,
  passwordFinding,
  pathsFinding,
  type Surroundings,
  serverFinding,
  sessionFinding,
  stackOf,
  withoutDatabase,
} from './verdicts.ts'

interface RunOptions {
  /** The account that is signed in. */
  readonly account: string
  readonly isAdmin: boolean
  /** A database to try; null: there is none. */
  readonly database: string | null
  /** Whether a feed is kept open for two minutes. */
  readonly isLong: boolean
  readonly signal: AbortSignal
}

/** What the checks begin: the next one's name, or a finding. */
type Step = { readonly begins: CheckName } | { readonly finding: Finding }

/** How many checks there are, for the progress. */
export const CHECKS = 15

/** Everything that the doctor makes has such a name, so that what a closed page has left is recognised. */
const PREFIX = 'settee-doctor-'
/** Documents of earlier runs that are removed at once. */
const MAX_LEFT = 20
const LONG_MS = 115_000

/**
 * Checks the server from this page. Leaves nothing behind: what it makes is removed, also when it is cancelled.
 * @throws the signal's reason when it aborts
 */
export async function* runChecks(options: RunOptions): AsyncGenerator<Step, void> {
  const { signal, database } = options
  yield { begins: 'server' }
  const welcome = await request('', {}, signal)
  const around = surroundingsOf(welcome)
  const server = serverFinding(welcome)
  yield { finding: encryptionFinding(around) }
  yield { finding: server }
  if (server.state === 'wrong') return
  yield { finding: httpFinding(isServerReply(welcome) ? welcome.protocol : '', around) }
  yield { finding: headersFinding(welcome, around) }
  yield { finding: clockFinding(welcome) }
  yield* checkAccess(options, around)
  yield { begins: 'compression' }
  yield { finding: compressionFinding(await request('_uuids', { query: { count: '100' } }, signal)) }
  if (database !== null) yield* checkDatabase(database, options, around)
  else for (const name of NEED_DATABASE) yield { finding: withoutDatabase(name) }
}

const NEED_DATABASE = ['local', 'location', 'paths', 'feed', 'bodies', 'longFeed'] as const

function surroundingsOf(welcome: Reply): Surroundings {
  const { protocol, hostname, origin } = location
  return {
    isSecure: protocol === 'https:',
    isLoopback: /^(?:localhost|.*\.localhost|127\.[\d.]+|\[::1\])$/.test(hostname),
    origin,
    stack: stackOf(welcome),
  }
}

async function* checkAccess(options: RunOptions, around: Surroundings): AsyncGenerator<Step> {
  const { account, isAdmin, signal } = options
  yield { begins: 'session' }
  yield { finding: sessionFinding(await request('_session', {}, signal), around) }
  yield { begins: 'password' }
  yield { finding: passwordFinding(await logInAsDevice(account, signal), account, around) }
  yield { begins: 'origins' }
  yield { finding: originsFinding(isAdmin ? await readOrigins(signal) : null, around) }
}

interface Token {
  readonly id: string
  readonly name: string
}

/** Logs in as apps do, with name and password in a header, by a token that exists for this moment. @returns null without one */
async function logInAsDevice(account: string, signal: AbortSignal): Promise<Reply | null> {
  await removeTokens(signal)
  const made = await request('_settee/tokens', { json: { name: newName() } }, signal)
  if (!isServerReply(made) || made.status !== 201) return null
  const { id, token } = made.json as { readonly id: string; readonly token: string }
  try {
    const authorization = `Basic ${btoa(unescapedBytes(`${account}:${token}`))}`
    return await request('_session', { authorization }, signal)
  } finally {
    await remove(pathOf('_settee', 'tokens', id))
  }
}

/** The tokens of a page that was closed in the middle. */
async function removeTokens(signal: AbortSignal): Promise<void> {
  const list = await request('_settee/tokens', {}, signal)
  const { tokens = [] } = (isServerReply(list) ? (list.json ?? {}) : {}) as {
    readonly tokens?: readonly Token[]
  }
  for (const { id, name } of tokens)
    if (name.startsWith(PREFIX)) await remove(pathOf('_settee', 'tokens', id))
}

/** UTF-8 as a text of bytes, which `btoa` takes. */
function unescapedBytes(text: string): string {
  return String.fromCharCode(...new TextEncoder().encode(text))
}

interface Configuration {
  readonly settings: readonly {
    readonly section: string
    readonly key: string
    readonly value: string | null
  }[]
}

async function readOrigins(signal: AbortSignal): Promise<{ isOn: boolean; origins: string } | null> {
  const reply = await request('_settee/configuration', {}, signal)
  if (!isServerReply(reply) || reply.status !== 200) return null
  const { settings } = reply.json as Configuration
  const setting = (section: string, key: string) =>
    settings.find((each) => each.section === section && each.key === key)?.value ?? null
  const switched = setting('chttpd', 'enable_cors') ?? setting('httpd', 'enable_cors')
  return { isOn: switched !== 'false', origins: setting('cors', 'origins') ?? '' }
}

async function* checkDatabase(
  database: string,
  { signal, isLong }: RunOptions,
  around: Surroundings,
): AsyncGenerator<Step> {
  yield { begins: 'local' }
  await removeDocuments(database, signal)
  const id = `_local/${newName()}`
  // As one segment with an escaped slash, which some proxies unescape.
  const withSlash = `${pathOf(database, id)}%2Fslash`
  const [put, slashed] = await writeAndRemove([pathOf(database, id), withSlash], signal)
  yield { finding: localFinding(put, around) }
  yield { finding: locationFinding(put, around) }
  yield { finding: pathsFinding(slashed, around) }
  yield { begins: 'feed' }
  const usual = { feed: 'longpoll', heartbeatMs: 1000, watchMs: 6000, enough: 4 } as const
  yield { finding: feedFinding(await watchFeed(database, usual, signal), around) }
  yield { begins: 'bodies' }
  yield { finding: bodiesFinding(await sendBodies(database, signal), around) }
  yield { begins: 'longFeed' }
  const long = {
    feed: 'continuous',
    heartbeatMs: 10_000,
    watchMs: LONG_MS,
    enough: Number.POSITIVE_INFINITY,
  } as const
  yield { finding: longFeedFinding(isLong ? await watchFeed(database, long, signal) : null, around) }
}

/** The documents of a page that was closed in the middle. */
async function removeDocuments(database: string, signal: AbortSignal): Promise<void> {
  const query = {
    start_key: JSON.stringify(`_local/${PREFIX}`),
    end_key: JSON.stringify(`_local/${PREFIX}\ufff0`),
    limit: String(MAX_LEFT),
  }
  const list = await request(pathOf(database, '_local_docs'), { query }, signal)
  const { rows = [] } = (isServerReply(list) ? (list.json ?? {}) : {}) as { readonly rows?: readonly Row[] }
  for (const { id, value } of rows) await remove(pathOf(database, id), { rev: value.rev })
}

interface Row {
  readonly id: string
  readonly value: { readonly rev: string }
}

/** Writes two `_local` documents, which no device receives, and reads the second. */
async function writeAndRemove(
  [plain, withSlash]: readonly [string, string],
  signal: AbortSignal,
): Promise<[put: Reply, slashed: Reply]> {
  const write = { method: 'PUT', json: {} }
  try {
    const put = await request(plain, write, signal)
    const second = await request(withSlash, write, signal)
    const isWritten = isServerReply(second) && second.status === 201
    return [put, isWritten ? await request(withSlash, {}, signal) : second]
  } finally {
    for (const path of [plain, withSlash]) await removeDocument(path)
  }
}

async function sendBodies(database: string, signal: AbortSignal): Promise<BodyFacts[]> {
  const sent: BodyFacts[] = []
  for (const bytes of BODIES) {
    const facts = await sendBody(database, bytes, signal)
    sent.push(facts)
    if (!isServerReply(facts.reply) || facts.reply.status >= 300) break
  }
  return sent
}

function newName(): string {
  return PREFIX + [...crypto.getRandomValues(new Uint8Array(8))].map((byte) => byte.toString(16)).join('')
}

/** In ms. A cancelled run removes what it has made all the same. */
const REMOVE_MS = 5000

async function remove(path: string, query: Readonly<Record<string, string>> = {}): Promise<void> {
  await request(path, { method: 'DELETE', query }, AbortSignal.timeout(REMOVE_MS)).catch(() => undefined)
}

async function removeDocument(path: string): Promise<void> {
  const found = await request(path, {}, AbortSignal.timeout(REMOVE_MS)).catch(() => null)
  if (found === null || !isServerReply(found) || found.status !== 200) return
  const { _rev: rev } = found.json as { readonly _rev: string }
  await remove(path, { rev })
}
