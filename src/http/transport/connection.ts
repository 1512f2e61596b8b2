/**
 * A connection as the server keeps it: its waiting requests, its network, and the address of its client. `connections.ts`
 * decides how long a connection lives, `request-turns.ts` when its requests are served.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { ServerHttp2Session, ServerHttp2Stream } from 'node:http2'
import { isIP, type Socket } from 'node:net'
import proxyAddr from '@fastify/proxy-addr'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { Config } from '../../config/config.ts'
import { parseProxies } from '../../config/value-rules.ts'
import { networkOf } from '../../core/network.ts'
import type { RequestGate } from './request-gate.ts'
import { TokenBucket } from './token-bucket.ts'

const CONNECTION = Symbol('connection')

interface Carrier {
  [CONNECTION]?: Connection
}

/** The HTTP/2 side of a connection. */
export interface Http2State {
  readonly session: ServerHttp2Session
  /** The streams that are open. */
  readonly streams: Set<ServerHttp2Stream>
  /** How many checks a ping has been without an answer. */
  unanswered: number
  /** Bytes of heads and bodies that were passed on. */
  usefulBytes: number
}

/** Credentials that were right. */
export interface ConnectionLogin {
  /** The headers that have them. */
  readonly authorization: string | undefined
  readonly cookie: string | undefined
  /** Whose they are. */
  readonly caller: Pick<FastifyRequest, 'user' | 'identity' | 'session'>
  /** The number of revocations before the check. */
  readonly revocations: number
  /** When they must be checked again, in milliseconds since 1970. */
  readonly until: number
  /** Whether nothing has changed that `revocations` does not count yet. */
  isCurrent(): boolean
}

export class Connection {
  socket: Socket
  /** Of the last request that was checked; null: none was, or the connection carries the requests of several clients. */
  login: ConnectionLogin | null = null
  /** null: the connection speaks HTTP/1. */
  http2: Http2State | null = null
  /** How many of its requests are under way. */
  requests = 0
  /** The connection is closed, or is about to be. */
  isClosed = false
  /** The setting that left no room for the connection, whose requests are refused. */
  exceededLimit: string | null = null
  /** The requests that wait; null without an address, and for a trusted proxy, whose clients have queues of their own. */
  queue: RequestQueue | null = null
  /** The peer is a trusted proxy. */
  isProxy = false
  /** At the last check, the client had not taken all of an answer. */
  isStalled = false
  /** Node's server for HTTP/1 reads the connection. */
  isHttp1 = false
  /** null: the connection is read as Node reads it. */
  gate: RequestGate | null = null

  constructor(socket: Socket) {
    this.socket = socket
    this.attachTo(socket)
  }

  /** @returns undefined for a socket without a connection, such as that of an injected request */
  static of(socket: object): Connection | undefined {
    return (socket as Carrier)[CONNECTION]
  }

  /** Makes {@link of} find the connection by this object, too. */
  attachTo(object: object): void {
    ;(object as Carrier)[CONNECTION] = this
  }

  /** Continues over TLS. */
  secure(socket: Socket): void {
    this.socket = socket
    this.attachTo(socket)
  }
}

interface WaitingRequest {
  readonly request: IncomingMessage
  readonly response: ServerResponse
}

/** The requests of one connection, or of one client of a trusted proxy, in their order. */
export class RequestQueue {
  readonly network: ClientNetwork
  /** null: the queue of a proxy's client, whose connection carries the requests of others, too. */
  readonly connection: Connection | null
  readonly waiting: WaitingRequest[] = []
  /** Whether none of the connection's requests was served yet. */
  isNew = true
  /** Whether what a new connection has sent waits unread. */
  isUnread = false
  #hasAccount = false
  /** How many requests were served in turn number `turn`. */
  served = 0
  turn = 0

  constructor(network: ClientNetwork, connection: Connection | null) {
    this.network = network
    this.connection = connection
  }

