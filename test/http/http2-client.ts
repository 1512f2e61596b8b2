/** HTTP/2 frame by frame, over settee's own TLS. */
import { once } from 'node:events'
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  type OutgoingHttpHeaders,
} from 'node:http2'
import type { FastifyInstance } from 'fastify'
import type { Test } from 'tap'
import type { AppOptions } from '../../src/app.ts'
import { listenSecurely } from '../../src/http/transport/secure-listener.ts'
import { certificateFiles } from '../helpers/certificates.ts'
import { startMemoryServer } from './memory-server.ts'

/** The HTTP layer over the engine in memory, which speaks TLS beside. */
export async function startSecureMemoryServer(
  t: Test,
  settings: Record<string, string> = {},
  extend: (app: FastifyInstance) => void = () => undefined,
  options: AppOptions = {},
) {
  const tls = await certificateFiles(t)
  const all = { ...settings, 'ssl/cert_file': tls.certFile, 'ssl/key_file': tls.keyFile }
  const server = await startMemoryServer(t, all, extend, options)
  const { app } = server
  const secure = await listenSecurely(app, { host: '127.0.0.1', port: 0, checkMs: 50 })
  const close = async () => {
    await Promise.all([app.close(), secure.close()])
  }
  let closed: Promise<void> | undefined
  const closeOnce = () => {
    closed ??= close()
    return closed
  }
  t.teardown(closeOnce)
  return { ...server, tls, secureUrl: secure.url.replace(/\/$/, ''), closeAll: closeOnce }
}

export interface Heard {
  readonly status: number | undefined
  readonly headers: Readonly<Record<string, unknown>>
  readonly text: string
  // biome-ignore lint/suspicious/noExplicitAny: what a test reads of an answer is what it checks
  readonly json: any
  /** What the stream was closed with; 0 is no error. */
  readonly code: number
  /** Whether the answer came to its end. */
  readonly isWhole: boolean
}

export interface Stream {
  readonly stream: ClientHttp2Stream
  readonly heard: Promise<Heard>
  /** What has come so far. */
  text(): string
  /** Resolves when that matches. */
  until(pattern: RegExp): Promise<void>
}

export interface Session {
  readonly session: ClientHttp2Session
  /** Opens a stream, and leaves its request open where there is a body to come. */
  open(headers: OutgoingHttpHeaders, isWhole?: boolean): Stream
  /** A whole request: `PUT /db/a`. */
  ask(line: string, more?: { body?: string | Buffer; headers?: OutgoingHttpHeaders }): Promise<Heard>
}

export async function openSession(t: Test, url: string, ca: string): Promise<Session> {
  // By itself it would not send the heads that a server has to refuse.
  const options = { ca, maxSendHeaderBlockLength: 4 * 1024 * 1024 }
  const session = connect(url, options)
  // Of a session that its server ends a test looks at the streams.
  session.on('error', () => undefined)
  t.teardown(() => session.destroy())
  await once(session, 'connect')
  const open: Session['open'] = (headers, isWhole = true) =>
    listen(session.request(headers, { endStream: isWhole }))
  const ask: Session['ask'] = (line, { body, headers = {} } = {}) => {
    const [method, path] = line.split(' ')
    const opened = open({ ':method': method, ':path': path, ...headers }, body === undefined)
    if (body !== undefined) opened.stream.end(body)
    return opened.heard
  }
  return { session, open, ask }
}

function listen(stream: ClientHttp2Stream): Stream {
  let headers: Record<string, unknown> = {}
  const chunks: Buffer[] = []
  let isWhole = false
  stream.on('response', (head) => {
    headers = head
  })
  stream.on('data', (chunk) => chunks.push(chunk))
  stream.on('error', () => undefined)
  stream.on('end', () => {
    isWhole = stream.rstCode === 0 && !stream.aborted
  })
  const text = () => Buffer.concat(chunks).toString()
  const closed = new Promise<void>((resolve) => stream.once('close', () => resolve()))
  const heard = closed.then(() => ({
    status: headers[':status'] as number | undefined,
    headers,
    text: text(),
    json: parsed(text()),
    code: stream.rstCode ?? 0,
    isWhole,
  }))
  const until = async (pattern: RegExp) => {
    while (!pattern.test(text())) await once(stream, 'data')
  }
  return { stream, heard, text, until }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown
  } catch {
    return undefined
  }
}
