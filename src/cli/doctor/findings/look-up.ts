import { isIP } from 'node:net'
import { type Finding, fine, note, toYou, wrong } from '../finding.ts'
import { toldFailure } from '../quote.ts'
import type { Scene } from '../scene.ts'

/** What the system's resolver said of the host. */
export type LookUpFacts =
  | { readonly addresses: readonly string[]; readonly ms: number }
  | { readonly failure: string }

const LOOPBACK = /^(?:localhost|.*\.localhost|127\.\d+\.\d+\.\d+|::1|::ffff:127\..*)\.?$/i
/** RFC 1918, 3927, 6598, 4193 and 4291. */
const PRIVATE =
  /^(?:10\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|169\.254\.|100\.(?:6[4-9]|[7-9]\d|1[01]\d|12[0-7])\.|f[cd]|fe[89ab])/i
const SLOW_MS = 1500

export function isLoopback(host: string): boolean {
  return LOOPBACK.test(host)
}

export function isPrivate(address: string): boolean {
  return PRIVATE.test(address)
}

/** Judges whether the name leads anywhere, and with `mobile` whether it does so from a phone. */
export function judgeLookUp(facts: LookUpFacts, { address, mobile, quote }: Scene): Finding {
  const { host } = address
  if ('failure' in facts) return wrong('look-up', failed(host, facts.failure, quote), failureCure(facts))
  const { addresses, ms } = facts
  if (mobile && addresses.every(isLoopback)) {
    return wrong(
      'look-up',
      `${host} is ${addresses.join(', ')}: on a phone that is the phone itself.`,
      toYou("Give the phone the server's name or address in its network."),
    )
  }
  if (mobile && addresses.every((each) => isPrivate(each) || isLoopback(each))) {
    const text = `${host} is ${addresses.join(', ')}: phones reach it in this network, or by a VPN, only.`
    return note('look-up', text)
  }
  if (ms > SLOW_MS) {
    return note('look-up', `Looking up ${host} took ${(ms / 1000).toFixed(1)} s: every device waits for it.`)
  }
  return fine('look-up', isIP(host) === 0 ? `${host} is ${addresses.join(', ')}.` : `${host} needs none.`)
}

function failed(host: string, code: string, quote: Scene['quote']): string {
  if (code === 'ENOTFOUND') return `Nobody knows the name ${host}.`
  if (code === 'EAI_AGAIN' || code === 'TIMEOUT') return `The name server did not answer for ${host}.`
  return `${host} cannot be looked up: ${toldFailure(code, quote)}.`
}

function failureCure({ failure }: { readonly failure: string }) {
  return failure === 'ENOTFOUND'
    ? toYou('Look at its spelling, and make a DNS record A or AAAA for it.')
    : toYou("Look at this machine's network and its name server (/etc/resolv.conf).")
}
