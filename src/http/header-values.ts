/** The header Accept (RFC 9110 12.5.1), where an answer may be multipart. Pure. */
import type { AttachmentAnswer } from '../documents/database.ts'
import type { Piece } from '../documents/pieces.ts'

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

// The header Range, read as CouchDB reads it (protocol.md 7.4, 19.6) and otherwise as RFC 9110 14 says. Pure.

/** Offsets of bytes, `end` not included. */
interface ByteRange {
  readonly start: number
  readonly end: number
}

/** Who asks for more ranges than this gets the whole: it costs less. */
const MAX_RANGES = 9

const SPEC = /^(\d*)[ \t]*-[ \t]*(\d*)$/

/**
 * The ranges that a client wants, in its order.
 * @param header as it came
 * @param length bytes that there are
 * @returns `whole`: the header is absent, is not understood, asks for everything or for too many ranges;
 *   `unsatisfiable`: a range is reversed, begins behind the end, or is empty, which is answered 416
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

/** The numbers of each range as text, one of the two maybe empty; null when the header is not understood. */
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

/** May come out empty or reversed. */
function rangeOf(first: string, last: string, length: number): ByteRange {
  if (first === '') return { start: Math.max(0, length - Number(last)), end: length }
  return { start: Number(first), end: last === '' ? length : Math.min(Number(last) + 1, length) }
}

/**
 * Whether the header If-Range lets ranges count: it is absent, or names just this content. A date never does, since
 * no answer carries one to compare it with.
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
 * Several ranges as multipart/byteranges, framed as CouchDB does it.
 * @param type what can stand in a header
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
