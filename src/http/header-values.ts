/** The headers Accept (RFC 9110 12.5.1), for compressed and multipart answers, and Range (protocol.md 7.4, 19.6; RFC 9110 14). Pure. */
import type { AttachmentAnswer } from '../documents/database.ts'
import type { Piece } from '../documents/pieces.ts'

export type MultipartType = 'multipart/related' | 'multipart/mixed'

/** The ranges that name a multipart type. */
const MULTIPART_RANGES = ['multipart/related', 'multipart/mixed', 'multipart/*'] as const

/**
 * Whether an answer is multipart: only if the client names a multipart type or all of them, accepts this one, and does not prefer JSON.
 * CouchDB sends multipart for any type and without one, which surprises users of curl or a browser.
 */
export function wantsMultipart(accept: string | undefined, type: MultipartType): boolean {
  const weights = readWeights(accept)
  if (!MULTIPART_RANGES.some((each) => (weights.get(each) ?? 0) > 0)) return false
  const weight = weightOf(weights, type)
  return weight > 0 && weight >= (weights.get('application/json') ?? 0)
}

/** The multipart type for `_bulk_get`, whose clients must rule out JSON to get one (protocol.md 4.2); null: JSON. */
export function bulkMultipart(accept: string | undefined): MultipartType | null {
  const weights = readWeights(accept)
  if (weights.size === 0 || weightOf(weights, 'application/json') > 0) return null
  if (weightOf(weights, 'multipart/mixed') > 0) return 'multipart/mixed'
  return weightOf(weights, 'multipart/related') > 0 ? 'multipart/related' : null
}

/**
 * Reads Accept or Accept-Encoding (RFC 9110 12.5.1, 12.5.3).
 * @returns the weight of each media range or coding, without other parameters; the greatest of a repeated one
 */
export function readWeights(accept = ''): ReadonlyMap<string, number> {
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

/** The weight of the most specific range that covers the type. */
function weightOf(weights: ReadonlyMap<string, number>, type: string): number {
  const [family = ''] = type.split('/', 1)
  return weights.get(type) ?? weights.get(`${family}/*`) ?? weights.get('*/*') ?? 0
}

/** Byte offsets; `end` is exclusive. */
interface ByteRange {
  readonly start: number
  readonly end: number
}

/** With more ranges than this, the whole content is sent, which costs less. */
const MAX_RANGES = 9

const SPEC = /^(\d*)[ \t]*-[ \t]*(\d*)$/

/**
 * The requested ranges, in the client's order.
 * @param header the header Range
 * @param length of the content, in bytes
 * @returns `whole`: the header is absent or invalid, or asks for everything or for too many ranges; `unsatisfiable`: a range
 *   is reversed, begins after the end, or is empty, which leads to 416
 */
export function readRanges(
  header: string | undefined,
  length: number,
): 'whole' | 'unsatisfiable' | readonly ByteRange[] {
  const specs = specsOf(header)
  if (specs === null || specs.some(([first, last]) => isZero(first) && last === '')) return 'whole'
  const ranges = specs.map(([first, last]) => rangeOf(first, last, length))
  if (ranges.some(({ start, end }) => start >= end)) return 'unsatisfiable'
  return ranges.length > MAX_RANGES ? 'whole' : ranges
}

/** The numbers of each range as text, of which one may be empty; null if the header is invalid. */
function specsOf(header: string | undefined): [first: string, last: string][] | null {
  const list = /^bytes=(.*)$/i.exec(header?.trim() ?? '')?.[1]
  if (list === undefined) return null
  const specs: [string, string][] = []
  for (const text of list.split(',').map((each) => each.trim())) {
    if (text === '') continue
    const [, first = '', last = ''] = SPEC.exec(text) ?? []
    if (first === '' && last === '') return null
    specs.push([first, last])
  }
  return specs.length === 0 ? null : specs
}

function isZero(digits: string): boolean {
  return /^0+$/.test(digits)
}

/** @returns a range that may be empty or reversed */
function rangeOf(first: string, last: string, length: number): ByteRange {
  if (first === '') return { start: Math.max(0, length - Number(last)), end: length }
  return { start: Number(first), end: last === '' ? length : Math.min(Number(last) + 1, length) }
}

/**
 * Whether ranges apply: If-Range is absent, or names this content. A date never does, since no answer has one to compare
 * with.
 * @param etag with its quotes
 */
export function isRangeOf(ifRange: string | readonly string[] | undefined, etag: string): boolean {
  return ifRange === undefined || String(ifRange).trim() === etag
}

/** The value of Content-Range. */
export function contentRange({ start, end }: ByteRange, length: number): string {
  return `bytes ${start}-${end - 1}/${length}`
}

/**
 * Several ranges as multipart/byteranges, in CouchDB's framing.
 * @param type a valid header value
 */
export function rangePieces(
  content: AttachmentAnswer,
  type: string,
  ranges: readonly ByteRange[],
  boundary: string,
): Piece[] {
  const between = `\r\n--${boundary}`
  const parts = ranges.flatMap((range): Piece[] => {
    const place = contentRange(range, content.length)
    const header = `\r\nContent-Type: ${type}\r\nContent-Range: ${place}\r\n\r\n`
    return [header, { content, form: 'stored', range }, between]
  })
  return [`--${boundary}`, ...parts, '--']
}
