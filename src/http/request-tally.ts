/**
 * Counts requests as they end. It is asked with every request, so it makes nothing then: each route has counters of its
 * own, found when the route is registered, and labels are put together only when somebody asks for the metrics.
 */
import { Histogram } from '../core/histogram.ts'
import { REQUEST_SECONDS } from '../maintenance/metrics/http-sums.ts'
import type { HttpCounts, RequestCount } from '../maintenance/metrics/measurements.ts'

/** Methods that have a name in the metrics; any other that Node reads is `OTHER`. */
const METHODS = [
  'OTHER',
  'GET',
  'HEAD',
  'POST',
  'PUT',
  'DELETE',
  'COPY',
  'PATCH',
  'OPTIONS',
  'TRACE',
] as const
const METHOD_PLACES: ReadonlyMap<string, number> = new Map(METHODS.map((method, at) => [method, at]))

/** Of requests that no route was found for. */
const NO_ROUTE = 'none'
/** Stands for the status of a request whose client was gone before it was answered. */
const ABORTED = 0
/** More than any status. */
const STATUSES = 1000

/** Routes whose requests take about as long as each other, by pattern; the first that fits. */
const CLASSES: readonly (readonly [RegExp, string])[] = [
  [/^\/:db\/_bulk_docs$/, 'bulk_docs'],
  [/^\/:db\/_bulk_get$/, 'bulk_get'],
  [/^\/:db\/_(?:revs_diff|missing_revs)$/, 'revs_diff'],
  [/^\/:db\/_(?:all|design|local)_docs(?:\/|$)/, 'all_docs'],
  [/^\/:db\/_find$/, 'find'],
  [/^\/(?::db\/_changes|_db_updates)$/, 'changes'],
  [/^\/:db\/_design\/:ddoc\/_view\//, 'view'],
  [/^\/:db\/_local\/:local$/, 'local_document'],
  [/^\/:db\/(?::docid|_design\/:ddoc)$/, 'document'],
  [/^\/:db\/(?::docid|_design\/:ddoc)\/\*$/, 'attachment'],
  [/^\/:db(?:\/|$)/, 'database'],
  [/^\//, 'server'],
]

type Durations = Map<string, Histogram>

/** The counters of one route. */
export class RouteTally {
  readonly route: string
  /** By method and status. */
  readonly #counts = new Map<number, number>()
  /** By method; shared by the routes of a class. */
  readonly #durations: Durations

  constructor(route: string, durations: Durations) {
    this.route = route
    this.#durations = durations
  }

  /**
   * A request is over.
   * @param status null: it was not answered
   * @param ms from its head to the end of its answer; null: it waited for changes, so that this says nothing
   */
  add(method: string, status: number | null, ms: number | null): void {
    const place = METHOD_PLACES.get(method) ?? 0
    const key = place * STATUSES + (status ?? ABORTED)
    this.#counts.set(key, (this.#counts.get(key) ?? 0) + 1)
    if (ms === null) return
    const name = METHODS[place] as string
    let durations = this.#durations.get(name)
    if (durations === undefined) {
      durations = new Histogram(REQUEST_SECONDS)
      this.#durations.set(name, durations)
    }
    durations.add(ms / 1000)
  }

  /** What was counted so far. */
  counts(): RequestCount[] {
    return [...this.#counts].map(([key, count]) => {
      const status = key % STATUSES
      const method = METHODS[Math.floor(key / STATUSES)] as string
      return { route: this.route, method, status: status === ABORTED ? null : status, count }
    })
  }
}

export class RequestTally {
  readonly #routes = new Map<string, RouteTally>()
  readonly #classes = new Map<string, Durations>()
  readonly #feeds = new Map<string, number>()
  /** Of requests that no route was found for. */
  readonly noRoute: RouteTally = this.route(NO_ROUTE)
  broken = 0
  invalid = 0
  underWay = 0

  /** The counters of a route, the same for each of its methods. @param pattern as it is registered */
  route(pattern: string): RouteTally {
    const known = this.#routes.get(pattern)
    if (known !== undefined) return known
    const made = new RouteTally(pattern, this.#durationsOf(classOf(pattern)))
    this.#routes.set(pattern, made)
    return made
  }

  #durationsOf(name: string): Durations {
    const known = this.#classes.get(name) ?? new Map<string, Histogram>()
    this.#classes.set(name, known)
    return known
  }

  /** Counts a feed of some kind as open while it is sent. */
  async whileOpen(kind: string, send: () => Promise<void>): Promise<void> {
    this.#feeds.set(kind, this.#feed(kind) + 1)
    try {
      await send()
    } finally {
      this.#feeds.set(kind, this.#feed(kind) - 1)
    }
  }

  #feed(kind: string): number {
    return this.#feeds.get(kind) ?? 0
  }

  /** What was counted so far. */
  counts(): Pick<HttpCounts, 'requests' | 'durations' | 'openFeeds' | 'broken' | 'invalid' | 'underWay'> {
    const durations = [...this.#classes].flatMap(([name, methods]) =>
      [...methods].map(([method, seconds]) => ({ class: name, method, seconds: seconds.counts() })),
    )
    const { broken, invalid, underWay } = this
    const requests = [...this.#routes.values()].flatMap((route) => route.counts())
    return { requests, durations, openFeeds: this.#openFeeds(), broken, invalid, underWay }
  }

  #openFeeds(): Record<string, number> {
    const { normal = 0, longpoll = 0, continuous = 0, eventsource = 0 } = Object.fromEntries(this.#feeds)
    return { normal, longpoll, continuous, eventsource }
  }
}

function classOf(pattern: string): string {
  return CLASSES.find(([fits]) => fits.test(pattern))?.[1] ?? NO_ROUTE
}
