/**
 * The client's address: that of the connection's peer, or the one that a trusted proxy (`settee/trusted_proxies`) names.
 * X-Forwarded headers of any other peer are ignored.
 */
import type { IncomingMessage } from 'node:http'
import { isIP } from 'node:net'
import proxyAddr from '@fastify/proxy-addr'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { Config } from '../../config/config.ts'
import { parseProxies } from '../../config/value-rules.ts'

declare module 'fastify' {
  interface FastifyInstance {
    /** Whether a peer with this address is a trusted proxy; follows the configuration. */
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
