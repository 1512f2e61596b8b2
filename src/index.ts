/** The package's face, for those who embed settee in a program of their own. */
import { resolve } from 'node:path'
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
}

/**
 * Starts a server on a data folder that no other holds.
 * @throws Error with one clear line as its message when it cannot start
 */
export function createServer(options: CreateServerOptions = {}): Promise<RunningServer> {
  const { dataDir = 'data', port, bind, logLevel } = options
  const flags = {
    ...(port !== undefined && { port }),
    ...(bind !== undefined && { bind }),
    ...(logLevel !== undefined && { logLevel }),
  }
  return startServer({ dataDir: resolve(dataDir), env: {}, flags })
}
