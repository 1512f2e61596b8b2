/** settee's own TLS: HTTP/2 and HTTP/1.1 on one port, chosen by ALPN. */
import { once } from 'node:events'
import { createServer as createHttp2Server, type Http2Server, type ServerHttp2Session } from 'node:http2'
import type { AddressInfo, Socket } from 'node:net'
import { createServer, type Server, type TLSSocket } from 'node:tls'
import type { FastifyInstance } from 'fastify'
import { factsOf, readTlsPair, type TlsPair, tlsFilesState } from '../../config/tls-files.ts'
import { deferContinue } from './body-progress.ts'
import { MAX_HEADER_BYTES } from './client-errors.ts'
import { STREAM_WINDOW, StreamRequest, StreamResponse } from './http2-messages.ts'
import { errorBody, KNOWN_METHODS, notHttp } from './raw-answer.ts'

declare module 'fastify' {
  interface FastifyInstance {
    /** null: settee does not speak TLS. */
    secure: SecureListener | null
  }
}

export interface SecureListener {
  readonly address: AddressInfo
  /** The address that it listens on, with a slash at the end. */
  readonly url: string
  /** Reads the certificate's files now, changed or not. */
  reload(): Promise<void>
  /** Stops listening, and ends all connections of the app as its own close does; resolves when they have ended. */
  close(): Promise<void>
}

export interface SecureOptions {
  readonly host: string
  readonly port: number
  /** The interval of the checks of the certificate's files, in milliseconds. Default: 5 s. */
  readonly checkMs?: number | undefined
}

const CHECK_MS = 5000
/** The longest time from the connection to the end of the handshake, in milliseconds. */
const HANDSHAKE_MS = 20_000

/**
 * Listens with the certificate of section `[ssl]`, and reloads it when its files change; open connections go on with the
 * old one. The app's own server serves HTTP/1.1, as without TLS.
 * @throws StartError, an error of the operating system
 */
export async function listenSecurely(app: FastifyInstance, options: SecureOptions): Promise<SecureListener> {
  const state = await tlsFilesState(app.services.config)
  const pair = await readTlsPair(app.services.config)
  logCertificate(app, pair)
  // Until then the routes have no hooks, not even those that authenticate.
  await app.ready()
  const server = createServer({
    ...pair,
    minVersion: 'TLSv1.2',
    ALPNProtocols: ['h2', 'http/1.1'],
    handshakeTimeout: HANDSHAKE_MS,
    // As Node's server for HTTP/1: a client that has closed its side may still read.
    allowHalfOpen: true,
    // Likewise: otherwise each small piece waits up to 40 ms for the acknowledgement of the one before.
    noDelay: true,
  })
  serve(server, app)
  await listen(server, options)
  const address = server.address() as AddressInfo
  const watch = new CertificateWatch(app, server, state)
  watch.begin(options.checkMs ?? CHECK_MS)
  const host = address.family === 'IPv6' ? `[${address.address}]` : address.address
  app.secure = {
    address,
    url: `https://${host}:${address.port}/`,
    reload: () => watch.load(),
    close: async () => {
      watch.end()
      const closed = once(server, 'close')
      server.close()
      // An app that does not listen ends no connections when it closes.
      app.connections.close()
      await closed
    },
  }
  return app.secure
}

async function listen(server: Server, { host, port }: SecureOptions): Promise<void> {
  const listening = once(server, 'listening')
  server.listen(port, host)
  await listening
}

function serve(server: Server, app: FastifyInstance): void {
  const { connections, connectionTally } = app
  const http2 = makeHttp2Server(app)
  connections.addServer(server)
  // Connections count from their first packet, since an unfinished handshake takes up one, too.
  const below = new Map<string, Socket>()
  server.on('connection', (socket) => {
    const key = peerOf(socket)
    below.set(key, socket)
    socket.once('close', () => below.get(key) === socket && below.delete(key))
    connections.onOpen(socket)
  })
  server.on('secureConnection', (socket) => {
    const carrier = below.get(peerOf(socket))
    if (carrier !== undefined) connections.onSecure(carrier, socket)
    if (socket.alpnProtocol !== 'h2') {
      app.server.emit('connection', socket)
      return
    }
    connectionTally.add(socket)
    // A client that has closed its side reads no answers, which would be held forever.
    socket.allowHalfOpen = false
    http2.emit('connection', socket)
  })
  // Node has closed the connection, which did not speak TLS.
  server.on('tlsClientError', () => undefined)
}

/** A key that no two open connections share. */
function peerOf({ remoteAddress, remotePort, localAddress }: Socket | TLSSocket): string {
  return `${remoteAddress} ${remotePort} ${localAddress}`
}

