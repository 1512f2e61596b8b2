/** What CouchDB counts of requests, as sums of what settee counts by route, method and status. */
import { addHistograms, Histogram, type HistogramCounts } from '../../core/histogram.ts'
import type { HttpCounts, RequestCount } from './measurements.ts'

/** Upper bounds of a request's duration, in seconds. */
export const REQUEST_SECONDS: readonly number[] = [
  0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30,
]

/** The routes of views. */
export const VIEWS: RegExp = /^\/:db\/_design\/:ddoc\/_view\/:view(?:\/queries)?$/

const NOTHING = new Histogram(REQUEST_SECONDS).counts()

/** How many requests `fits` holds for. */
export function requestsBy({ requests }: HttpCounts, fits: (request: RequestCount) => boolean): number {
  return requests.reduce((sum, request) => sum + (fits(request) ? request.count : 0), 0)
}

/** How many requests there were of each name that `nameOf` gives; null: they are left out. */
export function requestsOf(
  { requests }: HttpCounts,
  nameOf: (request: RequestCount) => string | null,
): Map<string, number> {
  const sums = new Map<string, number>()
  for (const request of requests) {
    const name = nameOf(request)
    if (name !== null) sums.set(name, (sums.get(name) ?? 0) + request.count)
  }
  return sums
}

/** How many answers there were of each status. */
export function statusesOf(http: HttpCounts): Map<string, number> {
  return requestsOf(http, ({ status }) => (status === null ? null : String(status)))
}

/** How many feeds wait for changes. */
export function clientsOfFeeds({ openFeeds }: HttpCounts): number {
  const { longpoll = 0, continuous = 0, eventsource = 0 } = openFeeds
  return longpoll + continuous + eventsource
}

/** How long requests took, all together. */
export function requestSeconds({ durations }: HttpCounts): HistogramCounts {
  return durations.reduce((sum, { seconds }) => addHistograms(sum, seconds), NOTHING)
}
