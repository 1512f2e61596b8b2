/** Checks the address itself, its name in DNS, and whether its port is open. */
import { lookup } from 'node:dns/promises'
import { connect, isIP } from 'node:net'
import { type Address, type AddressResult, parseAddress } from '../core/address.ts'
import { isLoopback } from '../core/network.ts'
import type { CheckContext } from './advice.ts'
import { codeOf, withTimeout } from './doctor-client.ts'
import { adviceToUser, describeFailure, type Finding, fine, note, wrong } from './finding.ts'

/** The result of checking the address before anything is sent. */
interface AddressCheck {
  /** null: not usable for further checks. */
  readonly address: Address | null
  readonly findings: readonly Finding[]
}

/**
 * @param text may hold a password, so it is never printed
 * @param mobile whether phones must be able to use the address
 */
export function checkAddress(text: string, mobile: boolean): AddressCheck {
  const strict = parseAddress(text, { mobile })
  const found = strict.ok ? strict : parseAddress(text)
  const findings = faultsOf(strict)
  if (!found.ok) return { address: null, findings }
  return { address: found.address, findings: strict.ok ? [checkScheme(found.address)] : findings }
}

function faultsOf(result: AddressResult): Finding[] {
  return result.ok
    ? []
    : result.faults.map(({ reason, mend }) => wrong('address', reason, adviceToUser(mend)))
}

function checkScheme({ scheme, host, url, password }: Address): Finding {
  if (scheme === 'https' || isLoopback(host)) return fine('address', url)
  const what = password === undefined ? 'the notes' : 'the password and the notes'
  return note(
    'address',
    `${url} is http: anyone on the network path can read ${what}, and phones refuse it.`,
    adviceToUser('Put TLS in front of the server, and use https://.'),
  )
}

/** The result of the system's resolver. */
export type LookUpFacts =
  | { readonly addresses: readonly string[]; readonly ms: number }
  | { readonly failure: string }

/** RFC 1918, 3927, 6598, 4193 and 4291. */
const PRIVATE =
  /^(?:10\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|169\.254\.|100\.(?:6[4-9]|[7-9]\d|1[01]\d|12[0-7])\.|f[cd]|fe[89ab])/i
const SLOW_MS = 1500

function isPrivate(address: string): boolean {
  return PRIVATE.test(address)
}

/** Checks whether the name has an address, and with `mobile` whether a phone can reach it. */
export function checkLookUp(facts: LookUpFacts, { address, mobile, quote }: CheckContext): Finding {
  const { host } = address
  if ('failure' in facts)
    return wrong('look-up', describeLookUpFailure(host, facts.failure, quote), lookUpCure(facts))
  const { addresses, ms } = facts
  if (mobile && addresses.every(isLoopback)) {
    return wrong(
      'look-up',
      `${host} is ${addresses.join(', ')}: on a phone, that is the phone itself.`,
      adviceToUser("Use the server's name or address in the phone's network."),
    )
  }
  if (mobile && addresses.every((each) => isPrivate(each) || isLoopback(each))) {
    const text = `${host} is ${addresses.join(', ')}: phones reach it only in this network or through a VPN.`
    return note('look-up', text)
  }
  if (ms > SLOW_MS) {
    return note('look-up', `Looking up ${host} took ${(ms / 1000).toFixed(1)} s: every device waits for it.`)
  }
  return fine(
    'look-up',
    isIP(host) === 0 ? `${host} is ${addresses.join(', ')}.` : `${host} needs no look-up.`,
  )
}

function describeLookUpFailure(host: string, code: string, quote: CheckContext['quote']): string {
  if (code === 'ENOTFOUND') return `The name ${host} does not exist.`
  if (code === 'EAI_AGAIN' || code === 'TIMEOUT') return `The name server did not answer for ${host}.`
  return `${host} cannot be looked up: ${describeFailure(code, quote)}.`
}

