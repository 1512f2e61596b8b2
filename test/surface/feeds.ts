/** What the tables about `_changes` share: the database of protocol.md 19.5, and how an answer is written down. */
import type { Answer } from './answers.ts'
import { type Ask, stored } from './table.ts'

/** A document's revision with this many before it, so that its number in the feed is the last of them. */
function version(id: string, number: number) {
  const ids = Array.from({ length: number }, (_, i) => `${id}${number - i}`)
  return { _id: id, _revisions: { start: number, ids } }
}

/** `a` at 6, `b`, which is deleted, at 7, and `c` at 8. */
export const THREE: readonly Ask[] = [
  ...[1, 2, 3, 4, 5].map((number) => stored(version('c', number))),
  stored(version('a', 1), { ...version('b', 1), _deleted: true }, version('c', 6)),
]

export const A = { seq: /^6-/, id: 'a', changes: [{ rev: '1-a1' }] }
export const B = { seq: /^7-/, id: 'b', changes: [{ rev: '1-b1' }], deleted: true }
export const C = { seq: /^8-/, id: 'c', changes: [{ rev: '6-c6' }] }

/** Keeps the place of `a` in the feed as `{six}`. */
export const SIX: Ask = ['GET /{db}/_changes?limit=1', { keep: { six: 'last_seq' } }]

/** What a normal feed and a longpoll say. */
export function feed(results: readonly unknown[], last: number, pending: number): Answer {
  return { json: { results, last_seq: new RegExp(`^${last}-`), pending } }
}

/** What a continuous feed says until it ends. */
export function lines(rows: readonly unknown[], last: number, pending: number): Answer {
  return { lines: [...rows, { last_seq: new RegExp(`^${last}-`), pending }] }
}

/** What an event stream says. */
export function events(...rows: readonly { readonly seq: unknown }[]): Answer {
  return { events: rows.map((data) => ({ data, id: data.seq })) }
}

/** A configuration value for the requests that follow; the row must set it back by {@link unset}. */
export function set(key: string, value: string): Ask {
  return [`PUT /_node/_local/_config/${key}`, { json: value }]
}

export function unset(key: string): Ask {
  return `DELETE /_node/_local/_config/${key}`
}
