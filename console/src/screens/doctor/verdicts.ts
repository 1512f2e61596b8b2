/** What the facts of the probes mean. Pure. */
import { APP_ORIGINS } from '../../../../src/core/app-origins.ts'
import { type AdviceName, advise, type DetectedStack, detectStack } from '../../../../src/doctor/advice.ts'
import { en } from '../../strings/en.ts'
import type { BodyFacts, FeedFacts, Reply, ServerReply } from './facts.ts'
import { type CheckName, type Finding, fine, note, skipped, wrong } from './finding.ts'

const { findings: words } = en.doctor

/** What all verdicts share. */
export interface Surroundings {
  /** Of the page's address. */
  readonly isSecure: boolean
  readonly isLoopback: boolean
  readonly origin: string
  /** Proxies and server that were recognised. */
  readonly stack: DetectedStack
}

export function isServerReply(reply: Reply): reply is ServerReply {
  return 'status' in reply
}

export function stackOf(reply: Reply): DetectedStack {
  return detectStack(isServerReply(reply) ? [{ raw: reply.headers, text: reply.text, json: reply.json }] : [])
}

/** @returns all values of a header in one text; null if there is none */
function headerOf(reply: Reply, name: string): string | null {
  if (!isServerReply(reply)) return null
  return reply.headers.find(([each]) => each === name)?.[1] ?? null
}

/** Whether settee itself has answered, and not a proxy with a page of its own. */
function isJson({ json }: ServerReply): boolean {
  return typeof json === 'object' && json !== null
}

/** @returns an answer that is not as expected in a few words */
function said(reply: Reply): string {
  if (!isServerReply(reply)) return words.failures[reply.failure]
  const { error, reason } = (reply.json ?? {}) as { readonly error?: unknown; readonly reason?: unknown }
  if (typeof error !== 'string') return String(reply.status)
  return `${reply.status} ${error}: ${String(reason).replace(/\.$/, '')}`
}

export function encryptionFinding({ isSecure, isLoopback, stack }: Surroundings): Finding {
  if (isSecure) return fine('encryption', words.https)
  if (isLoopback) return fine('encryption', words.loopback)
  return note('encryption', words.plain, { help: words.plainHelp, cures: advise('certificate', stack) })
}

export function serverFinding(welcome: Reply): Finding {
  if (!isServerReply(welcome))
    return wrong('server', words.noAnswer(said(welcome)), { help: words.noAnswerHelp })
  const { vendor } = (welcome.json ?? {}) as { readonly vendor?: { name?: unknown; version?: unknown } }
  if (vendor?.name !== 'settee')
    return wrong('server', words.otherAnswer(said(welcome)), { help: words.otherAnswerHelp })
  return fine('server', words.answers(String(vendor.version), welcome.ms))
}

/** @param protocol as the browser names it; empty: unknown */
export function httpFinding(protocol: string, { isSecure, isLoopback, stack }: Surroundings): Finding {
  if (protocol === 'h2' || protocol === 'h3') return fine('http', words.http2(protocol === 'h2' ? '2' : '3'))
  if (protocol === '') return skipped('http', words.httpUnknown)
  if (isLoopback && !isSecure) return fine('http', words.http1Loopback)
  if (!isSecure) return note('http', words.http1Plain, { help: words.http1Help })
  return note('http', words.http1, { help: words.http1Help, cures: advise('http2', stack) })
}

/** Headers that a proxy may add a second time. */
const ONCE = [
  'content-type',
  'access-control-allow-origin',
  'access-control-allow-credentials',
  'x-couch-request-id',
]

/** @param welcome the answer of `GET /`, whose headers are known */
export function headersFinding(welcome: Reply, { stack }: Surroundings): Finding {
  const doubled = ONCE.filter((name) => headerOf(welcome, name)?.includes(','))
  if (doubled.length > 0) {
    return wrong('headers', words.doubled(doubled.join(', ')), {
      cures: advise('doubledCors', stack, 'proxy'),
    })
  }
  const cache = headerOf(welcome, 'cache-control')
  if (cache !== 'must-revalidate')
    return wrong('headers', words.cached(cache ?? ''), { help: words.cachedHelp })
  if (headerOf(welcome, 'x-couch-request-id') === null) return note('headers', words.stripped)
  if (!/settee\//.test(headerOf(welcome, 'server') ?? '')) {
    return note('headers', words.serverHeader, { cures: advise('serverHeader', stack, 'proxy') })
  }
  return fine('headers', words.headersKept)
}

