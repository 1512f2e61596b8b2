/** The requests of the diagnosis, sent as a web page. They only collect facts; verdict.ts interprets them. */

import type { Address } from '../../../../src/core/address.ts'
import { MOBILE_DESIGN_ID } from '../../../../src/vaults/livesync.ts'
import { headersOf } from '../sync/remote.ts'

/** How a request ended, as far as a page can know. */
export type Answer =
  | {
      readonly kind: 'answer'
      readonly status: number
      readonly body: Readonly<Record<string, unknown>> | null
    }
  /** The browser does not give a page the cause. */
  | { readonly kind: 'failed' }
  | { readonly kind: 'late' }

export interface Probes {
  readonly isOnline: boolean
  /** The origin of the page, which the server must allow. */
  readonly origin: string
  /** `GET /{db}/` */
  readonly database: Answer
  /** Whether `GET /` gets any answer when the page does not ask to read it; null: not tried. */
  readonly isThere: boolean | null
  /** `GET /{db}/_design/mobile`; null: not tried. */
  readonly design: Answer | null
  /** A feed with a heartbeat of 1 s, until its first byte; `late`: no byte came in time. null: not tried. */
  readonly feed: Answer | null
}

/** What the probes need from the browser. */
export interface Surroundings {
  readonly send: typeof fetch
  readonly isOnline: boolean
  readonly origin: string
  readonly signal: AbortSignal
}

export interface ProbeOptions {
  /** Whether `_design/mobile` is needed. */
  readonly mobile: boolean
  /** Whether to wait for a feed. */
  readonly feed: boolean
}

const ANSWER_MS = 15_000
/** For a feed with a heartbeat every second. */
const FEED_MS = 8_000

/** Sends requests only to `/` and to paths of the address's database. */
export async function probe(address: Address, around: Surroundings, options: ProbeOptions): Promise<Probes> {
  const { isOnline, origin } = around
  const headers = headersOf(address)
  const database = await ask(around, `${address.url}/`, headers)
  const isWell = database.kind === 'answer' && database.status === 200
  const isThere =
    database.kind === 'failed'
      ? await answers(around, address.url.slice(0, address.url.lastIndexOf('/') + 1))
      : null
  const design =
    isWell && options.mobile ? await ask(around, `${address.url}/${MOBILE_DESIGN_ID}`, headers) : null
  const feed = isWell && options.feed ? await feedOf(around, address, headers) : null
  return { isOnline, origin, database, isThere, design, feed }
}

async function ask(around: Surroundings, url: string, headers: Record<string, string>): Promise<Answer> {
  const late = AbortSignal.timeout(ANSWER_MS)
  try {
    const signal = AbortSignal.any([around.signal, late])
    const response = await around.send(url, { headers, signal, credentials: 'omit' })
    return { kind: 'answer', status: response.status, body: objectIn(await response.text()) }
  } catch {
    return { kind: late.aborted ? 'late' : 'failed' }
  }
}

/** A page may send a plain request to any server if it does not ask to read the answer. */
async function answers(around: Surroundings, url: string): Promise<boolean> {
  try {
    const signal = AbortSignal.any([around.signal, AbortSignal.timeout(ANSWER_MS)])
    await around.send(url, { mode: 'no-cors', signal, credentials: 'omit' })
    return true
  } catch {
    return false
  }
}

async function feedOf(
  around: Surroundings,
  address: Address,
  headers: Record<string, string>,
): Promise<Answer> {
  const done = new AbortController()
  const late = AbortSignal.timeout(FEED_MS)
  const signal = AbortSignal.any([around.signal, done.signal, late])
  try {
    const url = `${address.url}/_changes?feed=continuous&since=now&heartbeat=1000`
    const response = await around.send(url, { headers, signal, credentials: 'omit' })
    const first = await response.body?.getReader().read()
    if (first?.value === undefined) return { kind: 'failed' }
    return { kind: 'answer', status: response.status, body: null }
  } catch {
    return { kind: late.aborted ? 'late' : 'failed' }
  } finally {
    done.abort()
  }
}

function objectIn(text: string): Readonly<Record<string, unknown>> | null {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null ? { ...value } : null
  } catch {
    return null
  }
}
