/** Calls of the server that serves the page. */
import { en } from '../strings/en.ts'
import { Failure, failureOf, isAborted } from './failure.ts'
import { isReachable } from './reachable.ts'
import { endSession, isSignedIn, renewSession } from './session-end.ts'

export interface CallOptions {
  /** Default: GET, or POST with a body. */
  readonly method?: string
  /** Query parameters; undefined ones are left out, and others than strings are sent as JSON. */
  readonly query?: Readonly<Record<string, unknown>>
  /** Sent as JSON. */
  readonly json?: unknown
  /** Sent as it is. */
  readonly body?: BodyInit
  readonly headers?: Readonly<Record<string, string>>
  readonly signal?: AbortSignal | undefined
  /** Statuses besides 2xx whose answer is returned. */
  readonly accepted?: readonly number[]
  /** Whether a 401 is answered to the caller; otherwise the user is asked to sign in again. */
  readonly isLogin?: boolean
}

/** The page lies at `_utils/`, possibly below a proxy's prefix. */
const ROOT = new URL('../', location.href)

/** @returns the path of a resource: each segment is escaped, `_design/x` and `_local/x` as two segments */
export function pathOf(...segments: readonly string[]): string {
  return segments.map(escapeSegment).join('/')
}

function escapeSegment(segment: string): string {
  const [, kind, rest] = /^(_design|_local)\/(.*)$/s.exec(segment) ?? []
  return kind === undefined ? encodeURIComponent(segment) : `${kind}/${encodeURIComponent(rest ?? '')}`
}

/** @returns the address of a resource of the server */
export function addressOf(path: string, query: CallOptions['query'] = {}): string {
  // Two slashes at the start would name another server.
  const url = new URL(`./${path}`, ROOT)
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined)
      url.searchParams.set(name, typeof value === 'string' ? value : JSON.stringify(value))
  }
  return url.href
}

/** The server's address as users type it, with a slash at the end. */
export function serverAddress(): string {
  return ROOT.href
}

/**
 * Sends a call.
 * @returns the answer, whose status is 2xx
 * @throws Failure, also for a path that leads elsewhere ({@link isReachable}); an AbortError when the signal aborts
 */
export async function send(path: string, options: CallOptions = {}): Promise<Response> {
  const answer = await fetched(path, options)
  if (answer.ok || options.accepted?.includes(answer.status)) return answer
  if (answer.status === 401 && isSignedIn() && options.isLogin !== true) {
    // Another tab may have signed out, or the session may have timed out. The user's input stays as it is.
    if (await renewSession()) return send(path, options)
    endSession()
  }
  throw failureOf(answer, await answer.text())
}

async function fetched(
  path: string,
  { query, json, body, signal, ...options }: CallOptions,
): Promise<Response> {
  if (!isReachable(path)) throw new Failure(0, 'unreachable_name', en.common.unreachableName, null)
  const sent = json === undefined ? body : JSON.stringify(json)
  try {
    return await fetch(addressOf(path, query), {
      method: options.method ?? (sent === undefined ? 'GET' : 'POST'),
      headers: {
        Accept: 'application/json',
        // The browser would show its own dialog for a challenge of Basic.
        'X-CouchDB-WWW-Authenticate': 'Cookie',
        ...(json !== undefined && { 'Content-Type': 'application/json' }),
        ...options.headers,
      },
      ...(sent !== undefined && { body: sent }),
      ...(signal && { signal }),
    })
  } catch (error) {
    if (isAborted(error)) throw error
    throw new Failure(0, 'unreachable', en.common.unreachable, null, error)
  }
}

/** Sends a call and reads its answer as JSON. @throws as {@link send} */
export async function ask<Answer>(path: string, options: CallOptions = {}): Promise<Answer> {
  const answer = await send(path, options)
  return JSON.parse(await readText(answer)) as Answer
}

/** Sends a call and reads its answer as text, for JSON whose numbers must stay exact. @throws as {@link send} */
export async function askText(path: string, options: CallOptions = {}): Promise<string> {
  return readText(await send(path, options))
}

async function readText(answer: Response): Promise<string> {
  try {
    return await answer.text()
  } catch (error) {
    if (isAborted(error)) throw error
    throw new Failure(0, 'unreachable', en.common.answerCut, answer.headers.get('x-couch-request-id'), error)
  }
}

/** In characters; a line of a stream that is longer is refused. */
const MAX_LINE = 16_000_000

/**
 * Reads a stream of lines of JSON, such as a rewind's or a continuous feed's. Empty lines (heartbeats) are skipped.
 * @throws as {@link send}, also in the middle
 */
export async function* askLines<Line>(path: string, options: CallOptions = {}): AsyncGenerator<Line> {
  const answer = await send(path, options)
  const requestId = answer.headers.get('x-couch-request-id')
  let rest = ''
  try {
    for await (const piece of (answer.body as ReadableStream<BufferSource>).pipeThrough(
      new TextDecoderStream(),
    )) {
      const lines = (rest + piece).split('\n')
      rest = lines.pop() ?? ''
      if (rest.length > MAX_LINE) throw new Failure(0, 'too_long', en.common.lineTooLong, requestId)
      for (const line of lines) if (line.trim() !== '') yield JSON.parse(line) as Line
    }
  } catch (error) {
    if (error instanceof Failure || isAborted(error)) throw error
    throw new Failure(0, 'unreachable', en.common.answerCut, requestId, error)
  }
  if (rest.trim() !== '') yield JSON.parse(rest) as Line
}
