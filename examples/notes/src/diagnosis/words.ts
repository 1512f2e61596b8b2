/** Each thing that can stand in the way of a sync, in words for a person: what it is, and how it is mended. Pure. */
import type { Address, AddressFault } from '../../../../src/core/address.ts'
import { APP_ORIGINS } from '../../../../src/core/network.ts'
import { MOBILE_DESIGN_ID, MOBILE_FILTER } from '../../../../src/vaults/livesync.ts'
import { withoutCredentials } from '../log.ts'
import type { PouchError } from '../pouch.ts'
import type { Finding } from './finding.ts'
import type { Answer, Probes } from './probes.ts'

/** Characters of what a server says. */
const MOST_WORDS = 500

/** What is wrong with a text that is no Address, the first fault as the title. */
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

/**
 * What a server has said to a request of a sync, where its database can be read all the same.
 * @returns null for an error that is no server's word
 */
export function refusalFinding(address: Address, { status, reason, message }: PouchError): Finding | null {
  if (status === undefined || status < 400) return null
  const words = withoutCredentials(String(reason ?? message ?? ''), address)
  const detail = 'The database can be read, but not all that a sync needs is done.'
  return {
    code: 'refusal',
    title: `The server refuses a request of the sync (${status}).`,
    detail: words === '' ? detail : `${detail} The server says: “${words}”`,
    command: doctor(address),
  }
}

/** What a page cannot tell apart is named together, but for what the address itself rules out. */
export function unheard(address: Address, { isOnline, origin }: Probes): Finding {
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

/** It was asked, and has said nothing. */
export function slow(address: Address): Finding {
  return {
    code: 'slow',
    title: `${address.host}:${address.port} does not answer in time.`,
    detail: 'It was asked and said nothing for 15 seconds. A firewall may drop what is sent to this port.',
    command: doctor(address),
  }
}

/** It answers, but not so that a page may read it. */
export function cors(address: Address, origin: string): Finding {
  return {
    code: 'cors',
    title: 'The server is there, but does not let pages of this app in (CORS).',
    detail:
      `It answers, yet not so that a page of ${origin} may read it. An admin of the server adds this origin to ` +
      '`cors/origins`; the value is the whole list, with commas between. A proxy in front must not add headers of its own.',
    command:
      `curl -u admin -X PUT ${serverOf(address)}/_node/_local/_config/cors/origins ` +
      `-d '"${[origin, ...APP_ORIGINS].join(',')}"'`,
  }
}

/** 401: nobody is named, or the name and the password do not fit. */
export function credentials(address: Address, answer: Answer): Finding {
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

/** What a token's end looks like: nobody has typed it. */
export function signedOut(answer: Answer): Finding {
  return {
    code: 'credentials',
    title: 'The server does not let this device in any more (401).',
    detail: said(
      "This device's token has been revoked or has run out. Sign out, and sign in again; your notes stay here.",
      answer,
    ),
  }
}

/** 403: the account is known, and not let in; or locked. */
export function rights(
  { username = 'This account', database }: Address,
  answer: Answer,
  isHosted: boolean,
): Finding {
  if (/temporarily locked/.test(reasonOf(answer))) {
    const detail = 'There were too many tries with a wrong password. Wait some minutes, then try again.'
    return { code: 'locked', title: `${username} is locked for a while (403).`, detail }
  }
  const detail = isHosted
    ? `The server knows ${username}, but does not let the account use its database.`
    : `The server knows ${username}, who may not read ${database}. An admin of the database adds the account to its members (${database}/_security).`
  return {
    code: 'rights',
    title: `${username} is not let into ${database} (403).`,
    detail: said(detail, answer),
  }
}

/** 429. */
export function busy(answer: Answer): Finding {
  return {
    code: 'busy',
    title: 'The server asks to wait (429).',
    detail: said('More is asked of it than it does at a time. It is tried again by itself.', answer),
  }
}

/** 404. */
export function noDatabase(address: Address, isHosted: boolean): Finding {
  if (isHosted) {
    return {
      code: 'no_database',
      title: "The account's database is not there any more (404).",
      detail: 'Sign out, and sign in again: that makes it anew, and your notes go there from this device.',
    }
  }
  return {
    code: 'no_database',
    title: `There is no database ${address.database} on this server (404).`,
    detail: 'Look at the last part of the Address, or have an admin make the database.',
    command: `curl -u admin -X PUT ${address.url}`,
  }
}

/** @param there the design document as it is, so that the command leaves the rest of it alone */
export function noMobileFilter(address: Address, there: object, filters: object): Finding {
  const design = { ...there, filters: { ...filters, sync: MOBILE_FILTER } }
  const body = JSON.stringify(design).replaceAll("'", "'\\''")
  return {
    code: 'no_mobile_filter',
    title: 'The database has no filter for mobile devices (_design/mobile).',
    detail:
      'A mobile device syncs through it, so that pictures stay away. An admin of the database makes it once, with this command; the sync then goes on by itself.',
    command: `curl -u admin -X PUT ${address.url}/${MOBILE_DESIGN_ID} -H 'Content-Type: application/json' -d '${body}'`,
  }
}

/** An answer that is no database's. */
export function notCouch(address: Address, answer: Answer): Finding {
  const status = answer.kind === 'answer' ? answer.status : 0
  return {
    code: 'not_couchdb',
    title: `What answers at ${address.host}:${address.port} is no CouchDB-compatible database.`,
    detail: `Its answer (${status}) is not that of a database. Look at the port and at the path.`,
    command: doctor(address),
  }
}

/** An answer of 500 and above. */
export function server(address: Address, answer: Answer): Finding {
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

/** Requests are answered, and a feed is not: something collects it. */
export function buffered(address: Address): Finding {
  return {
    code: 'buffered_feed',
    title: 'A proxy holds back the live feed.',
    detail:
      'Requests are answered, but changes arrive late, since something in between collects what the server sends. ' +
      'In nginx, the location of the server needs: proxy_buffering off; In Caddy, its reverse_proxy: flush_interval -1.',
    command: doctor(address),
  }
}

/** A feed that is refused, or ends before its first byte. */
export function noFeed(address: Address, answer: Answer): Finding {
  const end = answer.kind === 'answer' ? `is answered with ${answer.status}` : 'breaks off'
  return {
    code: 'feed',
    title: 'The live feed cannot be read.',
    detail:
      `The database answers, but its feed of changes (${address.database}/_changes) ${end}. ` +
      'A proxy may have a rule of its own for it: look there.',
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
