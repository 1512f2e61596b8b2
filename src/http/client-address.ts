/**
 * Who is at the other end: the peer of the connection, or, where that is a proxy of ours (`settee/trusted_proxies`),
 * whom it names. Nobody else's X-Forwarded headers are looked at.
 */
import type { IncomingMessage } from 'node:http'
import { isIP } from 'node:net'
import proxyAddr from '@fastify/proxy-addr'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { Config } from '../config/config.ts'
import { parseProxies } from '../config/trusted-proxies.ts'

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
