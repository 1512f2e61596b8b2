/** The parameters of `_changes`, and the bytes around the rows of a feed; protocol.md 5.1 and 5.3. Pure. */
import { CouchError } from '../core/errors.ts'
import type { Framing } from './rows.ts'

export type FeedKind = 'normal' | 'longpoll' | 'continuous' | 'eventsource'

export interface FeedQuery {
  readonly kind: FeedKind
  readonly style: 'main_only' | 'all_docs'
  readonly descending: boolean
  readonly includeDocs: boolean
  readonly conflicts: boolean
  readonly attachments: boolean
  readonly attEncodingInfo: boolean
  readonly seqInterval: number
  readonly since: string
  /** Infinity means no limit. */
  readonly limit: number
  /** Milliseconds; null if the client did not request a heartbeat. */
  readonly heartbeat: number | null
  /** Milliseconds. */
  readonly timeout: number
  /** Empty if the client did not request a filter. */
  readonly filter: string
  /** The text of `doc_ids`. */
  readonly docIds: string | undefined
  readonly view: string | undefined
}

/** The interval of `heartbeat=true`, and the default timeout, before the server limits them. */
const DEFAULT_WAIT = 60_000

const KINDS: Readonly<Record<string, FeedKind>> = {
  normal: 'normal',
  longpoll: 'longpoll',
  continuous: 'continuous',
  live: 'continuous',
  eventsource: 'eventsource',
}

/**
 * Reads the parameters. Names are case-insensitive, the last value of a name wins, and unknown names are ignored.
 * @param maxWait `chttpd/changes_timeout` in milliseconds, the maximum of `heartbeat` and `timeout`
 * @param lastEventId the header Last-Event-ID, which overrides `since` for an eventsource feed
 * @throws bad_request with the texts of protocol.md 1.2; the text for an invalid `style` is our own
 */
export function readFeedQuery(
  pairs: Iterable<readonly [string, string | undefined]>,
  maxWait: number,
  lastEventId?: string,
): FeedQuery {
  const parameters = new Map<string, string>()
  for (const [name, value] of pairs) {
    if (value === undefined) continue
    const known = name.toLowerCase()
    parameters.set(known === 'last-event-id' ? 'since' : known, value)
  }
  const kind = kindOf(parameters.get('feed'))
  if (kind === 'eventsource' && lastEventId !== undefined) parameters.set('since', lastEventId)
  const isOn = (name: string) => parameters.get(name) === 'true'
  return {
    kind,
    style: styleOf(parameters.get('style')),
    descending: isOn('descending'),
    includeDocs: isOn('include_docs'),
    conflicts: isOn('conflicts'),
    attachments: isOn('attachments'),
    attEncodingInfo: isOn('att_encoding_info'),
    seqInterval: seqIntervalOf(parameters.get('seq_interval')),
    since: sinceOf(parameters.get('since')),
    limit: countOf('limit', parameters.get('limit')) ?? Infinity,
    heartbeat: heartbeatOf(parameters.get('heartbeat'), maxWait),
    timeout: Math.min(countOf('timeout', parameters.get('timeout')) ?? DEFAULT_WAIT, maxWait),
    filter: parameters.get('filter') ?? '',
    docIds: parameters.get('doc_ids'),
    view: parameters.get('view'),
  }
}

function kindOf(text = 'normal'): FeedKind {
  const kind = Object.hasOwn(KINDS, text) ? KINDS[text] : undefined
  if (kind !== undefined) return kind
  throw badRequest('Supported `feed` types: normal, continuous, live, longpoll, eventsource')
}

function styleOf(text = 'main_only'): 'main_only' | 'all_docs' {
  if (text === 'main_only' || text === 'all_docs') return text
  throw badRequest('Supported `style` values: main_only, all_docs')
}

/** Removes quotes, for example around `now`. The token itself is read later. */
function sinceOf(text = '0'): string {
  return text.replace(/^"(.*)"$/, '$1')
}

function countOf(name: 'limit' | 'timeout', text: string | undefined): number | undefined {
  if (text === undefined) return undefined
  const value = integerOf(text)
  if (value === undefined) throw badRequest(`The ${name} parameter should be a non-negative integer`)
  if (value < 0) throw badRequest(`The ${name} value should be a non-negative integer`)
  return value
}

function heartbeatOf(text: string | undefined, maxWait: number): number | null {
  if (text === undefined) return null
  if (text === 'true') return Math.min(DEFAULT_WAIT, maxWait)
  const value = integerOf(text)
  if (value === undefined) {
    throw badRequest('Invalid heartbeat value. Expecting a positive integer value (in milliseconds).')
  }
  if (value <= 0) throw badRequest('The heartbeat value should be a positive integer (in milliseconds).')
  return Math.min(value, maxWait)
}

function seqIntervalOf(text: string | undefined): number {
  if (text === undefined) return 1
  const value = integerOf(text)
  if (value === undefined || value <= 0) throw badRequest('invalid_seq_interval')
  return value
}

function integerOf(text: string): number | undefined {
  return /^[-+]?\d+$/.test(text) ? Number(text) : undefined
}

function badRequest(reason: string): CouchError {
  return new CouchError('bad_request', reason)
}

const encoder = new TextEncoder()

export function bytesOf(text: string): Uint8Array {
  return encoder.encode(text)
}

export const FRAMINGS: Readonly<Record<FeedKind, Framing>> = {
  normal: 'json',
  longpoll: 'json',
  continuous: 'lines',
  eventsource: 'events',
}

const EMPTY = bytesOf('')
const OPENING = bytesOf('{"results":[\n')
const NEW_LINE = bytesOf('\n')

/** Sent first. An empty prologue sends only the headers. */
export const PROLOGUES: Readonly<Record<FeedKind, Uint8Array>> = {
  normal: OPENING,
  longpoll: OPENING,
  continuous: EMPTY,
  eventsource: EMPTY,
}

/** Separates two pages of JSON rows, like two rows. */
export const SEPARATOR = bytesOf(',\r\n')

/** The heartbeat, sent after an interval of silence. */
export const BEAT: Readonly<Record<FeedKind, Uint8Array>> = {
  normal: NEW_LINE,
  longpoll: NEW_LINE,
  continuous: NEW_LINE,
  eventsource: bytesOf('event: heartbeat\ndata: \n\n'),
}

/** A comment of an event stream. Its reader ignores it, but proxies see that the connection is alive. */
export const COMMENT = bytesOf(':\n\n')

/** The end of a feed. @param pending null for `_db_updates`, which has no such member (protocol.md 4.9) */
export function epilogue(kind: FeedKind, lastToken: string, pending: number | null): string {
  const end = `"last_seq":"${lastToken}"${pending === null ? '' : `,"pending":${pending}`}}\n`
  if (kind === 'continuous') return `{${end}`
  return kind === 'eventsource' ? '' : `\n],\n${end}${pending === null ? '' : '\n'}`
}
