/** What the facts of a diagnosis mean. Pure: one finding, the first that stands in the way. */
import type { Address, AddressFault } from '../../../../src/core/address.ts'
import { MOBILE_FUNCTION } from '../sync/mobile.ts'
import type { Check, Diagnosis, Finding } from './finding.ts'
import type { Answer, Probes } from './probes.ts'

const CHECKS = [
  'Address',
  'Connection',
  'Web access (CORS)',
  'Account',
  'Database',
  'Mobile filter',
  'Live feed',
]

/** What is wrong with a text that is no Address. */
export function addressVerdict(faults: readonly AddressFault[]): Diagnosis {
  return { checks: checksUpTo('Address', new Set()), finding: addressFinding(faults) }
}

export function addressFinding(faults: readonly AddressFault[]): Finding {
  const [first] = faults
  return {
    code: 'address',
    title: first?.reason ?? 'This is not an Address.',
    detail: [first?.mend, ...faults.slice(1).flatMap(({ reason, mend }) => [reason, mend])]
      .filter((text) => text !== undefined)
      .join(' '),
  }
}

/** What stands in the way of a sync with an address, and what was looked at to find it. */
export function verdict(address: Address, probes: Probes): Diagnosis {
  const [name, finding] = firstFault(address, probes)
  const skipped = new Set<string>()
  if (probes.design === null) skipped.add('Mobile filter')
  if (probes.feedMs === 'skipped') skipped.add('Live feed')
  return { checks: checksUpTo(name, skipped), finding }
}

/** @param wrong the check that failed; null: none */
function checksUpTo(wrong: string | null, skipped: ReadonlySet<string>): readonly Check[] {
  const end = wrong === null ? CHECKS.length : CHECKS.indexOf(wrong)
  return CHECKS.map((name, at) => {
    if (at === end) return { name, state: 'wrong' }
    return { name, state: at > end || skipped.has(name) ? 'skipped' : 'fine' }
  })
}

function firstFault(address: Address, probes: Probes): [string | null, Finding | null] {
  const { database, design, feedMs, isThere } = probes
  if (database.kind === 'late') return ['Connection', slow(address)]
  if (database.kind === 'failed') {
    return isThere === true
      ? ['Web access (CORS)', cors(address, probes.origin)]
      : ['Connection', unheard(address, probes)]
  }
  if (database.status === 401) return ['Account', credentials(address, database)]
  if (database.status === 403) return ['Account', rights(address, database)]
  if (database.status === 404 && database.body !== null) return ['Database', noDatabase(address)]
  if (database.status >= 500) return ['Connection', server(address, database)]
  if (database.status !== 200 || typeof database.body?.db_name !== 'string')
    return ['Database', notCouch(address, database)]
  if (design !== null && !hasFilter(design)) return ['Mobile filter', noMobileFilter(address)]
  if (feedMs === null) return ['Live feed', buffered(address)]
  return [null, null]
}

function hasFilter(design: Answer): boolean {
  if (design.kind !== 'answer' || design.status !== 200) return false
  const filters = design.body?.filters
  return typeof filters === 'object' && filters !== null && 'sync' in filters
}

/** What a page cannot tell apart is named together, but for what the address itself rules out. */
function unheard(address: Address, { isOnline, origin }: Probes): Finding {
  const at = `${address.host}:${address.port}`
  if (!isOnline) {
    return {
      code: 'offline',
      title: 'This device is offline.',
      detail: 'Your notes are kept here, and travel when the network is back.',
    }
  }
  const isHere = isLoopback(address.host)
  if (address.scheme === 'http' && origin.startsWith('https:') && !isHere) {
    return {
      code: 'insecure',
      title: 'A page that came over https may not talk to a server over http.',
      detail: `Put the server behind TLS and use an https address (docs/proxy.md).`,
    }
  }
  const hasName = !isHere && !isNumeric(address.host)
  if (address.scheme === 'http' && !hasName) {
    return {
      code: 'refused',
      title: `Nobody answers at ${at}.`,
      detail:
        'The server is not running, listens on another port or on other addresses, or a firewall is in between. ' +
        'Look whether the port is right, and whether the server is bound to more than 127.0.0.1.',
      command: doctor(address),
    }
  }
  const causes = [
    ...(hasName ? [`the name ${address.host} leads nowhere`] : []),
    ...(address.scheme === 'https' ? ['this device does not trust its certificate'] : []),
    `nobody listens on port ${address.port}`,
  ]
  return {
    code: 'unreachable',
    title: `${at} cannot be reached.`,
    detail:
      `Either ${causes.join(', or ')}. A web page is not told which of these it is. The doctor can tell: ` +
      'run it where settee is installed, on any machine.',
    command: doctor(address),
  }
}

