/** The package's API, for programs that embed settee. */
import { resolve } from 'node:path'
import type { ConfigFlags } from './config/sources.ts'
import {
  type Address,
  type AddressFault,
  type AddressParts,
  type AddressResult,
  formatAddress,
  parseAddress,
} from './core/address.ts'
import { type RunningServer, startServer } from './server.ts'

export type { Address, AddressFault, AddressParts, AddressResult }
// Also exported as `settee/address`, which does not load the server.
export { formatAddress, parseAddress }

export interface CreateServerOptions {
  /** The data folder. Default `./data`. */
  readonly dataDir?: string
  /** Default 5984; 0 picks a free one. */
  readonly port?: number
  /** Default 127.0.0.1. */
  readonly bind?: string
  /** A level of `log/level`, such as `info` or `debug`. */
  readonly logLevel?: string
  /** TLS with HTTP/2 and HTTP/1.1, beside the plain port. Default: `[ssl]` of `local.ini` in the data folder. */
  readonly tls?: TlsOptions
}

export interface TlsOptions {
  /** Path of a PEM file: the certificate, then intermediate certificates. It is reloaded when it changes. */
  readonly cert: string
  /** Path of a PEM file with the certificate's key. */
  readonly key: string
  /** Default 6984; 0 picks a free one. */
  readonly port?: number
  /** Default: as `bind`. */
  readonly bind?: string
}

/**
 * Starts a server on a data folder that no other server uses.
 * @throws Error with one clear line as its message if it cannot start
 */
export function createServer(options: CreateServerOptions = {}): Promise<RunningServer> {
  const { dataDir = 'data', port, bind, logLevel, tls } = options
  const flags = {
    ...(port !== undefined && { port }),
    ...(bind !== undefined && { bind }),
    ...(logLevel !== undefined && { logLevel }),
    ...(tls !== undefined && tlsFlags(tls)),
  }
  return startServer({ dataDir: resolve(dataDir), env: {}, flags })
}

function tlsFlags({ cert, key, port, bind }: TlsOptions): ConfigFlags {
  return {
    tlsCert: resolve(cert),
    tlsKey: resolve(key),
    ...(port !== undefined && { tlsPort: port }),
    ...(bind !== undefined && { tlsBind: bind }),
  }
}
