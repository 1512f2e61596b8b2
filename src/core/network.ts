import { isIPv6 } from 'node:net'

const MAPPED = /^::ffff:(\d+\.\d+\.\d+\.\d+)(?:%.*)?$/i

/**
 * The network that counts as one client. A client chooses at least the last 64 bits of its IPv6 address freely
 * (RFC 6177).
 * @returns an IPv4 address itself, also if it is mapped to IPv6; for any other IPv6 address its network, such as
 *   `2001:db8:1:2::/64`; any other text unchanged
 */
export function networkOf(address: string): string {
  const mapped = MAPPED.exec(address)?.[1]
  if (mapped !== undefined) return mapped
  const network = ipv6Network(address)
  return network === null ? address : `${network}::/64`
}

const LOOPBACK = /^(?:localhost|.*\.localhost|127\.\d+\.\d+\.\d+|::1|::ffff:127\..*)\.?$/i

/** @param host a name or an address without brackets @returns whether it is this machine itself */
export function isLoopback(host: string): boolean {
  return LOOPBACK.test(host)
}

/** The key of a client without an account in counts by client. */
export function addressKey(address: string): string {
  return `@${networkOf(address)}`
}

/** @returns the first four groups of an IPv6 address; null for any other text */
function ipv6Network(address: string): string | null {
  if (!isIPv6(address)) return null
  const [head = '', tail] = address.split('%', 1)[0]?.split('::') ?? []
  const groups = head.split(':').filter((group) => group !== '')
  const behind = tail === undefined ? [] : tail.split(':').filter((group) => group !== '')
  // An IPv4 address at the end counts as two groups.
  const length = groups.length + behind.length + (address.includes('.') ? 1 : 0)
  const filled = tail === undefined ? groups : [...groups, ...Array<string>(8 - length).fill('0'), ...behind]
  return filled
    .slice(0, 4)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(':')
}
