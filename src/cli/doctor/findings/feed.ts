import { advise } from '../advice.ts'
import { type Finding, fine, note, toYou, wrong } from '../finding.ts'
import { toldFailure } from '../quote.ts'
import type { Scene } from '../scene.ts'
import { GATEWAY } from './server.ts'

/** A longpoll that nothing but heartbeats can reach. Times in ms since it was asked. */
export interface FeedFacts {
  readonly heartbeatMs: number
  /** How long was waited at the most. */
  readonly watchedMs: number
  /** null: no head came. */
  readonly status: number | null
  /** When bytes came, each turn of the event loop once. */
  readonly arrivals: readonly number[]
  /** How it ended by itself; null: it did not. */
  readonly ended: 'order' | 'cut' | null
  readonly failure: string | null
}

/** Arrivals closer to one another than this share of a heartbeat are one. */
const APART = 0.3
/** A beat may be late by this much of itself. */
export const LATE = 2.5

/** Judges whether the feed passes at once, or is kept back until there is more of it. */
export function judgeFeed(facts: FeedFacts, { stage, quote }: Scene): Finding {
  const { status, arrivals, ended, failure, heartbeatMs, watchedMs } = facts
  if (status !== null && status !== 200) return judgeStatus(status, stage)
  if (failure !== null) {
    return wrong('feed', `_changes fails: ${toldFailure(failure, quote)}.`, advise('cut', stage, 'proxy'))
  }
  const [first] = arrivals
  const beat = `a heartbeat every ${seconds(heartbeatMs)} was asked for`
  if (ended !== null) {
    const how = ended === 'cut' ? 'was cut' : 'was ended'
    return wrong(
      'feed',
      `_changes ${how} at once, though nothing had changed.`,
      advise('cut', stage, 'proxy'),
    )
  }
  if (first === undefined) {
    return wrong(
      'feed',
      `Nothing of _changes came in ${seconds(watchedMs)}, though ${beat}: a proxy keeps it back, so changes come late.`,
      advise('buffering', stage, 'proxy'),
    )
  }
  const gaps = gapsOf(arrivals, heartbeatMs, watchedMs)
  const still = Math.max(first, ...gaps)
  if (still > heartbeatMs * LATE) {
    if (stage.server === 'PouchDB Server') return note('feed', POUCH)
    return wrong(
      'feed',
      `_changes stood still for ${seconds(still)}, though ${beat}: a proxy keeps it back.`,
      advise('buffering', stage, 'proxy'),
    )
  }
  return fine(
    'feed',
    `Not kept back: first byte after ${Math.round(first)} ms, then every ${seconds(Math.max(...gaps))}.`,
  )
}

/** It sends the first bytes at once, and then one every 6 s, whatever was asked for (express-pouchdb, routes/changes.js). */
const POUCH =
  'PouchDB Server sends a heartbeat every 6 s only: whether a proxy keeps the feed back cannot be seen.'

/** The database has answered before: what is wrong is about `_changes` alone. */
function judgeStatus(status: number, stage: Scene['stage']): Finding {
  const text = `_changes answers ${status}.`
  if (status === 504 || status === 524) return wrong('feed', text, advise('cut', stage, 'proxy'))
  if (GATEWAY.has(status)) return wrong('feed', text, advise('upstream', stage, 'proxy'))
  return wrong('feed', text, toYou('Look for a rule about _changes in what stands before the server.'))
}

/** @returns when beats came: what comes with another, such as the head's first byte, is one with it */
export function beatsOf(arrivals: readonly number[], heartbeatMs: number): number[] {
  return arrivals.filter(
    (at, index) => at - (arrivals[index - 1] ?? Number.NEGATIVE_INFINITY) > heartbeatMs * APART,
  )
}

/** Between beats, and the silence at the end where it is longer than it may be. */
function gapsOf(arrivals: readonly number[], heartbeatMs: number, watchedMs: number): number[] {
  const beats = beatsOf(arrivals, heartbeatMs)
  const gaps = beats.slice(1).map((at, index) => at - beats[index]!)
  const silence = watchedMs - (arrivals.at(-1) ?? 0)
  return gaps.length === 0 || silence > heartbeatMs * LATE ? [...gaps, silence] : gaps
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`
}
