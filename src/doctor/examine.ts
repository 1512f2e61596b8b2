/** The examination: who is asked what, in which order, and when there is no sense in going on. */
import { randomBytes } from 'node:crypto'
import { createSecureContext, rootCertificates } from 'node:tls'
import { judgeBodies, sendBodies } from './body-checks.ts'
import { isTrusted, judgeCertificate, judgeProtocols } from './certificate-checks.ts'
import { judgeCredentials, judgeRights, userOf } from './credential-checks.ts'
import { askAsPages, judgeCors, judgePreflights } from './cross-origin-checks.ts'
import { Client, databasePath, isAnswer, type Reply } from './doctor-client.ts'
import { type Scene, stageOf } from './examination.ts'
import { judgeFeed, judgeLongFeed, watchFeed, watchLong } from './feed-checks.ts'
import { type Finding, quoteWithout, skipped } from './finding.ts'
import { judgeClock, judgeLocal, judgePaths, tryEncoded, tryLocal } from './local-checks.ts'
import { judgeAddress, judgeConnection, judgeLookUp, lookUp, reachAll } from './network-checks.ts'
import { judgeHttp, judgeLocation, judgeServer, judgeVersion } from './server-checks.ts'
import type { Pace } from './timing.ts'
import { askByHttp2, lookAtTls, type TlsFacts } from './tls-probes.ts'
import { askAsLiveSync, judgeFind, judgeMobile, lookAtVault } from './vault-checks.ts'

export interface Examination {
  /** The whole address, with its credentials. */
  readonly address: string
  readonly mobile: boolean
  /** Of pages whose requests are tried. */
  readonly origins: readonly string[]
  /** PEM of an authority that is trusted beside those that every device knows. */
  readonly ca: string | undefined
  readonly pace: Pace
}

/**
 * Examines a server from outside, and tells each finding as soon as it is known. It stores nothing but two `_local`
 * documents, which it deletes.
 */
export async function* examine(asked: Examination): AsyncGenerator<Finding> {
  const { address, findings } = judgeAddress(asked.address, asked.mobile)
  yield* findings
  if (address === null) return
  const scene: Scene = {
    address,
    mobile: asked.mobile,
    stage: stageOf([]),
    quote: quoteWithout(address),
  }
  yield* connected(scene, asked)
}

async function* connected(scene: Scene, asked: Examination): AsyncGenerator<Finding> {
  const { address } = scene
  const { pace, ca } = asked
  const found = await lookUp(address.host, pace.connectMs)
  yield judgeLookUp(found, scene)
  if ('failure' in found) return
  const reached = await reachAll(address, found.addresses, pace.connectMs)
  yield judgeConnection(reached, scene)
  if (reached.every((each) => 'failure' in each)) return
  const tls = address.scheme === 'https' ? await lookAtTls(address, ca, pace.requestMs) : null
  if (tls !== null) {
    yield* judgeTls(tls, scene)
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
  const client = new Client(address, { trust, timeoutMs: pace.requestMs })
  try {
    yield* answered(client, scene, asked, tls)
  } finally {
    client.close()
  }
}

function* judgeTls({ chain, protocols }: TlsFacts, scene: Scene): Generator<Finding> {
  if (chain !== null) yield* judgeCertificate(chain, scene)
  yield judgeProtocols(protocols, scene)
}

async function* answered(
  client: Client,
  before: Scene,
  asked: Examination,
  tls: TlsFacts | null,
): AsyncGenerator<Finding> {
  const path = databasePath(client.address)
  const { session, database } = await introduce(client)
  const [welcome, trace] = await Promise.all([
    client.ask({ method: 'GET', path: '/' }),
    // nginx refuses this by itself, under its own name, also where it passes on the server's.
    client.ask({ method: 'TRACE', path: '/', anonymous: true }),
  ])
  const scene = { ...before, stage: stageOf([welcome, session, database, trace].filter(isAnswer)) }
  const server = judgeServer(welcome, scene)
  yield server
  if (server.state === 'wrong' || !isAnswer(welcome)) return
  const offersH2 = tls?.offersH2 ?? null
  const h2 = offersH2 ? await askByHttp2(client, `${path}/`, asked.pace.requestMs) : null
  yield judgeHttp({ offersH2, h2, h1: database }, scene)
  yield judgeVersion(welcome, scene)
  yield judgeClock(welcome)
  const credentials = judgeCredentials({ session, database }, scene)
  yield credentials
  const isKnown = credentials.state !== 'wrong'
  yield* used(client, scene, asked, { session, database, isKnown })
}

/** One after the other: what is wrong with a password is found out by one failed login, since five lock an account. */
async function introduce(client: Client): Promise<Omit<Entrance, 'isKnown'>> {
  const session = await client.ask({ method: 'GET', path: '/_session' })
  if (isRefused(session)) client.forgetCredentials()
  const database = await client.ask({ method: 'GET', path: `${databasePath(client.address)}/` })
  // Who is known by name has the right password, and no right; where nothing was said of names it may be wrong.
  if (userOf(session) === null && isRefused(database)) client.forgetCredentials()
  return { session, database }
}

function isRefused(reply: Reply): boolean {
  return isAnswer(reply) && (reply.status === 401 || reply.status === 403)
}

interface Entrance {
  readonly session: Reply
  readonly database: Reply
  /** Whether the credentials are right. */
  readonly isKnown: boolean
}

async function* used(
  client: Client,
  scene: Scene,
  asked: Examination,
  { session, database, isKnown }: Entrance,
): AsyncGenerator<Finding> {
  const name = `settee-doctor-${randomBytes(8).toString('hex')}`
  const pages = askAsPages(client, asked.origins, name)
  const facts = await pages
  yield judgePreflights(facts, scene)
  yield judgeCors(facts, scene)
  if (!isKnown) {
    yield skipped('rest', 'Checks that need an account were skipped.')
    return
  }
  const security = await client.ask({ method: 'GET', path: `${databasePath(client.address)}/_security` })
  const rights = judgeRights({ database, security, user: userOf(session) }, scene)
  yield rights
  if (rights.state === 'wrong') {
    yield skipped('rest', 'Checks that need the database were skipped.')
    return
  }
  yield* stored(client, scene, asked, name)
}

async function* stored(
  client: Client,
  scene: Scene,
  { pace, mobile }: Examination,
  name: string,
): AsyncGenerator<Finding> {
  const { longMs, longHeartbeatMs } = pace
  const long = longMs === null ? null : watchLong(client, name, longMs, longHeartbeatMs)
  // Nobody waits for it while the others are told.
  const feed = watchFeed(client, name, pace)
  const [local, encoded] = await Promise.all([tryLocal(client, name), tryEncoded(client, `${name}-path`)])
  const localFinding = judgeLocal(local, scene)
  yield localFinding
  if (localFinding.state !== 'wrong') {
    yield judgePaths(encoded, scene)
    yield judgeLocation(local.put, scene)
  }
  yield judgeFeed(await feed, scene)
  const app = await lookAtVault(client)
  const asksFind = app === 'livesync' || app === 'empty'
  yield judgeFind(asksFind ? await askAsLiveSync(client) : null, app === 'empty', scene)
  if (mobile) {
    // QuickJS is loaded for those alone who want it.
    const { lookAtMobile } = await import('./mobile-probe.ts')
    yield judgeMobile(app === 'livesync' ? null : await lookAtMobile(client), app === 'inkdrop', scene)
  }
  yield judgeBodies(await sendBodies(client, pace), scene)
  yield judgeLongFeed(long === null ? null : await long, scene)
}
