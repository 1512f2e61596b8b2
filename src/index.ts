/** The package's face, for those who embed settee in a program of their own. */
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
// The address rule, also by itself as `settee/address`, which loads no server.
export { formatAddress, parseAddress }

export interface CreateServerOptions {
  /** Where the databases are kept. Default `./data`. */
  readonly dataDir?: string
  /** Default 5984; 0 takes a free one. */
  readonly port?: number
  /** Default 127.0.0.1. */
  readonly bind?: string
  /** A level of `log/level`, such as `info` or `debug`. */
  readonly logLevel?: string
  /** Speaks TLS as well, by HTTP/2 and HTTP/1.1. Default: `[ssl]` of `local.ini` in the data folder. */
  readonly tls?: TlsOptions
}

export interface TlsOptions {
  /** Path of a PEM file: the certificate, and those between it and the root after it; taken anew when it changes. */
  readonly cert: string
  /** Path of a PEM file: the certificate's key. */
  readonly key: string
  /** Default 6984; 0 takes a free one. */
  readonly port?: number
  /** Default: as `bind`. */
  readonly bind?: string
}

/**
 * Starts a server on a data folder that no other holds.
 * @throws Error with one clear line as its message when it cannot start
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
