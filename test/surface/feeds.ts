/** For the tables about `_changes`: the database of protocol.md 19.5, and the forms of answers. */
import type { Answer } from './answers.ts'
import { type Ask, stored } from './table.ts'

/** A document whose last revision has this many before it, which gives its sequence number in the feed. */
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

/** Keeps the sequence of `a` in the feed as `{six}`. */
export const SIX: Ask = ['GET /{db}/_changes?limit=1', { keep: { six: 'last_seq' } }]

/** The answer of a normal feed and of a longpoll. */
export function feed(results: readonly unknown[], last: number, pending: number): Answer {
  return { json: { results, last_seq: new RegExp(`^${last}-`), pending } }
}

/** The answer of a continuous feed until its end. */
export function lines(rows: readonly unknown[], last: number, pending: number): Answer {
  return { lines: [...rows, { last_seq: new RegExp(`^${last}-`), pending }] }
}

/** The answer of an event stream. */
export function events(...rows: readonly { readonly seq: unknown }[]): Answer {
  return { events: rows.map((data) => ({ data, id: data.seq })) }
}

/** A configuration value for the next requests; the row must reset it with {@link unset}. */
export function set(key: string, value: string): Ask {
  return [`PUT /_node/_local/_config/${key}`, { json: value }]
}

export function unset(key: string): Ask {
  return `DELETE /_node/_local/_config/${key}`
}
