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
  /** null: the beginning of the feed. */
  readonly token: Position | null
  /** The smallest local number of the rows from this position to the next one; Infinity without rows. */
  least: number
}

/** Positions that are kept; beyond them, those of the older half become half as many. */
const MAX_POINTS = 4000

/** Collects the rows of the old feed in its order. */
export class FeedPoints {
  #segments: Segment[] = [{ token: null, least: Number.POSITIVE_INFINITY }]
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
    if (token === null) return
    this.#segments.push({ token, least: Number.POSITIVE_INFINITY })
    if (this.#segments.length > this.#maxPoints) this.#thinOut()
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

  /** Most devices are near the end of the feed, so positions there are kept longest. */
  #thinOut(): void {
    const middle = this.#segments.length >> 1
    const older: Segment[] = []
    for (const [at, segment] of this.#segments.slice(0, middle).entries()) {
      const before = older.at(-1)
      if (at % 2 === 0 || before === undefined) older.push(segment)
      else before.least = Math.min(before.least, segment.least)
    }
    this.#segments = [...older, ...this.#segments.slice(middle)]
  }
}
