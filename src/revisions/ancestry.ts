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
  let at = 1
  while (at < buffer.length) {
    if (at + 2 > buffer.length) throw damaged()
    const length = buffer.readUInt16BE(at)
    const isHex = length === HEX_MARK
    const end = at + 2 + (isHex ? HEX_BYTES : length)
    if (end > buffer.length) throw damaged()
    ids.push(buffer.toString(isHex ? 'hex' : 'utf8', at + 2, end))
    at = end
  }
  return ids
}

function damaged(): RangeError {
  return new RangeError('Stored ancestry is damaged.')
}
