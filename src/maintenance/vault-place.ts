/** Where devices reach a server, as far as it can tell by itself. */
import { bindAddress, secureBindAddress } from '../config/bind-address.ts'
import type { Config } from '../config/config.ts'
import { certificateHosts, isTlsEnabled } from '../config/tls-files.ts'

/** A server's own addresses, each with a slash at the end. */
export interface Listening {
  readonly url: string
  /** By its own TLS; null: it speaks none. */
  readonly secureUrl: string | null
}

const LOOPBACK = /^(?:127\.|localhost\.?$|::1$)/

/** @param host of a URL: an IPv6 address in brackets or without */
export function isThisMachine(host: string): boolean {
  return LOOPBACK.test(host.replace(/[[\]]/g, ''))
}

/**
 * Where settee speaks TLS itself, by TLS, since phones take nothing else: under a name of its certificate, the only
 * ones under which clients trust it. Where that names none that leads to where it listens, without.
 * @param listening null: none runs, and the configuration says where it would
 * @returns with a slash at the end
 */
export async function ownUrl(config: Config, listening: Listening | null): Promise<string> {
  const { url, secureUrl } = listening ?? configured(config)
  if (secureUrl === null) return url
  const { hostname, port } = /^https:\/\/(?<hostname>.*):(?<port>\d+)\/$/.exec(secureUrl)?.groups ?? {}
  const isHere = isThisMachine(hostname ?? '')
  const named = (await certificateHosts(config)).find((host) => isThisMachine(host) === isHere)
  return named === undefined ? url : `https://${named}:${port}/`
}

function configured(config: Config): Listening {
  const at = (host: string) => (host.includes(':') ? `[${host}]` : host)
  return {
    url: `http://${at(bindAddress(config))}:${config.integer('chttpd', 'port')}/`,
    secureUrl: isTlsEnabled(config)
      ? `https://${at(secureBindAddress(config))}:${config.integer('ssl', 'port')}/`
      : null,
  }
}
