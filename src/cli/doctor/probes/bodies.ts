/** Large bodies that store nothing: a bulk of no documents, with much white space where they would stand. */
import { once } from 'node:events'
import type { ClientRequest } from 'node:http'
import { type Client, codeOf, databasePath, isAnswer, type Reply, readAnswer } from '../client.ts'
import type { BodyFacts } from '../findings/bodies.ts'
import type { Pace } from '../pace.ts'
import { within } from '../within.ts'

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
