/**
 * Which addresses a replication may reach: for everybody but server admins no loopback, link-local or private ones, so
 * that nobody reaches through this server what only this server can reach.
 */
import { type LookupAddress, type LookupOptions, lookup } from 'node:dns'
import { lookup as resolve } from 'node:dns/promises'
import { BlockList, isIP, type LookupFunction } from 'node:net'

/** IANA's special-purpose address registries (RFC 6890), multicast and the unassigned rest of IPv4 included. Of IPv6 see {@link PUBLIC}. */
const PRIVATE: readonly (readonly [network: string, prefix: number])[] = [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.0.0.0', 24],
  ['192.0.2.0', 24],
  ['192.168.0.0', 16],
  ['198.18.0.0', 15],
  ['198.51.100.0', 24],
  ['203.0.113.0', 24],
  ['224.0.0.0', 3],
  // Of what is assigned in 2000::/3: protocols such as Teredo, documentation, and 6to4, which leads to IPv4 addresses.
  ['2001::', 23],
  ['2001:db8::', 32],
  ['2002::', 16],
  ['3fff::', 20],
]

/** IPv4 addresses as IPv6 ones (RFC 4291 2.5.5.2), to which the rules for IPv4 apply. */
const MAPPED = ['::ffff:0:0', 96] as const
/** The only part of IPv6 that is assigned to the public internet (RFC 4291 2.4). */
const PUBLIC = ['2000::', 3] as const

const isMapped = new BlockList()
isMapped.addSubnet(...MAPPED, 'ipv6')
const isAssigned = new BlockList()
isAssigned.addSubnet(...PUBLIC, 'ipv6')

const blocked = new BlockList()
for (const [network, prefix] of PRIVATE) {
  blocked.addSubnet(network, prefix, network.includes(':') ? 'ipv6' : 'ipv4')
}

/** Whether an IP address belongs to a private network, or is not one of the public internet. */
export function isPrivateAddress(address: string): boolean {
  const [bare = ''] = address.split('%', 1)
  const family = isIP(bare)
  if (family === 0) return true
  if (family === 4) return blocked.check(bare, 'ipv4')
  return blocked.check(bare, 'ipv6') || !(isMapped.check(bare, 'ipv6') || isAssigned.check(bare, 'ipv6'))
}

/** A name, or a literal address, leads to a private network. */
export class PrivateAddressError extends Error {
  readonly code = 'EPRIVATE'
}

/** @param hostname as in a URL, an IPv6 address with brackets @throws PrivateAddressError for a literal private address */
export function checkLiteralAddress(hostname: string): void {
  const bare = hostname.replace(/^\[(.*)\]$/, '$1')
  if (isIP(bare) !== 0 && isPrivateAddress(bare)) throw new PrivateAddressError(bare)
}

/** Whether a name, or a literal address, leads to a private network. @param hostname as in a URL */
export async function isPrivateHost(hostname: string): Promise<boolean> {
  const bare = hostname.replace(/^\[(.*)\]$/, '$1')
  if (isIP(bare) !== 0) return isPrivateAddress(bare)
  const found = await resolve(bare, { all: true }).catch(() => [])
  return found.some(({ address }) => isPrivateAddress(address))
}

/** Resolves a name like `dns.lookup`, and fails if any of its addresses is private. The connection uses the result. */
export const publicLookup: LookupFunction = (hostname, options, callback) => {
  const asked: LookupOptions = { ...options, all: true }
  lookup(hostname, asked as LookupOptions & { all: true }, (error, found: LookupAddress[]) => {
    if (error !== null) {
      callback(error, [])
      return
    }
    const [first] = found
    if (first === undefined || found.some(({ address }) => isPrivateAddress(address))) {
      callback(new PrivateAddressError(hostname), [])
      return
    }
    if (options.all) callback(null, found)
    else callback(null, first.address, first.family)
  })
}
