import { advise, adviseOrigins } from '../advice.ts'
import type { Reply } from '../client.ts'
import { type Cure, type Finding, fine, wrong } from '../finding.ts'
import { told } from '../quote.ts'
import type { Scene } from '../scene.ts'
import { type CorsFault, corsFault, preflightFault } from './cross-origin.ts'

/** What a page of one origin would get. */
export interface CorsFacts {
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
  if (first === undefined) return fine('preflights', `Allowed to ${listed(originsOf(facts))}.`)
  const { reply, fault } = first
  return wrong(
    'preflights',
    `Not allowed to ${listed(originsOf(bad))}: ${clause(fault, reply, scene)}.`,
    isOfLists(facts, first) ? curesOfLists(scene) : curesOf(fault, facts, scene),
  )
}

/** Judges the answers themselves, refusals among them: without the headers an app cannot even tell why it was refused. */
export function judgeCors(facts: readonly CorsFacts[], scene: Scene): Finding {
  const bad = faultsOf(facts, ({ origin, answer }) => [answer, corsFault(answer, origin)])
  const worse = bad.length > 0 ? bad : faultsOf(facts, refusalOf)
  const [first] = worse
  if (first === undefined) return fine('cors', 'Pages of these origins may read all answers, refusals too.')
  const which = bad.length > 0 ? 'answers' : 'refusals'
  const { reply, fault } = first
  return wrong(
    'cors',
    `Pages of ${listed(originsOf(worse))} may not read ${which}: ${clause(fault, reply, scene)}.`,
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
      return 'Access-Control-Allow-Origin or -Credentials is there twice: one is of the server, one of a proxy'
    case 'star':
      return 'Access-Control-Allow-Origin is *, which browsers do not take with a password'
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
