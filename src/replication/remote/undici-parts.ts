/**
 * The parts of undici that replications need. All of undici at once would take a turn of 0.1 s and 30 MB, mostly for fetch,
 * WebSocket and caches. The parts are loaded in turns of their own, and take half of the memory. They are no public entry
 * points, so the version of undici is exact.
 */
import { createRequire } from 'node:module'
import type { Socket } from 'node:net'
import { setImmediate as turn } from 'node:timers/promises'
import type { TLSSocket } from 'node:tls'
import type {
  buildConnector as connectorOf,
  Dispatcher,
  Pool as PoolClass,
  ProxyAgent as ProxyClass,
} from 'undici'

type RequestOptions = Dispatcher.DispatchOptions & Dispatcher.RequestOptions

const require = createRequire(import.meta.url)
await import('node:http2')
for (const part of ['core/util', 'core/request', 'dispatcher/client-h1', 'dispatcher/client']) {
  await turn()
  require(`undici/lib/${part}.js`)
}

/** A proxy's tunnels need this method, which undici's entry point adds to every dispatcher. */
require('undici/lib/dispatcher/dispatcher.js').prototype.connect = require('undici/lib/api/api-connect.js')

export const buildConnector: typeof connectorOf = require('undici/lib/core/connect.js')
export const Pool: typeof PoolClass = require('undici/lib/dispatcher/pool.js')
export const ProxyAgent: typeof ProxyClass = require('undici/lib/dispatcher/proxy-agent.js')

/** @returns a connector that shows each socket that another one has connected, before its user has it */
export function onConnected(
  connect: connectorOf.connector,
  show: (socket: Socket | TLSSocket, asked: connectorOf.Options) => void,
): connectorOf.connector {
  return (asked, callback) => {
    connect(asked, (...found) => {
      // undici passes no socket with an error, though its types say null.
      const socket = found[1] as Socket | TLSSocket | null | undefined
      if (socket) show(socket, asked)
      callback(...found)
    })
  }
}

/** Sends a request. */
export const request: (this: Dispatcher, options: RequestOptions) => Promise<Dispatcher.ResponseData> =
  require('undici/lib/api/api-request.js')
