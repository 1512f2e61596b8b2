import { isIP } from 'node:net'
import { type Finding, fine, note, toYou, wrong } from '../finding.ts'
import { toldFailure } from '../quote.ts'
import type { Scene } from '../scene.ts'

/** What became of a connection to each address of the name. */
export type Reached =
  | { readonly to: string; readonly ms: number }
  | { readonly to: string; readonly failure: string }

/** Judges who could be connected to; a name with several addresses should lead to a server by each of them. */
export function judgeConnection(reached: readonly Reached[], { address, quote }: Scene): Finding {
  const open = reached.flatMap((each) => ('ms' in each ? [each] : []))
  const lost = reached.flatMap((each) => ('failure' in each ? [each] : []))
  const untried = lost.filter(hasNoWay)
  const closed = open.length === 0 ? lost : lost.filter((each) => !hasNoWay(each))
  const failures = closed.map(({ to, failure }) => `${to}: ${toldFailure(failure, quote)}`).join('; ')
  if (open.length === 0) {
    return wrong(
      'connection',
      `Port ${address.port} cannot be reached: ${failures}.`,
      toYou(cureOf(lost, untried)),
    )
  }
  if (closed.length > 0) {
    return note(
      'connection',
      `Some addresses of the name lead nowhere: ${failures}. Devices that try these first wait.`,
      toYou('Delete the DNS records of these addresses, or let the server listen there.'),
    )
  }
  const slowest = Math.max(...open.map(({ ms }) => ms))
  const more =
    untried.length === 0 ? '' : ` Not tried: ${untried.map(({ to }) => to).join(', ')}; ${NO_IPV6}.`
  return fine('connection', `Port ${address.port} is open (${Math.round(slowest)} ms).${more}`)
}

type Lost = Extract<Reached, { failure: string }>

/** Whether it is this machine that cannot: many have no IPv6, and no fault of the server's shows. */
function hasNoWay({ to, failure }: Lost): boolean {
  return isIP(to) === 6 && /^(?:ENETUNREACH|EADDRNOTAVAIL|EAFNOSUPPORT)$/.test(failure)
}

function cureOf(lost: readonly Lost[], untried: readonly Lost[]): string {
  if (untried.length === lost.length)
    return `Look from another machine, since ${NO_IPV6}; for devices like it make a DNS record A.`
  return lost.every(({ failure }) => failure === 'ECONNREFUSED') ? REFUSED : SILENT
}

const NO_IPV6 = 'this machine has no IPv6'
const REFUSED =
  'Start the server or proxy, look at the port, and let it listen for others than 127.0.0.1 (settee serve --bind 0.0.0.0).'
const SILENT = 'Open the port in the firewall, and forward it in the router.'
