/** The header Accept (RFC 9110 12.5.1), where an answer may be multipart. Pure. */

export type MultipartType = 'multipart/related' | 'multipart/mixed'

const MULTIPART_TYPES: readonly MultipartType[] = ['multipart/related', 'multipart/mixed']

/**
 * Whether an answer is to be multipart: only if the client names a multipart type, takes this one, and does not prefer
 * JSON. CouchDB sends multipart for any type and for none as well, which surprises people who look at a document with
 * curl or a browser.
 */
export function wantsMultipart(accept: string | undefined, type: MultipartType): boolean {
  const weights = parseRanges(accept)
  if (!MULTIPART_TYPES.some((each) => (weights.get(each) ?? 0) > 0)) return false
  const weight = weightOf(weights, type)
  return weight > 0 && weight >= (weights.get('application/json') ?? 0)
}

/** The multipart type for `_bulk_get`, whose clients must rule out JSON to get one (protocol.md 4.2); null: JSON. */
export function bulkMultipart(accept: string | undefined): MultipartType | null {
  const weights = parseRanges(accept)
  if (weights.size === 0 || weightOf(weights, 'application/json') > 0) return null
  if (weightOf(weights, 'multipart/mixed') > 0) return 'multipart/mixed'
  return weightOf(weights, 'multipart/related') > 0 ? 'multipart/related' : null
}

/** The weight of each range, without its other parameters; of a repeated one the greatest. */
function parseRanges(accept = ''): ReadonlyMap<string, number> {
  const weights = new Map<string, number>()
  for (const part of accept.toLowerCase().split(',')) {
    const [range = '', ...parameters] = part.split(';').map((text) => text.trim())
    if (range === '') continue
    const weight = parameters.find((text) => text.startsWith('q='))
    const value = weight === undefined ? 1 : Number(weight.slice(2))
    weights.set(range, Math.max(weights.get(range) ?? 0, Number.isFinite(value) ? value : 0))
  }
  return weights
}

/** By the most specific range that covers the type. */
function weightOf(weights: ReadonlyMap<string, number>, type: string): number {
  const [family = ''] = type.split('/', 1)
  return weights.get(type) ?? weights.get(`${family}/*`) ?? weights.get('*/*') ?? 0
}