function lookUpCure({ failure }: { readonly failure: string }) {
  return failure === 'ENOTFOUND'
    ? adviceToUser('Check its spelling, and create a DNS record A or AAAA for it.')
    : adviceToUser("Check this machine's network and its name server (/etc/resolv.conf).")
}

/** The result of connecting to one address of the name. */
type ConnectResult =
  | { readonly to: string; readonly ms: number }
  | { readonly to: string; readonly failure: string }

/** Checks the connections: each address of the name should lead to the server. */
export function checkConnection(
  reached: readonly ConnectResult[],
  { address, quote }: CheckContext,
): Finding {
  const open = reached.flatMap((each) => ('ms' in each ? [each] : []))
  const lost = reached.flatMap((each) => ('failure' in each ? [each] : []))
  const untried = lost.filter(isIpv6Missing)
  const closed = open.length === 0 ? lost : lost.filter((each) => !isIpv6Missing(each))
  const failures = closed.map(({ to, failure }) => `${to}: ${describeFailure(failure, quote)}`).join('; ')
  if (open.length === 0) {
    return wrong(
      'connection',
      `Port ${address.port} cannot be reached: ${failures}.`,
      adviceToUser(connectionCure(lost, untried)),
    )
  }
  if (closed.length > 0) {
    return note(
      'connection',
      `Some addresses of the name do not answer: ${failures}. Devices that try these first have to wait.`,
      adviceToUser('Delete the DNS records of these addresses, or make the server listen there.'),
    )
  }
  const slowest = Math.max(...open.map(({ ms }) => ms))
  const more =
    untried.length === 0 ? '' : ` Not tried: ${untried.map(({ to }) => to).join(', ')}; ${NO_IPV6}.`
  return fine('connection', `Port ${address.port} is open (${Math.round(slowest)} ms).${more}`)
}

type ConnectFailure = Extract<ConnectResult, { failure: string }>

/** Whether this machine has no IPv6, which is common, and not a fault of the server. */
function isIpv6Missing({ to, failure }: ConnectFailure): boolean {
  return isIP(to) === 6 && /^(?:ENETUNREACH|EADDRNOTAVAIL|EAFNOSUPPORT)$/.test(failure)
}

function connectionCure(lost: readonly ConnectFailure[], untried: readonly ConnectFailure[]): string {
  if (untried.length === lost.length)
    return `Check from another machine, because ${NO_IPV6}; for devices like it, create a DNS record A.`
  return lost.every(({ failure }) => failure === 'ECONNREFUSED') ? REFUSED : SILENT
}

const NO_IPV6 = 'this machine has no IPv6'
const REFUSED =
  'Start the server or proxy, check the port, and make it listen on more than 127.0.0.1 (settee serve --bind 0.0.0.0).'
const SILENT = 'Open the port in the firewall, and forward it in the router.'

/** How many addresses are tried at most; devices have a limit, too. */
const MAX_ADDRESSES = 8

/** Uses the system's resolver, as apps do, which includes /etc/hosts and mDNS. @param ms time-out */
export async function lookUp(host: string, ms: number): Promise<LookUpFacts> {
  if (isIP(host) !== 0) return { addresses: [host], ms: 0 }
  const started = performance.now()
  try {
    const found = await withTimeout(ms, lookup(host, { all: true, verbatim: true }))
    const addresses = [...new Set(found.map(({ address }) => address))].slice(0, MAX_ADDRESSES)
    return { addresses, ms: performance.now() - started }
  } catch (error) {
    return { failure: codeOf(error) }
  }
}

/** Connects to all addresses at the same time. @param ms time-out */
export function connectToAll(
  { port }: Address,
  addresses: readonly string[],
  ms: number,
): Promise<ConnectResult[]> {
  return Promise.all(addresses.map((to) => connectTo(to, port, ms)))
}

function connectTo(to: string, port: number, ms: number): Promise<ConnectResult> {
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
