/** The findings that users see: for each cause that stops a sync, what is wrong and how to fix it. Pure. */
import type { Address, AddressFault } from '../../../../src/core/address.ts'
import { APP_ORIGINS } from '../../../../src/core/app-origins.ts'
import { MOBILE_DESIGN_ID, MOBILE_FILTER } from '../../../../src/vaults/livesync.ts'
import { withoutCredentials } from '../log.ts'
import type { PouchError } from '../pouch.ts'
import type { Finding } from './finding.ts'
import type { Answer, Probes } from './probes.ts'

/** Maximum length of a server's reason, in characters. */
const MOST_WORDS = 500

/** What is wrong with a text that is not a valid Address. */
export function addressFinding(faults: readonly AddressFault[]): Finding {
  const [first] = faults
  if (first === undefined || faults.length === 1) {
    return { code: 'address', title: first?.reason ?? 'This is not an Address.', detail: first?.mend ?? '' }
  }
  return {
    code: 'address',
    title: `${faults.length} things in the Address need to change.`,
    detail: '',
    points: faults.map(({ reason, mend }) => `${reason} ${mend}`),
  }
}

/**
 * A server's answer to a failed request of a sync, when the database itself can be read.
 * @returns null for an error that does not come from a server
 */
export function refusalFinding(address: Address, { status, reason, message }: PouchError): Finding | null {
  if (status === undefined || status < 400) return null
  const words = withoutCredentials(String(reason ?? message ?? ''), address)
  const detail = 'The app can read the database, but the server refuses something that the sync needs.'
  return {
    code: 'refusal',
    title: `The server refused a request of the sync (${status}).`,
    detail: words === '' ? detail : `${detail} The server says: “${words}”`,
    command: doctor(address),
  }
}

/** Lists all causes that a page cannot tell apart, except those that the address itself rules out. */
export function unheard(address: Address, { isOnline, origin }: Probes): Finding {
  const at = `${address.host}:${address.port}`
  if (!isOnline) {
    return {
      code: 'offline',
      title: 'This device is offline.',
      detail: 'Your notes stay on this device and sync when the network is back.',
    }
  }
  const isHere = isLoopback(address.host)
  if (address.scheme === 'http' && origin.startsWith('https:') && !isHere) {
    return {
      code: 'insecure',
      title: 'A page that was loaded over https cannot connect to a server over http.',
      detail: `Give the server a certificate and use an https address (docs/proxy.md).`,
    }
  }
  const hasName = !isHere && !isNumeric(address.host)
  if (address.scheme === 'http' && !hasName) {
    return {
      code: 'refused',
      title: `No server answers at ${at}.`,
      detail:
        'The server may not be running, it may listen on another port or address, or a firewall may block it. ' +
        'Check the port, and whether the server listens on more than 127.0.0.1.',
      command: doctor(address),
    }
  }
  const causes = [
    ...(hasName ? [`the name ${address.host} does not exist`] : []),
    ...(address.scheme === 'https' ? ['this device does not trust the certificate'] : []),
    `nothing listens on port ${address.port}`,
  ]
  return {
    code: 'unreachable',
    title: `${at} cannot be reached.`,
    detail:
      `Either ${causes.join(', or ')}. A web page cannot find out which. The doctor can: ` +
      'run it on any machine where settee is installed.',
    command: doctor(address),
  }
}

/** No answer in time. */
export function slow(address: Address): Finding {
  return {
    code: 'slow',
    title: `${address.host}:${address.port} does not answer in time.`,
    detail: 'There was no answer for 15 seconds. A firewall may block this port.',
    command: doctor(address),
  }
}

/** The server answers, but the browser does not let the page read the answer. */
export function cors(address: Address, origin: string): Finding {
  return {
    code: 'cors',
    title: 'The server answers, but does not allow requests from this app (CORS).',
    detail:
      `Pages of ${origin} may not read its answers. Ask an admin of the server to add this origin to \`cors/origins\`. ` +
      'The value is the whole list, separated by commas. A proxy in front must not add CORS headers itself.',
    command:
      `curl -u admin -X PUT ${serverOf(address)}/_node/_local/_config/cors/origins ` +
      `-d '"${[origin, ...APP_ORIGINS].join(',')}"'`,
  }
}

/** 401: the credentials are missing or wrong. */
export function credentials(address: Address, answer: Answer): Finding {
  const detail =
    address.username === undefined
      ? 'The Address has no name and password: https://name:password@host:port/database.'
      : 'The name or the password in the Address is incorrect. Percent-encode characters such as @ : / in them: @ becomes %40.'
  return {
    code: 'credentials',
    title: 'The server requires a valid name and password (401).',
    detail: said(detail, answer),
  }
}

/** 401 to a device token, which the user has not typed. */
export function signedOut(answer: Answer): Finding {
  return {
    code: 'credentials',
    title: 'The server no longer accepts this device (401).',
    detail: said(
      "This device's token was revoked or has expired. Sign out, and sign in again. Your notes stay on this device.",
      answer,
    ),
  }
}

