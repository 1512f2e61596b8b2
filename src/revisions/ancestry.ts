/**
 * The bytes an engine stores a branch's ids as. The first byte names the form:
 *
 *   1  every id is 32 lower-case hex digits: 16 bytes each, nothing between them
 *   2  mixed: before each id two bytes, big-endian: 65535 for 16 bytes of hex, else the length of its UTF-8 text
 *
 * Almost every ancestry is of form 1, and is turned by a single hex conversion.
 */
const HEX_FORM = 1
const MIXED_FORM = 2
const HEX_BYTES = 16
const HEX_MARK = 0xffff
const HEX_DIGITS = 32
const HEX_ID = /^[0-9a-f]{32}$/

/**
 * @param ids newest first, as `Branch.ids`
 * @throws RangeError for an id of 65,535 bytes or more, which `normalizeRevId` never lets in
 */
export function encodeAncestry(ids: readonly string[]): Uint8Array {
  const hex = ids.every((id) => id.length === HEX_DIGITS) ? encodeHex(ids.join('')) : undefined
  return hex ?? Buffer.concat([Uint8Array.of(MIXED_FORM), ...ids.map(encodeMixed)])
}

/**
 * The ids that `encodeAncestry` was given.
 *
 * @throws RangeError for bytes it did not make
 */
export function decodeAncestry(bytes: Uint8Array): string[] {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  if (buffer[0] === HEX_FORM && buffer.length % HEX_BYTES === 1) return decodeHex(buffer)
  if (buffer[0] === MIXED_FORM) return decodeMixed(buffer)
  throw damaged()
}

/**
 * How many ids `encodeAncestry` was given; decodes none of them.
 *
 * @throws RangeError for bytes it did not make
 */
export function ancestryLength(bytes: Uint8Array): number {
  if (bytes[0] === HEX_FORM) return (bytes.length - 1) / HEX_BYTES
  let count = 0
  for (let at = 1; at < bytes.length; at = mixedEnd(bytes, at)) count += 1
  return count
}

/**
 * One of the ids that `encodeAncestry` was given; decodes no other.
 *
 * @param index 0 for the newest
 * @returns undefined when there are not so many
 * @throws RangeError for bytes it did not make
 */
export function ancestryId(bytes: Uint8Array, index: number): string | undefined {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  if (buffer[0] === HEX_FORM) {
    const at = 1 + index * HEX_BYTES
    return at < buffer.length ? buffer.toString('hex', at, at + HEX_BYTES) : undefined
  }
  let at = 1
  for (let left = index; left > 0 && at < buffer.length; left--) at = mixedEnd(buffer, at)
  return at < buffer.length ? mixedId(buffer, at, mixedEnd(buffer, at)) : undefined
}

function encodeHex(digits: string): Uint8Array | undefined {
  const buffer = Buffer.allocUnsafe(1 + digits.length / 2)
  buffer[0] = HEX_FORM
  buffer.write(digits, 1, 'hex')
  // Converting back finds upper case and what is no hex in a third of the time a regular expression takes.
  return buffer.toString('hex', 1) === digits ? buffer : undefined
}

function encodeMixed(id: string): Buffer {
  const isHex = HEX_ID.test(id)
  const text = Buffer.from(id, isHex ? 'hex' : 'utf8')
  if (text.length >= HEX_MARK) throw new RangeError('A revision id has less than 65,535 bytes.')
  const head = Buffer.alloc(2)
  head.writeUInt16BE(isHex ? HEX_MARK : text.length)
  return Buffer.concat([head, text])
}

function decodeHex(buffer: Buffer): string[] {
  const digits = buffer.toString('hex', 1)
  const ids: string[] = []
  for (let at = 0; at < digits.length; at += HEX_DIGITS) ids.push(digits.slice(at, at + HEX_DIGITS))
  return ids
}

function decodeMixed(buffer: Buffer): string[] {
  const ids: string[] = []
  for (let at = 1; at < buffer.length; ) {
    const end = mixedEnd(buffer, at)
    ids.push(mixedId(buffer, at, end))
    at = end
  }
  return ids
}

/** Where the id that begins here ends. */
function mixedEnd(bytes: Uint8Array, at: number): number {
  if (at + 2 > bytes.length) throw damaged()
  const mark = mixedMark(bytes, at)
  const end = at + 2 + (mark === HEX_MARK ? HEX_BYTES : mark)
  if (end > bytes.length) throw damaged()
  return end
}

function mixedId(buffer: Buffer, at: number, end: number): string {
  return buffer.toString(mixedMark(buffer, at) === HEX_MARK ? 'hex' : 'utf8', at + 2, end)
}

function mixedMark(bytes: Uint8Array, at: number): number {
  return ((bytes[at] as number) << 8) | (bytes[at + 1] as number)
}

function damaged(): RangeError {
  return new RangeError('Stored ancestry is damaged.')
}