  /** Whether it has many requests at once by design: those of an HTTP/2 connection, or of a proxy's client. */
  get isShared(): boolean {
    return this.connection === null || this.connection.http2 !== null
  }

  /** Whether the last request that was authenticated had an account. */
  get hasAccount(): boolean {
    return this.#hasAccount
  }

  set hasAccount(hasAccount: boolean) {
    if (hasAccount === this.#hasAccount) return
    const { length } = this.waiting
    this.network.count(this, -length)
    this.#hasAccount = hasAccount
    this.network.count(this, length)
  }

  push(waiting: WaitingRequest): void {
    this.waiting.push(waiting)
    this.network.count(this, 1)
  }

  /** Takes the first request off. */
  shift(): WaitingRequest | undefined {
    const first = this.waiting.shift()
    if (first !== undefined) this.network.count(this, -1)
    return first
  }
}

/** How many networks without a connection are remembered: clients of a proxy, and those that have just left. */
const MAX_NETWORKS = 10_000
/**
 * An IPv4 address, or the /64 of an IPv6 address, which one household or one rented machine has to itself. A network has
 * its connections, its waiting requests, and tokens for requests whose account is not known.
 */
export class ClientNetwork {
  readonly name: string
  /** One for each of its connections. */
  readonly queues = new Set<RequestQueue>()
  /** For its requests that come through a trusted proxy: those without credentials, and those with some. */
  readonly proxied = { anonymous: new RequestQueue(this, null), claims: new RequestQueue(this, null) }
  /** How many of its requests wait in queues with an account, and in others. */
  readonly waiting = { known: 0, unknown: 0 }
  /** For requests without credentials, and what is not a request. */
  readonly anonymous = new TokenBucket()
  /**
   * For requests with credentials that are not checked yet, and for what comes first on a connection, which may be the
   * preflight of a request with credentials. Those with an account give their tokens back.
   */
  readonly claims = new TokenBucket()
  /** How many requests were served in turn number `turn`. */
  served = 0
  turn = 0
  /** Whether its connections are read one request at a time. */
  isCrowded = false

  constructor(name: string) {
    this.name = name
  }

  /** How many requests wait that have, or have not, an account as the queue has. */
  waitingLike({ hasAccount }: RequestQueue): number {
    return hasAccount ? this.waiting.known : this.waiting.unknown
  }

  /** Adds to the number of waiting requests. */
  count({ hasAccount }: RequestQueue, requests: number): void {
    if (hasAccount) this.waiting.known += requests
    else this.waiting.unknown += requests
  }

  get isIdle(): boolean {
    const { known, unknown } = this.waiting
    return this.queues.size === 0 && known + unknown === 0
  }
}

export class ClientNetworks {
  readonly #byName = new Map<string, ClientNetwork>()

  /** @param address an IP address */
  of(address: string): ClientNetwork {
    const name = networkOf(address)
    const known = this.#byName.get(name)
    if (known !== undefined) return known
    this.#removeOldest()
    const made = new ClientNetwork(name)
    this.#byName.set(name, made)
    return made
  }

  get size(): number {
    return this.#byName.size
  }

  /** A network with a connection or a request stays. */
  #removeOldest(): void {
    if (this.#byName.size < MAX_NETWORKS) return
    for (const [name, network] of this.#byName) {
      if (!network.isIdle) continue
      this.#byName.delete(name)
      return
    }
  }
}

declare module 'fastify' {
  interface FastifyInstance {
    /** Whether a peer with this address is a trusted proxy; follows the configuration. */
    trusts(address: string): boolean
  }
  interface FastifyRequest {
    /** The IP address of the peer, or the one that a trusted proxy names. X-Forwarded headers of other peers are ignored. */
    readonly address: string
  }
}

/** A port that some proxies leave on the address: `192.0.2.1:4711`, `[2001:db8::1]:4711`. */
const WITH_PORT = /^(?:\[([^\]]+)\]|([\d.]+))(?::\d+)?$/
const MAPPED = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i

