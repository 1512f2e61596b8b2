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
  const closed = reached.flatMap((each) => ('failure' in each ? [each] : []))
  const failures = closed.map(({ to, failure }) => `${to}: ${toldFailure(failure, quote)}`).join('; ')
  if (open.length === 0) {
    return wrong(
      'connection',
      `Port ${address.port} cannot be reached: ${failures}.`,
      toYou(closed.every(({ failure }) => failure === 'ECONNREFUSED') ? REFUSED : SILENT),
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
  return fine('connection', `Port ${address.port} is open (${Math.round(slowest)} ms).`)
}

const REFUSED =
  'Start the server or proxy, look at the port, and let it listen for others than 127.0.0.1 (settee serve --bind 0.0.0.0).'
const SILENT = 'Open the port in the firewall, and forward it in the router.'