function slow(address: Address): Finding {
  return {
    code: 'slow',
    title: `${address.host}:${address.port} does not answer in time.`,
    detail: 'It was asked and said nothing for 15 seconds. A firewall may drop what is sent to this port.',
    command: doctor(address),
  }
}

function cors(address: Address, origin: string): Finding {
  return {
    code: 'cors',
    title: 'The server is there, but does not let pages of this app in (CORS).',
    detail:
      `It answers, yet not so that a page of ${origin} may read it. An admin of the server adds this origin to ` +
      '`cors/origins`; the value is the whole list, with commas between. A proxy in front must not add headers of its own.',
    command:
      `curl -u admin -X PUT ${serverOf(address)}/_node/_local/_config/cors/origins ` +
      `-d '"${origin},app://obsidian.md,capacitor://localhost,http://localhost"'`,
  }
}

function credentials(address: Address, answer: Answer): Finding {
  const detail =
    address.username === undefined
      ? 'The Address has no name and password: https://name:password@host:port/database.'
      : 'The name or the password in the Address is not right. Characters such as @ : / in it are percent-encoded: @ is %40.'
  return {
    code: 'credentials',
    title: 'The server wants to know who you are (401).',
    detail: said(detail, answer),
  }
}

function rights({ username = 'This account', database }: Address, answer: Answer): Finding {
  const detail = `The server knows ${username}, who may not read ${database}. An admin of the database adds the account to its members (${database}/_security).`
  return {
    code: 'rights',
    title: `${username} is not let into ${database} (403).`,
    detail: said(detail, answer),
  }
}

function noDatabase(address: Address): Finding {
  return {
    code: 'no_database',
    title: `There is no database ${address.database} on this server (404).`,
    detail: 'Look at the last part of the Address, or have an admin make the database.',
    command: `curl -u admin -X PUT ${address.url}`,
  }
}

function noMobileFilter(address: Address): Finding {
  const body = JSON.stringify({ filters: { sync: MOBILE_FUNCTION } }).replaceAll("'", "'\\''")
  return {
    code: 'no_mobile_filter',
    title: 'The database has no filter for mobile devices (_design/mobile).',
    detail:
      'A mobile device syncs through it, so that pictures stay away. An admin of the database makes it once, with this command; the sync then goes on by itself.',
    command: `curl -u admin -X PUT ${address.url}/_design/mobile -H 'Content-Type: application/json' -d '${body}'`,
  }
}

function notCouch(address: Address, answer: Answer): Finding {
  const status = answer.kind === 'answer' ? answer.status : 0
  return {
    code: 'not_couchdb',
    title: `What answers at ${address.host}:${address.port} is no CouchDB-compatible database.`,
    detail: `Its answer (${status}) is not that of a database. Look at the port and at the path.`,
    command: doctor(address),
  }
}

function server(address: Address, answer: Answer): Finding {
  const status = answer.kind === 'answer' ? answer.status : 0
  return {
    code: 'server',
    title: `The server, or a proxy in front of it, answers ${status}.`,
    detail: said(
      status === 502 || status === 504 ? 'The proxy does not reach the server.' : 'Its log says more.',
      answer,
    ),
    command: doctor(address),
  }
}

function buffered(address: Address): Finding {
  return {
    code: 'buffered_feed',
    title: 'A proxy holds back the live feed.',
    detail:
      'Requests are answered, but changes arrive late, since something in between collects what the server sends. ' +
      'In nginx, the location of the server needs: proxy_buffering off; In Caddy, its reverse_proxy: flush_interval -1.',
    command: doctor(address),
  }
}

function said(detail: string, answer: Answer): string {
  const reason = answer.kind === 'answer' ? answer.body?.reason : undefined
  return typeof reason === 'string' && reason !== '' ? `${detail} The server says: “${reason}”` : detail
}

function doctor({ url }: Address): string {
  return `npx settee doctor ${url}`
}

/** The server's own address: an address without its one path segment. */
function serverOf({ url }: Address): string {
  return url.slice(0, url.lastIndexOf('/'))
}

function isNumeric(host: string): boolean {
  return host.includes(':') || /^\d{1,3}(?:\.\d{1,3}){3}$/.test(host)
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127\./.test(host)
}
