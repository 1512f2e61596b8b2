/**
 * Who is at the other end: the peer of the connection, or, where that is a proxy of ours (`settee/trusted_proxies`),
 * whom it names. Nobody else's X-Forwarded headers are looked at.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { isIP } from 'node:net'
import proxyAddr from '@fastify/proxy-addr'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { Config } from '../../config/config.ts'
import { parseProxies } from '../../config/value-rules.ts'
import { networkOf } from '../../core/network.ts'

declare module 'fastify' {
  interface FastifyInstance {
    /** Whether a peer of this address is a proxy whose word is taken; follows the configuration. */
    trusts(address: string): boolean
  }
  interface FastifyRequest {
    /** The client's IP address. */
    readonly address: string
  }
}

/** A port that some proxies leave on the address: `192.0.2.1:4711`, `[2001:db8::1]:4711`. */
const WITH_PORT = /^(?:\[([^\]]+)\]|([\d.]+))(?::\d+)?$/
const MAPPED = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i

/** @returns a function for Fastify's option `trustProxy`, which reads the configuration anew when it has changed */
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

/** What a proxy of ours says that is no address names nobody: then it is the proxy that asks. */
function addressOf(request: FastifyRequest): string {
  return plainAddress(request.ip) ?? plainAddress(peerOf(request)) ?? ''
}

/**
 * @returns whose request it is before it has come to a route: as `request.address` says
 * @param trusts whether a peer of this address is a proxy whose word is taken
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

/** @returns whether the request came from a proxy whose word is taken */
export function isFromProxy(request: FastifyRequest): boolean {
  return request.server.trusts(peerOf(request))
}

/** A header of the request whose name `[chttpd]` may change. */
function saidIn(request: FastifyRequest, key: string, usual: string): string | string[] | undefined {
  return request.headers[(request.server.services.config.get('chttpd', key) || usual).toLowerCase()]
}

/** A name or an address, and a port: what may stand in a `Location`. */
const HOST = /^(?:[\w.-]+|\[[0-9a-f:.]+\])(?::\d+)?$/i

/**
 * How the client named this server: in `Host`, or in what a trusted proxy says was there (protocol.md 3.9).
 * @returns undefined when neither is there
 */
export function hostOf(request: FastifyRequest): string | undefined {
  const { headers } = request
  const said = saidIn(request, 'x_forwarded_host', 'X-Forwarded-Host')
  if (said === undefined || !isFromProxy(request)) return headers.host
  const forwarded = firstOf(said)
  return HOST.test(forwarded) ? forwarded : headers.host
}

/** @returns whether the client's connection is TLS, or was up to a trusted proxy, as that says */
export function isSecure(request: FastifyRequest): boolean {
  const ssl = saidIn(request, 'x_forwarded_ssl', 'X-Forwarded-Ssl')
  const proto = saidIn(request, 'x_forwarded_proto', 'X-Forwarded-Proto')
  const isOwn = 'encrypted' in request.raw.socket && request.raw.socket.encrypted === true
  if ((ssl === undefined && proto === undefined) || !isFromProxy(request)) return isOwn
  return ssl === 'on' || firstOf(proto).toLowerCase() === 'https'
}

/** Of a header that several proxies have added to, what the first of them said. */
function firstOf(header: string | string[] | undefined): string {
  if (header === undefined) return ''
  const [first = ''] = String(header).split(',', 1)
  return first.trim()
}

// The networks that clients come from: an IPv4 address, or the /64 of an IPv6 address, which one household or one
// rented machine has to itself. Each has its connections, its requests that wait, and a token bucket for requests
// without an account.

/** How many networks are remembered that have no connection here: clients of a proxy, and those that went a moment ago. */
const REMEMBERED = 10_000
/** A bucket holds the tokens of so many seconds, and lacks no more. */
const BURST_S = 2

/** A request that has not been handed on yet. */
interface Waiting {
  readonly request: IncomingMessage
  readonly response: ServerResponse
}

/** What can stop reading a connection, and read on. */
export interface Gate {
  /** How many requests of the connection have no answer yet, those that wait among them. Idle when it is 0. */
  readonly requests: number
  /** Whether the connection may be paused at all: one that speaks HTTP/2 may not. */
  readonly canHold: boolean
  hold(): void
  release(): void
}

/** The requests of one connection, or of one client of a trusted proxy, in their order. */
export class Lane {
  readonly network: ClientNetwork
  /** null: a client of a proxy, whose connection carries others' requests, too. */
  readonly gate: Gate | null
  readonly waiting: Waiting[] = []
  /** Whether the last request that said who asks had an account. */
  isKnown = false
  /** How many were served in the turn of this number. */
  served = 0
  turn = 0

  constructor(network: ClientNetwork, gate: Gate | null) {
    this.network = network
    this.gate = gate
  }

  get canHold(): boolean {
    return this.gate?.canHold ?? false
  }
}

export class ClientNetwork {
  readonly name: string
  /** Of its connections. */
  readonly lanes = new Set<Lane>()
  /** For its requests that come through a trusted proxy. */
  readonly proxied = new Lane(this, null)
  /** How many of its requests wait. */
  waiting = 0
  /** How many were served in the turn of this number. */
  served = 0
  turn = 0
  /** Whether connections without an account, or all, are not read at present. */
  held: 'none' | 'strangers' | 'all' = 'none'
  #tokens = Infinity
  #filledAt = 0

  constructor(name: string) {
    this.name = name
  }

  /**
   * Takes a token for a request without an account.
   * @param rate tokens that come back in a second; 0: nothing is counted
   * @param now in milliseconds
   * @returns false when there is none
   */
  take(rate: number, now: number): boolean {
    if (this.tokens(rate, now) < 1) return false
    this.#tokens -= 1
    return true
  }

  /** Takes a token even where there is none: for what cannot wait. */
  charge(): void {
    this.#tokens -= 1
  }

  /** Gives one back, of a request that turned out to have an account. */
  refund(): void {
    this.#tokens += 1
  }

  /** @returns how many tokens there are; below 0 when more were charged than there were */
  tokens(rate: number, now: number): number {
    if (rate === 0) return Infinity
    const back = ((now - this.#filledAt) * rate) / 1000
    // A debt has an end, too: whoever shares the address pays for it as well.
    this.#tokens = Math.min(rate * BURST_S, Math.max(-rate * BURST_S, this.#tokens) + back)
    this.#filledAt = now
    return this.#tokens
  }

  get isIdle(): boolean {
    return this.lanes.size === 0 && this.waiting === 0
  }
}

export class ClientNetworks {
  readonly #byName = new Map<string, ClientNetwork>()

  /** @param address an IP address */
  of(address: string): ClientNetwork {
    const name = networkOf(address)
    const known = this.#byName.get(name)
    if (known !== undefined) return known
    this.#makeRoom()
    const made = new ClientNetwork(name)
    this.#byName.set(name, made)
    return made
  }

  get size(): number {
    return this.#byName.size
  }

  /** Those that came first go first. One that is used has a connection or a request, and stays. */
  #makeRoom(): void {
    if (this.#byName.size < REMEMBERED) return
    for (const [name, network] of this.#byName) {
      if (!network.isIdle) continue
      this.#byName.delete(name)
      return
    }
  }
}
