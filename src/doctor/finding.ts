/** Findings, the results of the doctor's checks, and how they quote a server's texts. */
import type { Address } from '../core/address.ts'
import { oneLine } from '../core/errors.ts'
import { type Answer, basicOf, isAnswer, type Reply } from './doctor-client.ts'

/** The names of all findings, in the order of the output. */
export const FINDING_NAMES = [
  'address',
  'look-up',
  'connection',
  'certificate',
  'protocols',
  'server',
  'http',
  'version',
  'clock',
  'credentials',
  'preflights',
  'cors',
  'rights',
  'local',
  'paths',
  'location',
  'client',
  'damage',
  'feed',
  'find',
  'mobile',
  'bodies',
  'long feed',
  'rest',
] as const

export type FindingName = (typeof FINDING_NAMES)[number]

/** `note`: it works, but not as well as it could, or not for everyone. `skipped`: not checked. */
export type State = 'fine' | 'note' | 'wrong' | 'skipped'

/** A setting to change, and where. */
export interface Cure {
  /** A proxy, a server, or `you`: the user. */
  readonly place: string
  readonly line: string
}

/** @typeParam Name the names of a doctor's findings; by default those of the checks of a server from outside */
export interface Finding<Name extends string = FindingName> {
  readonly name: Name
  readonly state: State
  /** One line. */
  readonly text: string
  readonly cures: readonly Cure[]
  /** Names of certificates or accounts in the text, which a report must mask. */
  readonly names?: readonly string[]
}

export function fine<Name extends string>(name: Name, text: string): Finding<Name> {
  return { name, state: 'fine', text, cures: [] }
}

export function skipped<Name extends string>(name: Name, text: string): Finding<Name> {
  return { name, state: 'skipped', text, cures: [] }
}

export function note<Name extends string>(
  name: Name,
  text: string,
  cures: readonly Cure[] = [],
): Finding<Name> {
  return { name, state: 'note', text, cures }
}

export function wrong<Name extends string>(
  name: Name,
  text: string,
  cures: readonly Cure[] = [],
): Finding<Name> {
  return { name, state: 'wrong', text, cures }
}

/** Advice for the user of the doctor. */
export function adviceToUser(line: string): readonly Cure[] {
  return [{ place: 'you', line }]
}

const MAX_QUOTED = 160

/** Makes a server's text fit into one line, and withholds a text that repeats the password. */
export type Quote = (text: string) => string

/** The shortest value of a header that counts as a secret: shorter ones, such as `1`, are in too many texts. */
const MIN_SECRET_HEADER = 4

/**
 * @param address the address whose password must never be printed
 * @param headers whose values must never be printed
 */
export function quoteWithoutPassword(
  address: Address,
  headers: Readonly<Record<string, string>> = {},
): Quote {
  const passwords = secretsOf(address)
  const values = Object.values(headers).filter((value) => value.length >= MIN_SECRET_HEADER)
  const keys = values
    .flatMap((value) => [value, encodeURIComponent(value)])
    .map((value) => value.toLowerCase())
  return (text) => {
    const folded = text.toLowerCase()
    if (passwords.some((secret) => folded.includes(secret))) return '(a text that repeats the password)'
    if (keys.some((secret) => folded.includes(secret))) return '(a text that repeats a header)'
    const line = oneLine(text)
    return line.length > MAX_QUOTED ? `${line.slice(0, MAX_QUOTED)}...` : line
  }
}

/** The password in each form in which it is sent or quoted, in lower case. */
function secretsOf(address: Address): readonly string[] {
  const { password } = address
  if (password === undefined || password === '') return []
  const basic = basicOf(address)?.slice('Basic '.length) ?? password
  const inJson = JSON.stringify(password).slice(1, -1)
  const forms = [password, encodeURIComponent(password), inJson, basic, basic.replace(/=+$/, '')]
  return forms.map((form) => form.toLowerCase())
}

/** @returns the result of a request as a clause: `404 not_found: missing`, `no answer in time` */
export function describe(reply: Reply, quote: Quote): string {
  return isAnswer(reply) ? describeAnswer(reply, quote) : describeFailure(reply.failure, quote)
}

function describeAnswer({ status, json, headers }: Answer, quote: Quote): string {
  const { error, reason } = (json ?? {}) as { readonly error?: unknown; readonly reason?: unknown }
  if (typeof error === 'string') return `${status} ${quote(`${error}: ${String(reason)}`.replace(/\.$/, ''))}`
  const type = headers['content-type']?.split(';')[0]
  return json === undefined && type !== undefined ? `${status} with ${quote(type)}` : `${status}`
}

const FAILURES: Readonly<Record<string, string>> = {
  TIMEOUT: 'no answer in time',
  ECONNREFUSED: 'the connection was refused: nothing listens on this port',
  ECONNRESET: 'the connection was closed without an answer',
  EPIPE: 'the connection was closed without an answer',
  ETIMEDOUT: 'the connection timed out',
  EHOSTUNREACH: 'no route to this address',
  ENETUNREACH: 'no route to this network',
}

/** @param code an error code of Node or OpenSSL */
export function describeFailure(code: string, quote: Quote): string {
  return FAILURES[code] ?? (code.startsWith('HPE_') ? 'the answer is not HTTP' : quote(code))
}

/** @returns the reason of a CouchDB error; empty if there is none */
export function reasonOf(reply: Reply): string {
  if (!isAnswer(reply)) return ''
  const { reason } = (reply.json ?? {}) as { readonly reason?: unknown }
  return typeof reason === 'string' ? reason : ''
}
