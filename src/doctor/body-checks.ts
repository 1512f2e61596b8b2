import { once } from 'node:events'
import type { ClientRequest } from 'node:http'
import { advise } from './advice.ts'
import {
  type Answer,
  type Client,
  codeOf,
  databasePath,
  isAnswer,
  isJson,
  type Reply,
  readAnswer,
} from './doctor-client.ts'
import type { Scene } from './examination.ts'
import { type Finding, fine, note, told, wrong } from './finding.ts'
import { type Pace, within } from './timing.ts'

/** What became of a body of a size. */
interface BodyFacts {
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
  const text = taken.length > 0 ? `The server accepts bodies of ${listed(taken)}.` : ''
  if (refused?.isMoving) {
    const slow = `A body of ${megabytes(refused.bytes)} was still being sent after ${seconds(refused.ms)}: the line is slow. --long waits for it.`
    return note('bodies', `${text} ${slow}`.trim())
  }
  if (refused !== undefined) return judgeRefused(refused, scene)
  const missing = facts.filter(({ reply }) => reply === null)
  if (missing.length === 0) return fine('bodies', text)
  const needs = `${listed(missing)} would take ${seconds(missing.at(-1)?.ms ?? 0)} on this line; --long tries it.`
  return fine('bodies', `${text} ${needs}`.trim())
}

function judgeRefused({ bytes, reply }: BodyFacts, scene: Scene): Finding {
  const { stage, quote } = scene
  const size = megabytes(bytes)
  const what = told(reply!, quote)
  if (!isAnswer(reply!)) {
    const isLate = reply!.failure === 'TIMEOUT'
    return wrong(
      'bodies',
      `A body of ${size} does not arrive: ${what}.`,
      advise(isLate ? 'slowBodies' : 'bodies', stage),
    )
  }
  const answer: Answer = reply!
  if (answer.status === 408 || answer.status === 504 || answer.status === 524) {
    return wrong('bodies', `A body of ${size} takes too long: ${what}.`, advise('slowBodies', stage, 'proxy'))
  }
  const isOfServer = isJson(answer)
  if (answer.status !== 413) {
    const cures = isOfServer ? [] : advise('bodies', stage, 'proxy')
    return wrong('bodies', `A body of ${size} is refused: ${what}.`, cures)
  }
  const who = isOfServer ? 'the server' : `the proxy${stage.isRecognised ? ` (${stage.proxies[0]})` : ''}`
  return wrong(
    'bodies',
    `A body of ${size} is too large for ${who}: 413. Larger notes and pictures never sync.`,
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

// Large bodies that store nothing: a bulk of no documents, with much white space where they would stand.

const HEAD = Buffer.from('{"new_edits":false,"docs":[')
const TAIL = Buffer.from(']}')
const SPACES = Buffer.alloc(65_536, ' ')
/** Even a slow line moves as many bytes in this time. */
const MOVING_MS = 2000

/** Sends body after body, until one is refused or the time is over. */
export async function sendBodies(
  client: Client,
  { bodies, bodiesMs, bodyGraceMs }: Pace,
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
    const reply = await within(ms, send(request, bytes, started, sending))
    return { bytes, reply, ms: performance.now() - started }
  } catch (error) {
    const now = performance.now()
    const isMoving = !sending.isSent && now - sending.movedAt < Math.min(MOVING_MS, ms / 3)
    return { bytes, reply: { failure: codeOf(error) }, ms: now - started, isMoving }
  } finally {
    request.destroy()
  }
}

/** How far a body has come. */
interface Sending {
  /** When bytes last left, of `performance.now()`. */
  movedAt: number
  isSent: boolean
}

/** Resolves with the answer, which may come before all is sent, or with why there is none. */
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
  let isOver = false
  void answered.then(() => {
    isOver = true
  })
  for (const chunk of chunksOf(bytes)) {
    if (isOver || request.destroyed) break
    if (!request.write(chunk)) await Promise.race([once(request, 'drain').catch(() => undefined), answered])
    sending.movedAt = performance.now()
  }
  if (!isOver) request.end()
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
