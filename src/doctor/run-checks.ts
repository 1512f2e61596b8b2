/** Runs the doctor's checks in order, and stops when further checks are pointless. */
import { randomBytes } from 'node:crypto'
import { createSecureContext, rootCertificates } from 'node:tls'
import { type CheckContext, detectStack } from './advice.ts'
import { checkBodies, sendBodies } from './body-checks.ts'
import { checkCertificate, checkProtocols, isTrusted } from './certificate-checks.ts'
import { checkCredentials, checkRights, userOf } from './credential-checks.ts'
import { checkCors, checkPreflights, requestAsPages } from './cross-origin-checks.ts'
import { askForHealth, checkDamage } from './damage-checks.ts'
import { Client, databasePath, isAnswer, type ProbeLimits, type Reply } from './doctor-client.ts'
import { checkFeed, checkLongFeed, watchFeed, watchLongFeeds } from './feed-checks.ts'
import { type Finding, quoteWithoutPassword, skipped } from './finding.ts'
import { checkLocal, checkPaths, writeEncodedId, writeLocal } from './local-checks.ts'
import { checkAddress, checkConnection, checkLookUp, connectToAll, lookUp } from './network-checks.ts'
import {
  askForClient,
  checkClient,
  checkClock,
  checkHttp,
  checkLocation,
  checkServer,
  checkVersion,
} from './server-checks.ts'
import { probeTls, requestByHttp2, type TlsFacts } from './tls-probes.ts'
import { checkFind, checkMobile, detectApp, probeMobileFilter, searchAsLiveSync } from './vault-checks.ts'

export interface CheckOptions {
  /** The whole address, with its credentials. */
  readonly address: string
  readonly mobile: boolean
  /** Origins of the pages whose requests are tried. */
  readonly origins: readonly string[]
  /** The certificate of an authority to trust besides the well-known ones, in PEM. */
  readonly ca: string | undefined
  /** Sent with all requests, as apps send them for a proxy; names in lower case. */
  readonly headers?: Readonly<Record<string, string>>
  readonly limits: ProbeLimits
}

/**
 * Checks a server from outside, and yields each finding as soon as it is known. Writes only two `_local` documents, and
 * deletes them.
 */
export async function* runChecks(options: CheckOptions): AsyncGenerator<Finding> {
  const { address, findings } = checkAddress(options.address, options.mobile)
  yield* findings
  if (address === null) return
  const context: CheckContext = {
    address,
    mobile: options.mobile,
    stack: detectStack([]),
    quote: quoteWithoutPassword(address, options.headers),
  }
  yield* checkFromOutside(context, options)
}

async function* checkFromOutside(context: CheckContext, options: CheckOptions): AsyncGenerator<Finding> {
  const { address } = context
  const { limits, ca } = options
  const found = await lookUp(address.host, limits.connectMs)
  yield checkLookUp(found, context)
  if ('failure' in found) return
  const reached = await connectToAll(address, found.addresses, limits.connectMs)
  yield checkConnection(reached, context)
  if (reached.every((each) => 'failure' in each)) return
  const tls = address.scheme === 'https' ? await probeTls(address, ca, limits.requestMs) : null
  if (tls !== null) {
    yield* tlsFindings(tls, context)
    if (tls.chain === null) return
    if (!isTrusted(tls.chain)) {
      yield skipped(
        'rest',
        'No password is sent to a server that cannot prove its identity. To trust an authority of your own: --ca FILE',
      )
      return
    }
  }
  const isOwn = tls !== null && ca !== undefined
  const trust = isOwn ? createSecureContext({ ca: [...rootCertificates, ca] }) : undefined
  const { headers = {} } = options
  const client = new Client(address, { trust, timeoutMs: limits.requestMs, headers })
  try {
    yield* checkServerAndLogin(client, context, options, tls)
  } finally {
    client.close()
  }
}

function* tlsFindings({ chain, protocols }: TlsFacts, context: CheckContext): Generator<Finding> {
  if (chain !== null) yield* checkCertificate(chain, context)
  yield checkProtocols(protocols, context)
}

