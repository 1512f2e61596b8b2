/** Quotas: the defaults of section `[quota]`, and overrides that an admin has set for an account. */
import type { Config } from '../config/config.ts'
import { CouchError } from '../core/errors.ts'
import { isJsonObject } from '../core/json.ts'

/** Infinity where there is no limit. */
export interface Quota {
  /** Bytes of all databases together, as `sizes.active` counts them: with revisions that are not compacted yet. */
  readonly bytes: number
  /** Live documents in all databases together. */
  readonly documents: number
  readonly databases: number
  /** Indexes in all databases together. */
  readonly indexes: number
  /** Bytes of JSON in one document. */
  readonly document_size: number
  /** Requests per second. */
  readonly requests: number
  /** Open feeds. */
  readonly feeds: number
  /** Replications at once, where tenants may replicate. */
  readonly replications: number
}

type QuotaName = keyof Quota

/** The values that an admin has set for an account; the configuration has the others. */
export type QuotaOverrides = Partial<Quota>

/** A change of overrides: a number sets one, null removes it. */
export type QuotaChange = Partial<Record<QuotaName, number | null>>

/** The smallest value of each. An account without any requests or feeds should be suspended instead. */
const LEAST: Quota = {
  bytes: 0,
  documents: 0,
  databases: 0,
  indexes: 0,
  document_size: 1,
  requests: 1,
  feeds: 1,
  replications: 0,
}

const NAMES = Object.keys(LEAST) as QuotaName[]

/** @returns the default quota as configured now */
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
 * Reads a change of quotas from a request.
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
      `\`quota\` may have ${NAMES.join(', ')}, but not \`${name.slice(0, 256)}\`.`,
    )
  }
  if (limit === null) return null
  if (limit === 'infinity') return Infinity
  if (Number.isSafeInteger(limit) && (limit as number) >= LEAST[name]) return limit as number
  throw new CouchError(
    'bad_request',
    `\`${name}\` must be a whole number of at least ${LEAST[name]}, "infinity", or null for the default.`,
  )
}

function isQuotaName(name: string): name is QuotaName {
  return Object.hasOwn(LEAST, name)
}

/** @returns the quota as JSON for {@link readQuota}, since JSON has no Infinity */
export function shownQuota(quota: Partial<Quota>): Record<string, number | 'infinity'> {
  return Object.fromEntries(
    Object.entries(quota).map(([name, limit]) => [name, limit === Infinity ? 'infinity' : limit]),
  )
}

function fromNames(limitOf: (name: QuotaName) => number): Quota {
  return Object.fromEntries(NAMES.map((name) => [name, limitOf(name)])) as unknown as Quota
}
