import { isIPv6 } from 'node:net'

/**
 * The network of an IPv6 address: of its 128 bits a client has at least the last 64 to choose from (RFC 6177).
 * @returns the first four groups, as `2001:db8:1:2`; null for any other text
 */
export function ipv6Network(address: string): string | null {
  if (!isIPv6(address)) return null
  const [head = '', tail] = address.split('%', 1)[0]?.split('::') ?? []
  const groups = head.split(':').filter((group) => group !== '')
  const behind = tail === undefined ? [] : tail.split(':').filter((group) => group !== '')
  // The last group of a text may be an IPv4 address, which is two groups.
  const length = groups.length + behind.length + (address.includes('.') ? 1 : 0)
  const filled = tail === undefined ? groups : [...groups, ...Array<string>(8 - length).fill('0'), ...behind]
  return filled
    .slice(0, 4)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(':')
}
