/** settee's own TLS: HTTP/2 and HTTP/1.1 on one port, by what the client offers (ALPN). */
import { once } from 'node:events'
import { createServer as createHttp2Server, type Http2Server, type ServerHttp2Session } from 'node:http2'
import type { AddressInfo, Socket } from 'node:net'
import { createServer, type Server, type TLSSocket } from 'node:tls'
import type { FastifyInstance } from 'fastify'
import { factsOf, readTlsPair, type TlsPair, tlsFilesState } from '../../config/tls-files.ts'
import { deferContinue } from './body-collector.ts'
import { MAX_HEADER_BYTES } from './client-errors.ts'
import { STREAM_WINDOW, StreamRequest, StreamResponse } from './http2-messages.ts'
import { errorBody, KNOWN_METHODS, notHttp } from './raw-answer.ts'

declare module 'fastify' {
  interface FastifyInstance {
    /** Where it is reached by TLS; null: nowhere. */
    secure: SecureListener | null
  }
}

export interface SecureListener {
  readonly address: AddressInfo
  /** Where it listens, with a slash at the end. */
  readonly url: string
  /** Looks at the files now, whether they have changed or not. */
  reload(): Promise<void>
  /** Stops listening, and has all connections of the app end, as its own close does; resolves when they have. */
  close(): Promise<void>
}

export interface SecureOptions {
  readonly host: string
  readonly port: number
  /** How often the files are looked at, in milliseconds. Default 5 s. */
  readonly lookMs?: number | undefined
}

const LOOK_MS = 5000
/** From the connection to the end of the handshake. */
const HANDSHAKE_MS = 20_000

/**
 * Listens with the certificate that section `[ssl]` names, and takes another as soon as its files hold one; connections
 * that are open go on with the old one. HTTP/1.1 is served by the app's own server, as without TLS.
 * @throws StartError, an error of the operating system
 */
export async function listenSecurely(app: FastifyInstance, options: SecureOptions): Promise<SecureListener> {
  const state = await tlsFilesState(app.services.config)
  const pair = await readTlsPair(app.services.config)
  tellOf(app, pair)
  // Until then its routes have no hooks, those that ask for credentials among them.
  await app.ready()
  const server = createServer({
    ...pair,
    minVersion: 'TLSv1.2',
    ALPNProtocols: ['h2', 'http/1.1'],
    handshakeTimeout: HANDSHAKE_MS,
    // As Node's server for HTTP/1: a client that has said all may still listen.
    allowHalfOpen: true,
    // Likewise: else each small piece of an answer waits for the client's word that it has the one before, up to 40 ms.
    noDelay: true,
  })
  serve(server, app)
  await listen(server, options)
  const address = server.address() as AddressInfo
  const follower = new Follower(app, server, state)
  follower.begin(options.lookMs ?? LOOK_MS)
  const shown = address.family === 'IPv6' ? `[${address.address}]` : address.address
  app.secure = {
    address,
    url: `https://${shown}:${address.port}/`,
    reload: () => follower.load(),
    close: async () => {
      follower.end()
      const closed = once(server, 'close')
      server.close()
      // An app that has not come to listen ends none when it closes.
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
  // Connections count from their first packet: a handshake that is never finished takes the place of one, too.
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
    connectionTally.opened(socket)
    // Who has closed its side has gone: nobody waits for answers then, and what is held for them would be held for ever.
    socket.allowHalfOpen = false
    http2.emit('connection', socket)
  })
  // Node has closed it. What speaks no TLS is nobody's fault here.
  server.on('tlsClientError', () => undefined)
}

/** No two connections that are open have the same. */
function peerOf({ remoteAddress, remotePort, localAddress }: Socket | TLSSocket): string {
  return `${remoteAddress} ${remotePort} ${localAddress}`
}

/** Has the server take what the files hold. */
class Follower {
  readonly #app: FastifyInstance
  readonly #server: Server
  /** The files as they were when they were last loaded, or found at fault. */
  #loaded: string
  /** As the last look found them. */
  #seen: string
  #timer: NodeJS.Timeout | undefined
  #isAtWork = false

  constructor(app: FastifyInstance, server: Server, state: string) {
    this.#app = app
    this.#server = server
    this.#loaded = state
    this.#seen = state
  }

  begin(lookMs: number): void {
    this.#timer = setInterval(() => void this.#look(), lookMs)
    this.#timer.unref()
  }

  end(): void {
    clearInterval(this.#timer)
  }

  /** Takes what the files hold, if it serves; else the log says why not, and nothing changes. */
  async load(): Promise<void> {
    const { config, logger } = this.#app.services
    try {
      const pair = await readTlsPair(config)
      this.#server.setSecureContext({ ...pair, minVersion: 'TLSv1.2' })
      tellOf(this.#app, pair)
    } catch (error) {
      const reason = (error as Error).message
      logger.error({ reason }, 'the new TLS certificate cannot be used; the old one stays in use')
    }
  }

  /** A pair is replaced one file after the other: what has changed is taken when it stays as it is. */
  async #look(): Promise<void> {
    if (this.#isAtWork) return
    this.#isAtWork = true
    const now = await tlsFilesState(this.#app.services.config)
    const isSettled = now === this.#seen
    this.#seen = now
    if (isSettled && now !== this.#loaded) {
      this.#loaded = now
      await this.load()
    }
    this.#isAtWork = false
  }
}

function tellOf({ services: { logger } }: FastifyInstance, pair: TlsPair): void {
  const { names, validTo } = factsOf(pair)
  const until = new Date(validTo).toISOString()
  if (validTo > Date.now()) logger.info({ names, until }, 'the TLS certificate was loaded')
  else logger.error({ names, until }, 'the TLS certificate has expired; clients will refuse it')
}

// HTTP/2 over connections that somebody else has accepted.

/**
 * Requests that a connection may have under way: as many as a browser's windows have feeds, and few enough that their
 * answers fit in memory (RFC 9113 6.5.2 advises no fewer than a hundred).
 */
const MAX_STREAMS = 128
const CONNECTION_WINDOW = 1024 * 1024
/** Of a head that nghttp2 takes at all: those above {@link MAX_HEADER_BYTES} get an answer (client-errors.ts). */
const HEAD_LIST_BYTES = 2 * MAX_HEADER_BYTES
/** Twice as many as Node takes by HTTP/1: browsers send each cookie as one. */
const HEADERS = 2000
/**
 * Megabytes that answers of a connection may wait in. Node refuses new streams above it: a piece of 256 kB for each of
 * its streams must fit, or who takes many pictures at a time is refused the next.
 */
const SESSION_MB = 64

/**
 * Makes a server that hands its requests to the app. It listens nowhere: a connection is given to it as an event
 * `connection`. Whoever opens streams and cancels them at once, more than a thousand and then 33 a second, is cut off by
 * nghttp2 below (CVE-2023-44487); floods of other frames by Node, or by http2-messages.ts.
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

/** As HTTP/1 refuses them, whose parser takes no other (client-errors.ts). */
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
