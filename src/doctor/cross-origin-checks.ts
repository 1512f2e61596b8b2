/** Checks whether pages of other origins may send requests and read the answers. */
import { advise, adviseOrigins, type CheckContext } from './advice.ts'
import { type Answer, type Client, databasePath, isAnswer, type Reply } from './doctor-client.ts'
import { type Cure, describe, type Finding, fine, wrong } from './finding.ts'

/** The answers to a page of one origin. */
interface CorsFacts {
  readonly origin: string
  /** The headers that the preflight asks for, in lower case. */
  readonly asked: readonly string[]
  /** Of OPTIONS, without credentials. */
  readonly preflight: Reply
  /** Of a GET with credentials. */
  readonly answer: Reply
  /** Of a GET that is refused. */
  readonly refusal: Reply
}

/** Checks the preflights: without them, a browser does not send an app's requests. */
export function checkPreflights(facts: readonly CorsFacts[], context: CheckContext): Finding {
  const bad = faultsOf(facts, (each) => [each.preflight, preflightFault(each)])
  const [first] = bad
  if (first === undefined) return fine('preflights', `Allowed for ${listed(originsOf(facts))}.`)
  const { reply, fault } = first
  return wrong(
    'preflights',
    `Not allowed for ${listed(originsOf(bad))}: ${describeFault(fault, reply, context)}.`,
    isMethodOrHeaderFault(facts, first) ? listCures(context) : curesOf(fault, facts, context),
  )
}

/** Checks the answers, including refusals: without the headers, an app cannot even read the reason. */
export function checkCors(facts: readonly CorsFacts[], context: CheckContext): Finding {
  const bad = faultsOf(facts, ({ origin, answer }) => [answer, corsFault(answer, origin)])
  const worse = bad.length > 0 ? bad : faultsOf(facts, refusalOf)
  const [first] = worse
  if (first === undefined)
    return fine('cors', 'Pages of these origins can read all answers, including refusals.')
  const which = bad.length > 0 ? 'answers' : 'refusals'
  const { reply, fault } = first
  return wrong(
    'cors',
    `Pages of ${listed(originsOf(worse))} cannot read ${which}: ${describeFault(fault, reply, context)}.`,
    curesOf(fault, facts, context),
  )
}

interface CorsFailure {
  readonly origin: string
  readonly reply: Reply
  readonly fault: CorsFault
}

function faultsOf(
  facts: readonly CorsFacts[],
  faultOf: (facts: CorsFacts) => readonly [Reply, CorsFault | null],
): CorsFailure[] {
  return facts.flatMap((each) => {
    const [reply, fault] = faultOf(each)
    return fault === null ? [] : [{ origin: each.origin, reply, fault }]
  })
}

function refusalOf({ origin, refusal }: CorsFacts): readonly [Reply, CorsFault | null] {
  return [refusal, corsFault(refusal, origin)]
}

function describeFault(fault: CorsFault, reply: Reply, { quote }: CheckContext): string {
  switch (fault.kind) {
    case 'failed':
      return describe(reply, quote)
    case 'missing':
      return `there is no Access-Control-Allow-Origin (${describe(reply, quote)})`
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

/** Only a proxy duplicates headers. `*` comes from a proxy, or from a server that allows pages without a password. */
function curesOf({ kind }: CorsFault, facts: readonly CorsFacts[], { stack }: CheckContext): Cure[] {
  if (kind === 'doubled') return advise('doubledCors', stack, 'proxy')
  const origins = originsOf(facts)
  if (kind !== 'star') return adviseOrigins(origins, stack)
  return [...adviseOrigins(origins, stack, 'server'), ...advise('doubledCors', stack, 'proxy')]
}

/** Whether the origin is allowed, as another answer shows, but not the requested methods or headers. */
function isMethodOrHeaderFault(facts: readonly CorsFacts[], { origin, fault }: CorsFailure): boolean {
  if (fault.kind === 'methods' || fault.kind === 'headers') return true
  const answer = facts.find((each) => each.origin === origin)?.answer
  return fault.kind === 'missing' && answer !== undefined && corsFault(answer, origin) === null
}

function listCures({ stack }: CheckContext): Cure[] {
  return [...advise('corsLists', stack, 'server'), ...advise('origins', stack, 'proxy')]
}

function originsOf(facts: readonly { readonly origin: string }[]): string[] {
  return facts.map(({ origin }) => origin)
}

function listed(origins: readonly string[]): string {
  return origins.join(', ')
}

/** Why a browser withholds an answer from a page. */
type CorsFault =
  | { readonly kind: 'failed' | 'missing' | 'doubled' | 'star' | 'credentials' }
  | { readonly kind: 'other'; readonly allowed: string }
  | { readonly kind: 'methods' | 'headers'; readonly lacking: readonly string[] }
  | { readonly kind: 'status'; readonly status: number }

/** Methods and headers of replication: PouchDB's requests all need a preflight. */
const ASKED_METHODS = ['PUT', 'POST', 'DELETE'] as const
const ASKED_HEADERS = ['authorization', 'content-type'] as const

/** GET, HEAD and POST pass without being listed (Fetch standard 4.8). */
const SAFELISTED: ReadonlySet<string> = new Set(['GET', 'HEAD', 'POST'])

/** @returns the fault of an answer to a page's request with credentials; null: none */
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

/** As {@link corsFault}, for a preflight, which must also allow the methods and headers. */
function preflightFault({ preflight: reply, origin, asked }: CorsFacts): CorsFault | null {
  const fault = corsFault(reply, origin)
  if (fault !== null || !isAnswer(reply)) return fault
  if (reply.status < 200 || reply.status > 299) return { kind: 'status', status: reply.status }
  const methods = valuesOf(reply, 'access-control-allow-methods')
  const noMethods = ASKED_METHODS.filter((each) => !SAFELISTED.has(each) && !methods.includes(each))
  if (noMethods.length > 0) return { kind: 'methods', lacking: noMethods }
  const headers = valuesOf(reply, 'access-control-allow-headers').map((each) => each.toLowerCase())
  const noHeaders = asked.filter((each) => !headers.includes(each))
  return noHeaders.length > 0 ? { kind: 'headers', lacking: noHeaders } : null
}

/** A header that is sent twice is equivalent to one with a comma. */
function valuesOf({ raw }: Answer, name: string): string[] {
  return raw
    .filter(([each]) => each === name)
    .flatMap(([, value]) => value.split(','))
    .map((value) => value.trim())
    .filter((value) => value !== '')
}

/**
 * Sends requests as pages of the origins do.
 * @param missing the id of a document that does not exist
 */
export async function requestAsPages(
  client: Client,
  origins: readonly string[],
  missing: string,
): Promise<CorsFacts[]> {
  const path = databasePath(client.address)
  const asked = [...ASKED_HEADERS, ...Object.keys(client.appHeaders)]
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
            'access-control-request-headers': asked.join(','),
          },
        }),
        client.ask({ method: 'GET', path: `${path}/`, headers: { origin } }),
        client.ask({ method: 'GET', path: `${path}/_local/${missing}`, headers: { origin } }),
      ])
      return { origin, asked, preflight, answer, refusal }
    }),
  )
}
