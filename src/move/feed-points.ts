/**
 * Which numbers of the local feed stand for which positions of the old one. Pure.
 *
 * A device that has everything up to a position needs every document that follows there. So the position may stand for
 * a local number only if each of these documents has a greater one: the smallest of them decides. It does not matter
 * in which order the documents were copied, nor whether some of them were here before.
 */
import type { Position } from '../replication/requests/replication-request.ts'

export interface FeedPoint {
  readonly token: string
  /** The local number after which a device with this token goes on. */
  readonly seq: number
}

interface Segment {
  /** The number of rows before it. */
  readonly at: number
  /** null: the beginning of the feed. */
  readonly token: Position | null
  /** The smallest local number of the rows from this position to the next one; Infinity without rows. */
  least: number
}

/** Positions that are kept. Beyond them, those of the older half become fewer. */
const MAX_POINTS = 4000

/** Collects the rows of the old feed in its order. */
export class FeedPoints {
  #segments: Segment[] = [{ at: 0, token: null, least: Number.POSITIVE_INFINITY }]
  #rows = 0
  /** Older positions are kept at multiples of this. */
  #stride = 1
  readonly #maxPoints: number

  constructor(maxPoints = MAX_POINTS) {
    this.#maxPoints = maxPoints
  }

  /**
   * @param token the position after the row; null: the server does not say
   * @param seq the local number of its document; Infinity: it is not here, and will get a greater number than all others
   */
  add(token: Position | null, seq: number): void {
    const last = this.#segments.at(-1) as Segment
    last.least = Math.min(last.least, seq)
    this.#rows += 1
    if (token === null) return
    this.#segments.push({ at: this.#rows, token, least: Number.POSITIVE_INFINITY })
    if (this.#segments.length > this.#maxPoints) this.#thinOut()
  }

  /** Adds a local number to a row that was added before. @param row its number, from 1 on */
  include(row: number, seq: number): void {
    const segment = this.#segments.findLast(({ at }) => at < row) as Segment
    segment.least = Math.min(segment.least, seq)
  }

  /**
   * @param end the last number of the local feed before the rows were read, or one before the first local document that
   *   the old database lacks
   * @returns the points, in the order of the feed
   */
  list(end: number): readonly FeedPoint[] {
    const points: FeedPoint[] = []
    let least = end + 1
    for (const { token, least: here } of [...this.#segments].reverse()) {
      least = Math.min(least, here)
      if (token !== null) points.push({ token: String(token), seq: least - 1 })
    }
    return points.reverse()
  }

  /** Most devices are near the end of the feed, so all positions there are kept. */
  #thinOut(): void {
    const middle = this.#segments.length >> 1
    const newer = this.#segments.slice(middle)
    let older = this.#segments.slice(0, middle)
    const most = this.#maxPoints >> 2
    for (older = spaced(older, this.#stride); older.length > most; older = spaced(older, this.#stride)) {
      this.#stride *= 2
    }
    this.#segments = [...older, ...newer]
  }
}

/** @returns the first segment and those at multiples of the stride; others join the one before */
function spaced(segments: readonly Segment[], stride: number): Segment[] {
  const kept: Segment[] = []
  for (const segment of segments) {
    const before = kept.at(-1)
    if (before === undefined || segment.at % stride === 0) kept.push(segment)
    else before.least = Math.min(before.least, segment.least)
  }
  return kept
}
