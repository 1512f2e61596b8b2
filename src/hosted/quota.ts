/** How much an account may have: the defaults of section `[quota]`, and what an admin has set for one account. */
import type { Config } from '../config/config.ts'
import { CouchError } from '../core/errors.ts'
import { isJsonObject } from '../core/json-object.ts'

/** Infinity where there is no limit. */
export interface Quota {
  /** Bytes of all databases together, as `sizes.active` counts them: with revisions that are not compacted yet. */
  readonly bytes: number
  /** Live documents in all databases together. */
  readonly documents: number
  readonly databases: number
  /** Bytes of JSON in one document. */
  readonly document_size: number
  /** Requests a second. */
  readonly requests: number
  /** Feeds that wait, at once. */
  readonly feeds: number
}

export type QuotaName = keyof Quota

/** What was set for one account, by name; the rest is as the configuration says. */
export type QuotaOverrides = Partial<Quota>

/** A change of overrides: a number sets one, null takes it back. */
export type QuotaChange = Partial<Record<QuotaName, number | null>>

/** The least value of each: an account that may make no request or wait for nothing is one to be suspended. */
const LEAST: Quota = { bytes: 0, documents: 0, databases: 0, document_size: 1, requests: 1, feeds: 1 }

const NAMES = Object.keys(LEAST) as QuotaName[]

/** @returns what every account may have, as the configuration is now */
export function defaultQuota(config: Config): Quota {
  return fromNames((name) => config.bytes('quota', name))
}

/** @returns the quota of an account with these overrides */
export function quotaWith(defaults: Quota, overrides: QuotaOverrides): Quota {
  return { ...defaults, ...overrides }
}

/** @returns the overrides after a change */
export function changedOverrides(overrides: QuotaOverrides, change: QuotaChange): QuotaOverrides {
  const merged = Object.entries({ ...overrides, ...change })
  return Object.fromEntries(merged.filter(([, value]) => value !== null)) as QuotaOverrides
}

/**
 * Reads what a client wants set.
 * @param value whole numbers, `"infinity"`, or null for the default, by name
 * @throws bad_request
 */
export function readQuota(value: unknown): QuotaChange {
  if (!isJsonObject(value)) throw new CouchError('bad_request', '`quota` must be a JSON object.')
  return Object.fromEntries(Object.entries(value).map(([name, limit]) => [name, readLimit(name, limit)]))
}

function readLimit(name: string, limit: unknown): number | null {
  if (!isQuotaName(name)) {
    throw new CouchError(
      'bad_request',
      `\`quota\` knows ${NAMES.join(', ')}, and no \`${name.slice(0, 256)}\`.`,
    )
  }
  if (limit === null) return null
  if (limit === 'infinity') return Infinity
  if (Number.isSafeInteger(limit) && (limit as number) >= LEAST[name]) return limit as number
  throw new CouchError(
    'bad_request',
    `\`${name}\` must be a whole number, at least ${LEAST[name]}, or "infinity", or null for the default.`,
  )
}

function isQuotaName(name: string): name is QuotaName {
  return Object.hasOwn(LEAST, name)
}

/** The same as JSON that {@link readQuota} reads: it has no Infinity. */
export function shownQuota(quota: Partial<Quota>): Record<string, number | 'infinity'> {
  return Object.fromEntries(
    Object.entries(quota).map(([name, limit]) => [name, limit === Infinity ? 'infinity' : limit]),
  )
}

function fromNames(limitOf: (name: QuotaName) => number): Quota {
  return Object.fromEntries(NAMES.map((name) => [name, limitOf(name)])) as unknown as Quota
}
