/** Names and connections, before anything is said. */
import { lookup } from 'node:dns/promises'
import { connect, isIP } from 'node:net'
import type { Address } from '../../../core/address.ts'
import { codeOf } from '../client.ts'
import type { Reached } from '../findings/connection.ts'
import type { LookUpFacts } from '../findings/look-up.ts'
import { within } from '../within.ts'

/** Of a name with many addresses, no device tries more. */
const MAX_ADDRESSES = 8

/** Asks the system's resolver, as apps do, so that /etc/hosts and mDNS count. @param ms waited at the most */
export async function lookUp(host: string, ms: number): Promise<LookUpFacts> {
  if (isIP(host) !== 0) return { addresses: [host], ms: 0 }
  const started = performance.now()
  try {
    const found = await within(ms, lookup(host, { all: true, verbatim: true }))
    const addresses = [...new Set(found.map(({ address }) => address))].slice(0, MAX_ADDRESSES)
    return { addresses, ms: performance.now() - started }
  } catch (error) {
    return { failure: codeOf(error) }
  }
}

/** Connects to each address, all at once. @param ms waited at the most */
export function reachAll({ port }: Address, addresses: readonly string[], ms: number): Promise<Reached[]> {
  return Promise.all(addresses.map((to) => reach(to, port, ms)))
}

function reach(to: string, port: number, ms: number): Promise<Reached> {
  const started = performance.now()
  return new Promise((resolve) => {
    const socket = connect({ host: to, port })
    const timer = setTimeout(() => socket.destroy(Object.assign(new Error(), { code: 'TIMEOUT' })), ms)
    socket.once('connect', () => {
      resolve({ to, ms: performance.now() - started })
      socket.destroy()
    })
    socket.once('error', (error) => resolve({ to, failure: codeOf(error) }))
    socket.once('close', () => clearTimeout(timer))
  })
}
