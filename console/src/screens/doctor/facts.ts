/** What the probes find out. */

export interface ServerReply {
  readonly status: number
  /** Names in lower case. A header that was sent twice has both values, with a comma. */
  readonly headers: readonly (readonly [name: string, value: string])[]
  /** Its beginning, by which the pages of proxies are recognised. */
  readonly text: string
  /** undefined: not JSON. */
  readonly json: unknown
  /** When the head arrived, in ms since 1970. */
  readonly at: number
  /** Milliseconds until then. */
  readonly ms: number
  /** As the browser names it, such as `h2`; empty: unknown. */
  readonly protocol: string
}

/** `none`: no answer, for a reason that the browser keeps to itself. `late`: none in time. */
export interface NoReply {
  readonly failure: 'none' | 'late'
}

export type Reply = ServerReply | NoReply

export interface FeedFacts {
  /** null: no answer. */
  readonly status: number | null
  /** When bytes arrived, in ms since the request. */
  readonly arrivals: readonly number[]
  /** `open`: until the page closed it; `order`: the answer was complete; `cut`: it broke off. */
  readonly ended: 'open' | 'order' | 'cut'
  readonly watchedMs: number
  /** The requested interval. */
  readonly heartbeatMs: number
}

export interface BodyFacts {
  readonly bytes: number
  readonly reply: Reply
  readonly ms: number
}