/** 403: the account exists, but is not allowed in; or it is locked. */
export function rights(
  { username = 'This account', database }: Address,
  answer: Answer,
  isHosted: boolean,
): Finding {
  if (/temporarily locked/.test(reasonOf(answer))) {
    const detail = 'There were too many attempts with a wrong password. Wait a few minutes, then try again.'
    return { code: 'locked', title: `${username} is temporarily locked (403).`, detail }
  }
  const detail = isHosted
    ? `The server knows ${username}, but does not let the account use its database.`
    : `The server knows ${username}, but the account may not read ${database}. Ask an admin of the database to add it to the members (${database}/_security).`
  return {
    code: 'rights',
    title: `${username} has no access to ${database} (403).`,
    detail: said(detail, answer),
  }
}

/** 429. */
export function busy(answer: Answer): Finding {
  return {
    code: 'busy',
    title: 'The server is busy (429).',
    detail: said('It has too many requests. The app tries again by itself.', answer),
  }
}

/** 404. */
export function noDatabase(address: Address, isHosted: boolean): Finding {
  if (isHosted) {
    return {
      code: 'no_database',
      title: "The account's database no longer exists (404).",
      detail:
        'Sign out, and sign in again. That creates the database again, and this device sends its notes there.',
    }
  }
  const { username, database, url } = address
  const finding = { code: 'no_database', title: `The server has no database ${database} (404).` } as const
  if (username === undefined) {
    const detail =
      'Check the last part of the Address. For a new database, put the name and the password of the account that ' +
      'will use it into the Address first: https://name:password@host:port/database.'
    return { ...finding, detail }
  }
  const security = { admins: { roles: ['_admin'] }, members: { names: [username], roles: [] } }
  const body = JSON.stringify(security).replaceAll("'", "'\\''")
  return {
    ...finding,
    detail:
      `Check the last part of the Address, or ask an admin of the server for this command. It creates the database and ` +
      `lets ${username} use it. The sync then continues by itself.`,
    command: `curl -u admin -X PUT ${url} && curl -u admin -X PUT ${url}/_security -H 'Content-Type: application/json' -d '${body}'`,
  }
}

/** @param there the present design document, so that the command keeps the rest of it */
export function noMobileFilter(address: Address, there: object, filters: object): Finding {
  const design = { ...there, filters: { ...filters, sync: MOBILE_FILTER } }
  const body = JSON.stringify(design).replaceAll("'", "'\\''")
  return {
    code: 'no_mobile_filter',
    title: 'The database has no filter for mobile devices (_design/mobile).',
    detail:
      'Mobile devices need this filter to leave pictures out. Ask an admin of the database to create it with this command, once. The sync then continues by itself.',
    command: `curl -u admin -X PUT ${address.url}/${MOBILE_DESIGN_ID} -H 'Content-Type: application/json' -d '${body}'`,
  }
}

/** An answer that does not come from a database. */
export function notCouch(address: Address, answer: Answer): Finding {
  const status = answer.kind === 'answer' ? answer.status : 0
  return {
    code: 'not_couchdb',
    title: `The server at ${address.host}:${address.port} is not a CouchDB-compatible database.`,
    detail: `A database would not answer this way (${status}). Check the port and the path.`,
    command: doctor(address),
  }
}

/** An answer of 500 and above. */
export function server(address: Address, answer: Answer): Finding {
  const status = answer.kind === 'answer' ? answer.status : 0
  return {
    code: 'server',
    title: `The server, or a proxy in front of it, answered ${status}.`,
    detail: said(
      status === 502 || status === 504
        ? 'The proxy cannot reach the server.'
        : 'The log of the server has the details.',
      answer,
    ),
    command: doctor(address),
  }
}

/** Requests are answered, but the feed is not: a proxy buffers it. */
export function buffered(address: Address): Finding {
  return {
    code: 'buffered_feed',
    title: 'A proxy buffers the live feed.',
    detail:
      'Requests are answered, but changes arrive late, because a proxy buffers what the server sends. ' +
      'In nginx, add to the location of the server: proxy_buffering off; In Caddy, add to its reverse_proxy: flush_interval -1.',
    command: doctor(address),
  }
}

/** A feed that is refused, or that ends before its first byte. */
export function noFeed(address: Address, answer: Answer): Finding {
  const end = answer.kind === 'answer' ? `is answered with ${answer.status}` : 'breaks off'
  return {
    code: 'feed',
    title: 'The live feed cannot be read.',
    detail:
      `The database answers, but its changes feed (${address.database}/_changes) ${end}. ` +
      'A proxy may have a separate rule for this path: check its configuration.',
    command: doctor(address),
  }
}

function said(detail: string, answer: Answer): string {
  const reason = reasonOf(answer)
  return reason === '' ? detail : `${detail} The server says: “${reason}”`
}

function reasonOf(answer: Answer): string {
  const reason = answer.kind === 'answer' ? answer.body?.reason : undefined
  return typeof reason === 'string' ? reason.slice(0, MOST_WORDS) : ''
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