/** @returns a function for Fastify's option `trustProxy`, which follows the configuration */
export function trustedProxies(config: Config): (address: string) => boolean {
  let text = ''
  let isTrusted = (_address: string): boolean => false
  return (address) => {
    const now = config.get('settee', 'trusted_proxies') ?? ''
    if (now !== text) {
      const proxies = parseProxies(now) ?? []
      const trust = proxies.length === 0 ? null : proxyAddr.compile([...proxies])
      isTrusted = (each) => trust?.(each, 0) ?? false
      text = now
    }
    return isTrusted(address)
  }
}

/** Adds `request.address`. The app must have been made with {@link trustedProxies} as its `trustProxy`. */
export function decorateAddress(app: FastifyInstance, trusts: (address: string) => boolean): void {
  app.decorate('trusts', trusts)
  app.decorateRequest('address', {
    getter() {
      return addressOf(this as FastifyRequest)
    },
  })
}

/** A trusted proxy may name something that is no address; the proxy itself is the client then. */
function addressOf(request: FastifyRequest): string {
  return plainAddress(request.ip) ?? plainAddress(peerOf(request)) ?? ''
}

/**
 * @param trusts whether a peer with this address is a trusted proxy
 * @returns the client's address, as `request.address`, for a request that is not routed yet
 */
export function clientOf(request: IncomingMessage, trusts: (address: string) => boolean): string {
  const named = plainAddress(proxyAddr(request, trusts))
  return named ?? plainAddress(request.socket.remoteAddress) ?? ''
}

function plainAddress(text: string | undefined): string | null {
  if (text === undefined) return null
  const [, inBrackets, before] = WITH_PORT.exec(text) ?? []
  const address = inBrackets ?? before ?? text
  if (isIP(address) === 0) return null
  return MAPPED.exec(address)?.[1] ?? address
}

function peerOf(request: FastifyRequest): string {
  return request.raw.socket.remoteAddress ?? ''
}

/** @returns whether the request came from a trusted proxy */
export function isFromProxy(request: FastifyRequest): boolean {
  return request.server.trusts(peerOf(request))
}

/** A header whose name can be configured in `[chttpd]`. */
function configuredHeader(
  request: FastifyRequest,
  key: string,
  usual: string,
): string | string[] | undefined {
  return request.headers[(request.server.services.config.get('chttpd', key) || usual).toLowerCase()]
}

/** A name or an address, and a port: what is safe in a `Location`. */
const HOST = /^(?:[\w.-]+|\[[0-9a-f:.]+\])(?::\d+)?$/i

/**
 * The name by which the client called this server: the header `Host`, or what a trusted proxy forwards (protocol.md 3.9).
 * @returns undefined without either
 */
export function hostOf(request: FastifyRequest): string | undefined {
  const { headers } = request
  const forwarded = configuredHeader(request, 'x_forwarded_host', 'X-Forwarded-Host')
  if (forwarded === undefined || !isFromProxy(request)) return headers.host
  const host = firstOf(forwarded)
  return HOST.test(host) ? host : headers.host
}

/** @returns whether the client uses TLS, either to this server or, as a trusted proxy states, to the proxy */
export function isSecure(request: FastifyRequest): boolean {
  const ssl = configuredHeader(request, 'x_forwarded_ssl', 'X-Forwarded-Ssl')
  const proto = configuredHeader(request, 'x_forwarded_proto', 'X-Forwarded-Proto')
  const isOwn = 'encrypted' in request.raw.socket && request.raw.socket.encrypted === true
  if ((ssl === undefined && proto === undefined) || !isFromProxy(request)) return isOwn
  return ssl === 'on' || firstOf(proto).toLowerCase() === 'https'
}

/** The value of the first proxy, in a header that several have added to. */
function firstOf(header: string | string[] | undefined): string {
  if (header === undefined) return ''
  const [first = ''] = String(header).split(',', 1)
  return first.trim()
}