/** In seconds: web tokens of some apps are valid for five minutes. */
const MAX_DIFFERENCE = 300
const NOTED_DIFFERENCE = 60

export function clockFinding(welcome: Reply): Finding {
  const time = Date.parse(headerOf(welcome, 'date') ?? '')
  if (!isServerReply(welcome) || Number.isNaN(time)) return note('clock', words.noDate)
  // A Date has whole seconds, so it is half a second behind on average.
  const ahead = Math.round((time + 500 - welcome.at) / 1000)
  const off = Math.abs(ahead)
  if (off <= NOTED_DIFFERENCE) return fine('clock', words.clock(off))
  const text = words.clockOff(off, ahead > 0)
  return off <= MAX_DIFFERENCE
    ? note('clock', text, { help: words.clockHelp })
    : wrong('clock', text, { help: words.clockHelp })
}

/** @param reply of `GET /_session` with the cookie */
export function sessionFinding(reply: Reply, { isSecure }: Surroundings): Finding {
  if (!isServerReply(reply) || reply.status !== 200) return wrong('session', words.noSession(said(reply)))
  const { info, userCtx } = reply.json as {
    readonly info?: { authenticated?: string }
    readonly userCtx?: { name?: string | null }
  }
  if (userCtx?.name == null) return wrong('session', words.lostSession, { help: words.lostSessionHelp })
  if (info?.authenticated !== 'cookie') return note('session', words.otherSession(info?.authenticated ?? ''))
  return fine('session', isSecure ? words.session : words.sessionPlain)
}

/**
 * @param reply of `GET /_session` with the password of a token and without the cookie; null: no token could be made
 * @param name of the account
 */
export function passwordFinding(reply: Reply | null, name: string, { stack }: Surroundings): Finding {
  if (reply === null) return skipped('password', words.noToken)
  if (!isServerReply(reply)) return wrong('password', words.passwordFails(said(reply)))
  const { userCtx } = (reply.json ?? {}) as { readonly userCtx?: { name?: string | null } }
  if (userCtx?.name === name) return fine('password', words.passwordKept)
  if (!isJson(reply)) {
    return wrong('password', words.proxyPassword(said(reply)), {
      cures: advise('proxyPassword', stack, 'proxy'),
    })
  }
  return wrong('password', words.passwordLost, { cures: advise('authorization', stack, 'proxy') })
}

/** @param settings `chttpd/enable_cors` and `cors/origins`; null: the caller may not read them */
export function originsFinding(
  settings: { readonly isOn: boolean; readonly origins: string } | null,
  { stack }: Surroundings,
): Finding {
  if (settings === null) return skipped('origins', words.originsUnknown)
  if (!settings.isOn) return note('origins', words.corsOff, { cures: advise('origins', stack, 'server') })
  const listed = settings.origins.split(',').map((origin) => origin.trim())
  const missing = APP_ORIGINS.filter((origin) => !listed.includes(origin) && !listed.includes('*'))
  if (missing.length === 0) return fine('origins', words.originsFine)
  return note('origins', words.originsMissing(missing.join(', ')), {
    cures: advise('origins', stack, 'server'),
  })
}

/** @param reply of a call with a long answer */
export function compressionFinding(reply: Reply): Finding {
  if (!isServerReply(reply) || reply.status !== 200)
    return skipped('compression', words.notCompressed(said(reply)))
  const encoding = headerOf(reply, 'content-encoding')
  if (encoding !== null) return fine('compression', words.compressed(encoding))
  return note('compression', words.uncompressed, { help: words.uncompressedHelp })
}

/** @param put the answer of writing a `_local` document */
export function localFinding(put: Reply, { stack }: Surroundings): Finding {
  if (isServerReply(put) && put.status === 201) return fine('local', words.written)
  const isOfProxy = isServerReply(put) && !isJson(put)
  return wrong(
    'local',
    words.notWritten(said(put)),
    isOfProxy ? { cures: advise('writing', stack, 'proxy') } : {},
  )
}

