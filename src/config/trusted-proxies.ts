/** The peers whose word about a client is taken: `settee/trusted_proxies`. */
import { isIP } from 'node:net'

/** Names that `@fastify/proxy-addr` has for well-known ranges. */
const RANGES = new Set(['loopback', 'linklocal', 'uniquelocal'])

/**
 * Reads a comma list of addresses, ranges (`10.0.0.0/8`) and the words loopback, linklocal and uniquelocal.
 * @returns its members, none for the empty text; null when one is nothing of these
 */
export function parseProxies(text: string): readonly string[] | null {
  if (text.trim() === '') return []
  const proxies = text.split(',').map((each) => each.trim())
  return proxies.every((each) => RANGES.has(each) || isRange(each)) ? proxies : null
}

function isRange(text: string): boolean {
  const [address = '', prefix, ...more] = text.split('/')
  const family = isIP(address)
  if (family === 0 || more.length > 0 || address.includes('%')) return false
  if (prefix === undefined) return true
  // A prefix of 0 would take everybody's word.
  return /^[1-9]\d{0,2}$/.test(prefix) && Number(prefix) <= (family === 4 ? 32 : 128)
}

/** @returns what is wrong with a value of the key, in words that follow its name; null when nothing is */
export function problemOfProxies(text: string): string | null {
  if (parseProxies(text) !== null) return null
  return 'must be a comma list of addresses, ranges like 10.0.0.0/8, or the words loopback, linklocal and uniquelocal'
}