async function* checkServerAndLogin(
  client: Client,
  initial: CheckContext,
  options: CheckOptions,
  tls: TlsFacts | null,
): AsyncGenerator<Finding> {
  const path = databasePath(client.address)
  const { session, database } = await logIn(client)
  const [welcome, trace] = await Promise.all([
    client.ask({ method: 'GET', path: '/' }),
    // nginx refuses TRACE itself, with its own name, even if it otherwise passes on the server's name.
    client.ask({ method: 'TRACE', path: '/', anonymous: true }),
  ])
  const context = { ...initial, stack: detectStack([welcome, session, database, trace].filter(isAnswer)) }
  const server = checkServer(welcome, context)
  yield server
  if (server.state === 'wrong' || !isAnswer(welcome)) return
  const offersH2 = tls?.offersH2 ?? null
  const h2 = offersH2 ? await requestByHttp2(client, `${path}/`, options.limits.requestMs) : null
  yield checkHttp({ offersH2, h2, h1: database }, context)
  yield checkVersion(welcome, context)
  yield checkClock(welcome)
  const credentials = checkCredentials({ session, database }, context)
  yield credentials
  const isKnown = credentials.state !== 'wrong'
  yield* checkAccess(client, context, options, { session, database, isKnown })
}

/** Sends one request at a time, so that a wrong password is one failed login: five lock an account. */
async function logIn(client: Client): Promise<Omit<Login, 'isKnown'>> {
  const session = await client.ask({ method: 'GET', path: '/_session' })
  if (isRefused(session)) client.forgetCredentials()
  const database = await client.ask({ method: 'GET', path: `${databasePath(client.address)}/` })
  // A user with a name in the session has the right password; without one, the password may be wrong.
  if (userOf(session) === null && isRefused(database)) client.forgetCredentials()
  return { session, database }
}

function isRefused(reply: Reply): boolean {
  return isAnswer(reply) && (reply.status === 401 || reply.status === 403)
}

interface Login {
  readonly session: Reply
  readonly database: Reply
  /** Whether the credentials are correct. */
  readonly isKnown: boolean
}

async function* checkAccess(
  client: Client,
  context: CheckContext,
  options: CheckOptions,
  { session, database, isKnown }: Login,
): AsyncGenerator<Finding> {
  const name = `settee-doctor-${randomBytes(8).toString('hex')}`
  const facts = await requestAsPages(client, options.origins, name)
  yield checkPreflights(facts, context)
  yield checkCors(facts, context)
  if (!isKnown) {
    yield skipped('rest', 'Checks that need an account were skipped.')
    return
  }
  const security = await client.ask({ method: 'GET', path: `${databasePath(client.address)}/_security` })
  const rights = checkRights({ database, security, user: userOf(session) }, context)
  yield rights
  if (rights.state === 'wrong') {
    yield skipped('rest', 'Checks that need the database were skipped.')
    return
  }
  yield* checkDatabase(client, context, options, name)
}

async function* checkDatabase(
  client: Client,
  context: CheckContext,
  { limits, mobile }: CheckOptions,
  name: string,
): AsyncGenerator<Finding> {
  const { longMs, longHeartbeatMs } = limits
  const long = longMs === null ? null : watchLongFeeds(client, name, longMs, longHeartbeatMs)
  // The feed is watched during the other checks.
  const feed = watchFeed(client, name, limits)
  const [local, encoded] = await Promise.all([
    writeLocal(client, name),
    writeEncodedId(client, `${name}-path`),
  ])
  const localFinding = checkLocal(local, context)
  yield localFinding
  if (localFinding.state !== 'wrong') {
    yield checkPaths(encoded, context)
    yield checkLocation(local.put, context)
  }
  yield checkClient(await askForClient(client), context)
  yield checkDamage(await askForHealth(client))
  yield checkFeed(await feed, context)
  const app = await detectApp(client)
  const usesFind = app === 'livesync' || app === 'empty'
  yield checkFind(usesFind ? await searchAsLiveSync(client) : null, app === 'empty', context)
  if (mobile) {
    yield checkMobile(app === 'livesync' ? null : await probeMobileFilter(client), app === 'inkdrop', context)
  }
  yield checkBodies(await sendBodies(client, limits), context)
  yield checkLongFeed(long === null ? null : await long, context)
}
