/** The parameters of `_changes`, protocol.md 5.1. Pure. */
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
  /** Milliseconds; null when the client did not ask for one. */
  readonly heartbeat: number | null
  /** Milliseconds. */
  readonly timeout: number
  /** Empty when the client did not ask for one. */
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
 * Reads the parameters. Names count in any case, the last of a name wins, unknown ones are ignored.
 * @param maxWait `chttpd/changes_timeout` in milliseconds: caps heartbeat and timeout
 * @param lastEventId the header Last-Event-ID, which wins over `since` where the feed is an eventsource
 * @throws bad_request with the texts of protocol.md 1.2; that for a bad `style` is ours
 */
export function readFeedQuery(
  pairs: Iterable<readonly [string, string | undefined]>,
  maxWait: number,
  lastEventId?: string,
): FeedQuery {
  const given = new Map<string, string>()
  for (const [name, value] of pairs) {
    if (value === undefined) continue
    const known = name.toLowerCase()
    given.set(known === 'last-event-id' ? 'since' : known, value)
  }
  const kind = kindOf(given.get('feed'))
  if (kind === 'eventsource' && lastEventId !== undefined) given.set('since', lastEventId)
  const isOn = (name: string) => given.get(name) === 'true'
  return {
    kind,
    style: styleOf(given.get('style')),
    descending: isOn('descending'),
    includeDocs: isOn('include_docs'),
    conflicts: isOn('conflicts'),
    attachments: isOn('attachments'),
    attEncodingInfo: isOn('att_encoding_info'),
    seqInterval: seqIntervalOf(given.get('seq_interval')),
    since: sinceOf(given.get('since')),
    limit: countOf('limit', given.get('limit')) ?? Infinity,
    heartbeat: heartbeatOf(given.get('heartbeat'), maxWait),
    timeout: Math.min(countOf('timeout', given.get('timeout')) ?? DEFAULT_WAIT, maxWait),
    filter: given.get('filter') ?? '',
    docIds: given.get('doc_ids'),
    view: given.get('view'),
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

/** `now` in quotes is still now; a number is left to the reader of tokens. */
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

// What stands around the rows of a feed, byte for byte: protocol.md 5.3.

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

const NOTHING = bytesOf('')
const OPENING = bytesOf('{"results":[\n')
const NEW_LINE = bytesOf('\n')

/** Sent first; an empty one sends the head alone. */
export const PROLOGUES: Readonly<Record<FeedKind, Uint8Array>> = {
  normal: OPENING,
  longpoll: OPENING,
  continuous: NOTHING,
  eventsource: NOTHING,
}

/** Stands between two pages of JSON rows, as it does between two rows. */
export const SEPARATOR = bytesOf(',\r\n')

/** Ends an interval of silence. */
export const BEAT: Readonly<Record<FeedKind, Uint8Array>> = {
  normal: NEW_LINE,
  longpoll: NEW_LINE,
  continuous: NEW_LINE,
  eventsource: bytesOf('event: heartbeat\ndata: \n\n'),
}

/** An event stream's comment: nothing for its reader, bytes for the proxies between. */
export const COMMENT = bytesOf(':\n\n')

/** What ends a feed; without `pending` as that of `_db_updates` ends (protocol.md 4.9). */
export function epilogue(kind: FeedKind, lastToken: string, pending: number | null): string {
  const end = `"last_seq":"${lastToken}"${pending === null ? '' : `,"pending":${pending}`}}\n`
  if (kind === 'continuous') return `{${end}`
  return kind === 'eventsource' ? '' : `\n],\n${end}${pending === null ? '' : '\n'}`
}
