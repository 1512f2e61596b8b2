import { advise, adviseOrigins } from './advice.ts'
import { type Answer, type Client, databasePath, isAnswer, type Reply } from './doctor-client.ts'
import type { Scene } from './examination.ts'
import { type Cure, type Finding, fine, told, wrong } from './finding.ts'

/** What a page of one origin would get. */
interface CorsFacts {
  readonly origin: string
  /** To OPTIONS, without credentials. */
  readonly preflight: Reply
  /** To a GET with credentials. */
  readonly answer: Reply
  /** To a GET that is refused. */
  readonly refusal: Reply
}

/** Judges the preflights: without them no request of an app that is a page is even sent. */
export function judgePreflights(facts: readonly CorsFacts[], scene: Scene): Finding {
  const bad = faultsOf(facts, ({ origin, preflight }) => [preflight, preflightFault(preflight, origin)])
  const [first] = bad
  if (first === undefined) return fine('preflights', `Allowed for ${listed(originsOf(facts))}.`)
  const { reply, fault } = first
  return wrong(
    'preflights',
    `Not allowed for ${listed(originsOf(bad))}: ${clause(fault, reply, scene)}.`,
    isOfLists(facts, first) ? curesOfLists(scene) : curesOf(fault, facts, scene),
  )
}

/** Judges the answers themselves, refusals among them: without the headers an app cannot even tell why it was refused. */
export function judgeCors(facts: readonly CorsFacts[], scene: Scene): Finding {
  const bad = faultsOf(facts, ({ origin, answer }) => [answer, corsFault(answer, origin)])
  const worse = bad.length > 0 ? bad : faultsOf(facts, refusalOf)
  const [first] = worse
  if (first === undefined)
    return fine('cors', 'Pages of these origins can read all answers, including refusals.')
  const which = bad.length > 0 ? 'answers' : 'refusals'
  const { reply, fault } = first
  return wrong(
    'cors',
    `Pages of ${listed(originsOf(worse))} cannot read ${which}: ${clause(fault, reply, scene)}.`,
    curesOf(fault, facts, scene),
  )
}

interface Bad {
  readonly origin: string
  readonly reply: Reply
  readonly fault: CorsFault
}

function faultsOf(
  facts: readonly CorsFacts[],
  faultOf: (facts: CorsFacts) => readonly [Reply, CorsFault | null],
): Bad[] {
  return facts.flatMap((each) => {
    const [reply, fault] = faultOf(each)
    return fault === null ? [] : [{ origin: each.origin, reply, fault }]
  })
}

function refusalOf({ origin, refusal }: CorsFacts): readonly [Reply, CorsFault | null] {
  return [refusal, corsFault(refusal, origin)]
}

function clause(fault: CorsFault, reply: Reply, { quote }: Scene): string {
  switch (fault.kind) {
    case 'failed':
      return told(reply, quote)
    case 'missing':
      return `there is no Access-Control-Allow-Origin (${told(reply, quote)})`
    case 'doubled':
      return 'Access-Control-Allow-Origin or -Credentials is sent twice: once by the server, once by a proxy'
    case 'star':
      return 'Access-Control-Allow-Origin is *, which browsers do not accept with a password'
    case 'other':
      return `Access-Control-Allow-Origin is ${quote(fault.allowed)}`
    case 'credentials':
      return 'Access-Control-Allow-Credentials: true is missing'
    case 'status':
      return `the status is ${fault.status}`
    case 'methods':
    case 'headers':
      return `Access-Control-Allow-${fault.kind === 'methods' ? 'Methods' : 'Headers'} lacks ${fault.lacking.join(', ')}`
  }
}

/** Only a proxy doubles; `*` is of one, or of a server that lets pages in without a password. */
function curesOf({ kind }: CorsFault, facts: readonly CorsFacts[], { stage }: Scene): Cure[] {
  if (kind === 'doubled') return advise('doubledCors', stage, 'proxy')
  const origins = originsOf(facts)
  if (kind !== 'star') return adviseOrigins(origins, stage)
  return [...adviseOrigins(origins, stage, 'server'), ...advise('doubledCors', stage, 'proxy')]
}