/** Reloads the certificate when its files change. */
class CertificateWatch {
  readonly #app: FastifyInstance
  readonly #server: Server
  /** The state of the files when they were last loaded, or found invalid. */
  #loaded: string
  /** The state of the files at the last check. */
  #seen: string
  #timer: NodeJS.Timeout | undefined
  #isChecking = false

  constructor(app: FastifyInstance, server: Server, state: string) {
    this.#app = app
    this.#server = server
    this.#loaded = state
    this.#seen = state
  }

  begin(checkMs: number): void {
    this.#timer = setInterval(() => void this.#check(), checkMs)
    this.#timer.unref()
  }

  end(): void {
    clearInterval(this.#timer)
  }

  /** Uses the files' certificate if it is valid; otherwise logs the reason and keeps the old one. */
  async load(): Promise<void> {
    const { config, logger } = this.#app.services
    try {
      const pair = await readTlsPair(config)
      this.#server.setSecureContext({ ...pair, minVersion: 'TLSv1.2' })
      logCertificate(this.#app, pair)
    } catch (error) {
      const reason = (error as Error).message
      logger.error({ reason }, 'the new TLS certificate cannot be used; the old one stays in use')
    }
  }

  /** The two files are replaced one after the other, so a change is loaded once they no longer change. */
  async #check(): Promise<void> {
    if (this.#isChecking) return
    this.#isChecking = true
    const now = await tlsFilesState(this.#app.services.config)
    const isUnchanged = now === this.#seen
    this.#seen = now
    if (isUnchanged && now !== this.#loaded) {
      this.#loaded = now
      await this.load()
    }
    this.#isChecking = false
  }
}

function logCertificate({ services: { logger } }: FastifyInstance, pair: TlsPair): void {
  const { names, validTo } = factsOf(pair)
  const until = new Date(validTo).toISOString()
  if (validTo > Date.now()) logger.info({ names, until }, 'the TLS certificate was loaded')
  else logger.error({ names, until }, 'the TLS certificate has expired; clients will refuse it')
}

/**
 * Requests that a connection may have under way: enough for the feeds of a browser's windows, and few enough that their
 * answers fit in memory (RFC 9113 6.5.2 recommends at least 100).
 */
const MAX_STREAMS = 128
const CONNECTION_WINDOW = 1024 * 1024
/** The largest head that nghttp2 accepts, in bytes. One above {@link MAX_HEADER_BYTES} gets an error (error-replies.ts). */
const HEAD_LIST_BYTES = 2 * MAX_HEADER_BYTES
/** Twice as many as Node accepts over HTTP/1, since browsers send each cookie as a header. */
const HEADERS = 2000
/**
 * Megabytes for the waiting answers of a connection, above which Node refuses new streams. It must hold a piece of 256 kB
 * for each stream, or a client that loads many pictures would be refused.
 */
const SESSION_MB = 64

/**
 * Makes a server that passes its requests to the app. It does not listen: connections are passed to it with the event
 * `connection`. nghttp2 cuts off clients that open and cancel streams, after 1,000 and then 33 in a second (CVE-2023-44487).
 * Node and http2-messages.ts stop floods of other frames.
 */
export function makeHttp2Server(app: FastifyInstance): Http2Server {
  const answer = (request: StreamRequest, response: StreamResponse) => {
    if (KNOWN_METHODS.has(request.method)) app.turns.handle(request as never, response as never)
    else refuseMethod(app, response)
  }
  const server = createHttp2Server(
    {
      settings: {
        maxConcurrentStreams: MAX_STREAMS,
        initialWindowSize: STREAM_WINDOW,
        maxHeaderListSize: HEAD_LIST_BYTES,
        enableConnectProtocol: false,
      },
      maxHeaderListPairs: HEADERS,
      maxSessionMemory: SESSION_MB,
      Http2ServerRequest: StreamRequest as never,
      Http2ServerResponse: StreamResponse as never,
    },
    answer as never,
  )
  deferContinue(server)
  server.on('session', (session) => prepare(app, session))
  return server
}

/** Refuses as over HTTP/1, whose parser accepts no other methods (client-errors.ts). */
function refuseMethod({ requestTally }: FastifyInstance, response: StreamResponse): void {
  requestTally.invalid += 1
  const error = notHttp()
  const body = errorBody(error)
  const headers = { 'content-type': 'application/json', 'cache-control': 'must-revalidate' }
  response.answerInstead(error.status, { ...headers, 'content-length': body.length }, body)
}

function prepare(app: FastifyInstance, session: ServerHttp2Session): void {
  session.setLocalWindowSize(CONNECTION_WINDOW)
  app.connections.onSession(session)
}
