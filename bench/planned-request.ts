/** Requests of a load, and what its clients measure. */

export interface PlannedRequest {
  readonly method: 'GET' | 'PUT' | 'POST'
  readonly path: string
  readonly body?: string
}

/** What a client has measured. Times are in seconds. */
export interface Sent {
  readonly seconds: number
  readonly median: number
  readonly within99: number
  readonly statuses: Readonly<Record<string, number>>
}