/** Whether the origin is let in, as another answer shows, and it is what it asked for that is not. */
function isOfLists(facts: readonly CorsFacts[], { origin, fault }: Bad): boolean {
  if (fault.kind === 'methods' || fault.kind === 'headers') return true
  const answer = facts.find((each) => each.origin === origin)?.answer
  return fault.kind === 'missing' && answer !== undefined && corsFault(answer, origin) === null
}

function curesOfLists({ stage }: Scene): Cure[] {
  return [...advise('corsLists', stage, 'server'), ...advise('origins', stage, 'proxy')]
}

function originsOf(facts: readonly { readonly origin: string }[]): string[] {
  return facts.map(({ origin }) => origin)
}

function listed(origins: readonly string[]): string {
  return origins.join(', ')
}

// What the headers of CORS on one answer are worth to a page, as browsers read them.

/** Why a browser keeps an answer from a page; null: it does not. */
type CorsFault =
  | { readonly kind: 'failed' | 'missing' | 'doubled' | 'star' | 'credentials' }
  | { readonly kind: 'other'; readonly allowed: string }
  | { readonly kind: 'methods' | 'headers'; readonly lacking: readonly string[] }
  | { readonly kind: 'status'; readonly status: number }

/** What replication sends: PouchDB's requests are none of the simple ones. */
const ASKED_METHODS = ['PUT', 'POST', 'DELETE'] as const
const ASKED_HEADERS = ['authorization', 'content-type'] as const

/** GET, HEAD and POST pass without being listed (Fetch standard 4.8). */
const SAFELISTED: ReadonlySet<string> = new Set(['GET', 'HEAD', 'POST'])

/** @returns what is wrong with an answer to a request of a page's with credentials */
function corsFault(reply: Reply, origin: string): CorsFault | null {
  if (!isAnswer(reply)) return { kind: 'failed' }
  const allowed = valuesOf(reply, 'access-control-allow-origin')
  const [first] = allowed
  if (first === undefined) return { kind: 'missing' }
  if (allowed.length > 1) return { kind: 'doubled' }
  if (first === '*') return { kind: 'star' }
  if (first !== origin) return { kind: 'other', allowed: first }
  const credentials = valuesOf(reply, 'access-control-allow-credentials')
  if (credentials.length > 1) return { kind: 'doubled' }
  return credentials[0] === 'true' ? null : { kind: 'credentials' }
}

/** The same of a preflight, which must also allow what is to be sent. */
function preflightFault(reply: Reply, origin: string): CorsFault | null {
  const fault = corsFault(reply, origin)
  if (fault !== null || !isAnswer(reply)) return fault
  if (reply.status < 200 || reply.status > 299) return { kind: 'status', status: reply.status }
  const methods = valuesOf(reply, 'access-control-allow-methods')
  const noMethods = ASKED_METHODS.filter((each) => !SAFELISTED.has(each) && !methods.includes(each))
  if (noMethods.length > 0) return { kind: 'methods', lacking: noMethods }
  const headers = valuesOf(reply, 'access-control-allow-headers').map((each) => each.toLowerCase())
  const noHeaders = ASKED_HEADERS.filter((each) => !headers.includes(each))
  return noHeaders.length > 0 ? { kind: 'headers', lacking: noHeaders } : null
}

/** A header sent twice and one with a comma are the same. */
function valuesOf({ raw }: Answer, name: string): string[] {
  return raw
    .filter(([each]) => each === name)
    .flatMap(([, value]) => value.split(','))
    .map((value) => value.trim())
    .filter((value) => value !== '')
}

// Requests as pages of an origin make them.

/** @param missing the id of a document that is not there */
export async function askAsPages(
  client: Client,
  origins: readonly string[],
  missing: string,
): Promise<CorsFacts[]> {
  const path = databasePath(client.address)
  return Promise.all(
    origins.map(async (origin) => {
      const [preflight, answer, refusal] = await Promise.all([
        client.ask({
          method: 'OPTIONS',
          path: `${path}/_local/${missing}`,
          anonymous: true,
          headers: {
            origin,
            'access-control-request-method': 'PUT',
            'access-control-request-headers': ASKED_HEADERS.join(','),
          },
        }),
        client.ask({ method: 'GET', path: `${path}/`, headers: { origin } }),
        client.ask({ method: 'GET', path: `${path}/_local/${missing}`, headers: { origin } }),
      ])
      return { origin, preflight, answer, refusal }
    }),
  )
}
