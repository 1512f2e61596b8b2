/** The header Range, read as CouchDB reads it (protocol.md 7.4, 19.6) and otherwise as RFC 9110 14 says. Pure. */
import type { AttachmentAnswer } from '../documents/database.ts'
import type { Piece } from '../documents/pieces.ts'

/** Offsets of bytes, `end` not included. */
export interface ByteRange {
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
