/** What `settee serve` may be told of its own TLS. */
import type { ConfigFlags } from '../config/sources.ts'
import type { Values } from './grammar.ts'
import { UsageError } from './usage-error.ts'

export const TLS_OPTIONS = {
  'tls-cert': { type: 'string' },
  'tls-key': { type: 'string' },
  'tls-port': { type: 'string' },
  'tls-bind': { type: 'string' },
} as const

/**
 * Reads them.
 * @throws UsageError
 */
export function tlsFlags(values: Values<typeof TLS_OPTIONS>): ConfigFlags {
  const { 'tls-cert': cert, 'tls-key': key, 'tls-port': port, 'tls-bind': bind } = values
  // The server would start without TLS, and nobody would see it.
  if (key !== undefined && cert === undefined) throw new UsageError('--tls-key wants --tls-cert beside it.')
  const flags: ConfigFlags = {}
  if (cert !== undefined) flags.tlsCert = cert
  if (key !== undefined) flags.tlsKey = key
  if (port !== undefined) flags.tlsPort = portOf('tls-port', port)
  if (bind !== undefined) flags.tlsBind = bind
  return flags
}

/**
 * @param name of the option that the text was given with
 * @throws UsageError for what is no number of a port
 */
export function portOf(name: string, text: string): number {
  if (!/^\d{1,5}$/.test(text) || Number(text) > 65_535) {
    throw new UsageError(`--${name} must be a whole number from 0 to 65535, not "${text}".`)
  }
  return Number(text)
}
