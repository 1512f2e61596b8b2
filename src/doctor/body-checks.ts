/** Checks whether large request bodies get through. */
import { once } from 'node:events'
import type { ClientRequest } from 'node:http'
import { advise, type CheckContext } from './advice.ts'
import {
  type Answer,
  type Client,
  codeOf,
  databasePath,
  isAnswer,
  isJson,
  type ProbeLimits,
  type Reply,
  readAnswer,
  withTimeout,
} from './doctor-client.ts'
import { describe, type Finding, fine, note, wrong } from './finding.ts'

/** The result of sending a body. */
interface BodyFacts {
  readonly bytes: number
  /** null: not tried. */
  readonly reply: Reply | null
  /** How long it took, or would have taken. */
  readonly ms: number
  /** Whether bytes were still being sent at the time-out, because the line is slow. */
  readonly isMoving?: boolean
}

/** Checks the bodies, smallest first. After a refusal, no larger body is tried. */
export function checkBodies(facts: readonly BodyFacts[], context: CheckContext): Finding {
  const accepted = facts.filter(({ reply }) => reply !== null && isAnswer(reply) && reply.status < 300)
  const refused = facts.find(({ reply }) => reply !== null && (!isAnswer(reply) || reply.status >= 300))
  const text = accepted.length > 0 ? `The server accepts bodies of ${sizesOf(accepted)}.` : ''
  if (refused?.isMoving) {
    const slow = `A body of ${megabytes(refused.bytes)} was still being sent after ${seconds(refused.ms)}: the line is slow. --long waits for it.`
    return note('bodies', `${text} ${slow}`.trim())
  }
  if (refused !== undefined) return refusedBody(refused, context)
  const missing = facts.filter(({ reply }) => reply === null)
  if (missing.length === 0) return fine('bodies', text)
  const needs = `${sizesOf(missing)} would take ${seconds(missing.at(-1)?.ms ?? 0)} on this line; --long tries it.`
  return fine('bodies', `${text} ${needs}`.trim())
}

function refusedBody({ bytes, reply }: BodyFacts, context: CheckContext): Finding {
  const { stack, quote } = context
  const size = megabytes(bytes)
  const what = describe(reply!, quote)
  if (!isAnswer(reply!)) {
    const isLate = reply!.failure === 'TIMEOUT'
    return wrong(
      'bodies',
      `A body of ${size} does not arrive: ${what}.`,
      advise(isLate ? 'slowBodies' : 'bodies', stack),
    )
  }
  const answer: Answer = reply!
  if (answer.status === 408 || answer.status === 504 || answer.status === 524) {
    return wrong('bodies', `A body of ${size} takes too long: ${what}.`, advise('slowBodies', stack, 'proxy'))
  }
  const isOfServer = isJson(answer)
  if (answer.status !== 413) {
    const cures = isOfServer ? [] : advise('bodies', stack, 'proxy')
    return wrong('bodies', `A body of ${size} is refused: ${what}.`, cures)
  }
  const who = isOfServer ? 'the server' : `the proxy${stack.isRecognised ? ` (${stack.proxies[0]})` : ''}`
  return wrong(
    'bodies',
    `A body of ${size} is too large for ${who}: 413. Larger notes and pictures never sync.`,
    advise('bodies', stack, isOfServer ? 'server' : 'proxy'),
  )
}

function sizesOf(facts: readonly BodyFacts[]): string {
  return facts.map(({ bytes }) => megabytes(bytes)).join(', ')
}

function seconds(ms: number): string {
  return `${Math.ceil(ms / 1000)} s`
}

function megabytes(bytes: number): string {
  return bytes < 1_048_576 ? `${Math.round(bytes / 1024)} kB` : `${Math.floor(bytes / 1_048_576)} MB`
}

/** Large bodies that store nothing: an empty bulk, filled with white space. */
const HEAD = Buffer.from('{"new_edits":false,"docs":[')
const TAIL = Buffer.from(']}')
const SPACES = Buffer.alloc(65_536, ' ')
/** Even a slow line sends some bytes in this time. */
const MOVING_MS = 2000

/** Sends the bodies one after the other until one is refused or the time is over. */
export async function sendBodies(
  client: Client,
  { bodies, bodiesMs, bodyGraceMs }: ProbeLimits,
): Promise<BodyFacts[]> {
  const found: BodyFacts[] = []
  const end = performance.now() + bodiesMs
  let msPerByte = 0
  for (const bytes of bodies) {
    const left = end - performance.now()
    const needs = bytes * msPerByte
    if (needs > left) {
      found.push({ bytes, reply: null, ms: needs })
      continue
    }
    const sent = await sendBody(client, bytes, left + bodyGraceMs)
    found.push(sent)
    if (!isAnswer(sent.reply) || sent.reply.status >= 300) break
    msPerByte = sent.ms / bytes
  }
  return found
}

async function sendBody(
  client: Client,
  bytes: number,
  ms: number,
): Promise<BodyFacts & { readonly reply: Reply }> {
  const started = performance.now()
  const sending: Sending = { movedAt: started, isSent: false }
  const request = client.begin({
    method: 'POST',
    path: `${databasePath(client.address)}/_bulk_docs`,
    headers: { 'content-type': 'application/json', 'content-length': String(bytes) },
  })
  try {
    const reply = await withTimeout(ms, send(request, bytes, started, sending))
    return { bytes, reply, ms: performance.now() - started }
  } catch (error) {
    const now = performance.now()
    const isMoving = !sending.isSent && now - sending.movedAt < Math.min(MOVING_MS, ms / 3)
    return { bytes, reply: { failure: codeOf(error) }, ms: now - started, isMoving }
  } finally {
    request.destroy()
  }
}

/** Progress of a body. */
interface Sending {
  /** When bytes were last sent, in ms of `performance.now()`. */
  movedAt: number
  isSent: boolean
}

/** Resolves with the answer, which may arrive before the body is sent, or with a failure. */
async function send(
  request: ClientRequest,
  bytes: number,
  started: number,
  sending: Sending,
): Promise<Reply> {
  const answered = new Promise<Reply>((resolve) => {
    request.once('response', (response) => {
      void readAnswer(response, started).then(resolve, (error: unknown) =>
        resolve({ failure: codeOf(error) }),
      )
    })
    request.on('error', (error) => resolve({ failure: codeOf(error) }))
    request.once('close', () => setImmediate(() => resolve({ failure: 'ECONNRESET' })))
  })
  let isAnswered = false
  void answered.then(() => {
    isAnswered = true
  })
  for (const chunk of chunksOf(bytes)) {
    if (isAnswered || request.destroyed) break
    if (!request.write(chunk)) await Promise.race([once(request, 'drain').catch(() => undefined), answered])
    sending.movedAt = performance.now()
  }
  if (!isAnswered) request.end()
  sending.isSent = true
  return answered
}

function* chunksOf(bytes: number): Iterable<Buffer> {
  yield HEAD
  for (let left = bytes - HEAD.length - TAIL.length; left > 0; left -= SPACES.length) {
    yield SPACES.subarray(0, Math.min(left, SPACES.length))
  }
  yield TAIL
}