export function locationFinding(put: Reply, { origin, stack }: Surroundings): Finding {
  const location = headerOf(put, 'location')
  if (location === null || !URL.canParse(location)) return skipped('location', words.noLocation)
  const found = new URL(location).origin
  if (found === origin) return fine('location', words.knowsAddress)
  return note('location', words.otherAddress(found), { cures: advise('forwarded', stack) })
}

/** @param reply of reading a document whose id has a slash */
export function pathsFinding(reply: Reply, { stack }: Surroundings): Finding {
  if (isServerReply(reply) && reply.status === 200) return fine('paths', words.pathsKept)
  return wrong('paths', words.pathsChanged(said(reply)), { cures: advise('paths', stack, 'proxy') })
}

/** A beat that is this much later than it should be was held up. */
const LATE = 2.5

export function feedFinding(facts: FeedFacts, { stack }: Surroundings): Finding {
  const { status, arrivals, heartbeatMs, watchedMs } = facts
  if (status !== null && status >= 400) return wrong('feed', words.feedRefused(status))
  if (arrivals.length === 0) {
    return wrong('feed', words.feedSilent(watchedMs), { cures: advise('buffering', stack, 'proxy') })
  }
  if (facts.ended === 'cut') return wrong('feed', words.feedCut, { cures: advise('cut', stack, 'proxy') })
  const [first = 0] = arrivals
  const gap = longestGap(arrivals, heartbeatMs)
  if (first > heartbeatMs * LATE || gap > heartbeatMs * LATE) {
    return wrong('feed', words.feedLate(first, gap), { cures: advise('buffering', stack, 'proxy') })
  }
  return fine('feed', words.feed(first, gap))
}

function longestGap(arrivals: readonly number[], least: number): number {
  return arrivals
    .slice(1)
    .reduce((longest, at, before) => Math.max(longest, at - (arrivals[before] ?? 0)), least)
}

export function longFeedFinding(facts: FeedFacts | null, { stack }: Surroundings): Finding {
  if (facts === null) return skipped('longFeed', words.longFeedSkipped)
  const { arrivals, heartbeatMs, watchedMs, ended } = facts
  if (ended === 'cut' || ended === 'order') {
    return wrong('longFeed', words.longFeedCut(watchedMs), { cures: advise('cut', stack, 'proxy') })
  }
  const silence = longestGap([0, ...arrivals, watchedMs], 0)
  if (silence > heartbeatMs * LATE) {
    return wrong('longFeed', words.longFeedSilent(silence), { cures: advise('buffering', stack, 'proxy') })
  }
  return fine('longFeed', words.longFeed(watchedMs, silence))
}

/** Statuses of a proxy for a body that takes too long. */
const SLOW: ReadonlySet<number> = new Set([408, 504, 524])

/** @param facts smallest first; no larger body follows one that was refused */
export function bodiesFinding(facts: readonly BodyFacts[], { stack }: Surroundings): Finding {
  const refused = facts.find(({ reply }) => !isServerReply(reply) || reply.status >= 300)
  if (refused === undefined) {
    const speed = facts.map(({ bytes, ms }) => bytes / Math.max(1, ms)).at(-1) ?? 0
    return fine(
      'bodies',
      words.bodies(
        facts.map(({ bytes }) => bytes),
        speed * 1000,
      ),
    )
  }
  const { bytes, reply } = refused
  const advice = (name: AdviceName, whose: 'server' | 'proxy' | 'any') => ({
    cures: advise(name, stack, whose),
  })
  if (!isServerReply(reply)) {
    // A proxy that refuses a body may close the connection before the browser reads why.
    const name = reply.failure === 'late' ? 'slowBodies' : 'bodies'
    return wrong('bodies', words.bodyLost(bytes, said(reply)), advice(name, 'any'))
  }
  if (SLOW.has(reply.status))
    return wrong('bodies', words.bodySlow(bytes, reply.status), advice('slowBodies', 'proxy'))
  const isOfServer = isJson(reply)
  if (reply.status === 413) {
    return wrong(
      'bodies',
      words.bodyTooLarge(bytes, isOfServer),
      advice('bodies', isOfServer ? 'server' : 'proxy'),
    )
  }
  return wrong('bodies', words.bodyRefused(bytes, said(reply)), isOfServer ? {} : advice('bodies', 'proxy'))
}

export function withoutDatabase(name: CheckName): Finding {
  return skipped(name, words.needsDatabase)
}
