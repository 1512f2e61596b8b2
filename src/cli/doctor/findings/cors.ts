import { type AdviceName, advise } from '../advice.ts'
import type { Reply } from '../client.ts'
import { type Finding, fine, wrong } from '../finding.ts'
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
  if (first === undefined)
    return fine('preflights', `Allowed to ${listed(facts.map(({ origin }) => origin))}.`)
  const origins = listed(bad.map(({ origin }) => origin))
  const { reply, fault } = first
  return wrong(
    'preflights',
    `Not allowed to ${origins}: ${clause(fault, reply, scene)}.`,
    advise(adviceOf(fault), scene.stage, whoseIs(fault)),
  )
}

/** Judges the answers themselves, refusals among them: without the headers an app cannot even tell why it was refused. */
export function judgeCors(facts: readonly CorsFacts[], scene: Scene): Finding {
  const bad = faultsOf(facts, ({ origin, answer }) => [answer, corsFault(answer, origin)])
  const worse = bad.length > 0 ? bad : faultsOf(facts, refusalOf)
  const [first] = worse
  if (first === undefined) return fine('cors', 'Pages of these origins may read all answers, refusals too.')
  const which = bad.length > 0 ? 'answers' : 'refusals'
  const origins = listed(worse.map(({ origin }) => origin))
  const { reply, fault } = first
  return wrong(
    'cors',
    `Pages of ${origins} may not read ${which}: ${clause(fault, reply, scene)}.`,
    advise(adviceOf(fault), scene.stage, whoseIs(fault)),
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

function adviceOf({ kind }: CorsFault): AdviceName {
  return kind === 'doubled' || kind === 'star' ? 'doubledCors' : 'origins'
}

/** Only the proxy doubles; whose the others are cannot be told. */
function whoseIs({ kind }: CorsFault): 'proxy' | 'any' {
  return kind === 'doubled' ? 'proxy' : 'any'
}

function listed(origins: readonly string[]): string {
  return origins.join(', ')
}
