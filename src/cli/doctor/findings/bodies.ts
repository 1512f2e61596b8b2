import { advise } from '../advice.ts'
import { type Answer, isAnswer, isJson, type Reply } from '../client.ts'
import { type Finding, fine, note, wrong } from '../finding.ts'
import { told } from '../quote.ts'
import type { Scene } from '../scene.ts'

/** What became of a body of a size. */
export interface BodyFacts {
  readonly bytes: number
  /** null: it was not tried. */
  readonly reply: Reply | null
  /** What it took, or would have taken. */
  readonly ms: number
  /** Whether its bytes were still leaving when the time was over: what is slow then is the line. */
  readonly isMoving?: boolean
}

/** Judges the bodies, smallest first; after one that was refused no larger one is tried. */
export function judgeBodies(facts: readonly BodyFacts[], scene: Scene): Finding {
  const taken = facts.filter(({ reply }) => reply !== null && isAnswer(reply) && reply.status < 300)
  const refused = facts.find(({ reply }) => reply !== null && (!isAnswer(reply) || reply.status >= 300))
  const text = taken.length > 0 ? `${listed(taken)} are taken.` : ''
  if (refused?.isMoving) {
    const slow = `${megabytes(refused.bytes)} were still on their way after ${seconds(refused.ms)}: the line is slow. --long waits for it.`
    return note('bodies', `${text} ${slow}`.trim())
  }
  if (refused !== undefined) return judgeRefused(refused, scene)
  const missing = facts.filter(({ reply }) => reply === null)
  if (missing.length === 0) return fine('bodies', text)
  const needs = `${listed(missing)} would take ${seconds(missing.at(-1)?.ms ?? 0)} on this line: --long tries.`
  return fine('bodies', `${text} ${needs}`.trim())
}

function judgeRefused({ bytes, reply }: BodyFacts, scene: Scene): Finding {
  const { stage, quote } = scene
  const size = megabytes(bytes)
  const what = told(reply!, quote)
  if (!isAnswer(reply!)) {
    const isLate = reply!.failure === 'TIMEOUT'
    return wrong('bodies', `${size} do not arrive: ${what}.`, advise(isLate ? 'slowBodies' : 'bodies', stage))
  }
  const answer: Answer = reply!
  if (answer.status === 408 || answer.status === 504 || answer.status === 524) {
    return wrong('bodies', `${size} take too long: ${what}.`, advise('slowBodies', stage, 'proxy'))
  }
  const isOfServer = isJson(answer)
  if (answer.status !== 413) {
    const cures = isOfServer ? [] : advise('bodies', stage, 'proxy')
    return wrong('bodies', `${size} are refused: ${what}.`, cures)
  }
  const who = isOfServer ? 'the server' : `the proxy${stage.isRecognised ? ` (${stage.proxies[0]})` : ''}`
  return wrong(
    'bodies',
    `${size} are too much for ${who}: 413. Larger notes and pictures never sync.`,
    advise('bodies', stage, isOfServer ? 'server' : 'proxy'),
  )
}

function listed(facts: readonly BodyFacts[]): string {
  return facts.map(({ bytes }) => megabytes(bytes)).join(', ')
}

function seconds(ms: number): string {
  return `${Math.ceil(ms / 1000)} s`
}

function megabytes(bytes: number): string {
  return bytes < 1_048_576 ? `${Math.round(bytes / 1024)} kB` : `${Math.floor(bytes / 1_048_576)} MB`
}
