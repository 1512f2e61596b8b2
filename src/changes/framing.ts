/** What stands around the rows of a feed, byte for byte: protocol.md 5.3. */
import type { FeedKind } from './query.ts'
import type { Framing } from './rows.ts'

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

/** Breaks a silence. */
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
