/**
 * Reads a QR code from its modules (ISO 18004), as far as tests need it: error correction L, bytes, and no wrong
 * modules.
 */

/** Error correction L by version, from 1: correction codewords per block (30 in later versions), and blocks. */
const CORRECTION = [
  ...[7, 10, 15, 20, 26, 18, 20, 24, 30, 18, 20, 24, 26],
  ...[30, 22, 24, 28, 30, 28, 28, 28, 28, 30, 30, 26, 28],
]
const BLOCKS = [
  ...[1, 1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 4, 6, 6, 6, 6, 7, 8],
  ...[8, 9, 9, 10, 12, 12, 12, 13, 14, 15, 16, 17, 18, 19, 19, 20, 21, 22, 24, 25],
]

type Modules = readonly (readonly boolean[])[]

const MASKS: readonly ((x: number, y: number) => boolean)[] = [
  (x, y) => (x + y) % 2 === 0,
  (_, y) => y % 2 === 0,
  (x) => x % 3 === 0,
  (x, y) => (x + y) % 3 === 0,
  (x, y) => (Math.floor(x / 3) + Math.floor(y / 2)) % 2 === 0,
  (x, y) => ((x * y) % 2) + ((x * y) % 3) === 0,
  (x, y) => (((x * y) % 2) + ((x * y) % 3)) % 2 === 0,
  (x, y) => (((x + y) % 2) + ((x * y) % 3)) % 2 === 0,
]

/**
 * @param modules rows from the top, without the quiet zone; dark is true
 * @throws Error if it is not such a code
 */
export function readQrCode(modules: Modules): string {
  const size = modules.length
  const version = (size - 17) / 4
  const dark = (x: number, y: number) => modules[y]?.[x] === true
  if (!Number.isInteger(version) || modules.some((row) => row.length !== size)) throw new Error('no QR code')
  const bits = Uint8Array.from(dataBits(size, version, dark, maskOf(dark)))
  const codewords = Array.from({ length: bits.length >> 3 }, (_, at) => numberOf(bits, at * 8, 8))
  return textOf(dataOf(codewords, version), version)
}

/** The copy of the format next to the top left finder pattern. */
function maskOf(dark: (x: number, y: number) => boolean): number {
  const row = [8, 8, 8, 8, 8, 8, 8, 8, 7, 5, 4, 3, 2, 1, 0]
  const column = [0, 1, 2, 3, 4, 5, 7, 8, 8, 8, 8, 8, 8, 8, 8]
  const found = row.reduce((sum, x, at) => sum + (dark(x, column[at]!) ? 2 ** at : 0), 0) ^ 0x5412
  if (found >> 13 !== 0b01) throw new Error('its error correction is not L')
  return (found >> 10) & 7
}

/** The data modules: two columns at a time from the right, alternately up and down, without function patterns. */
function* dataBits(size: number, version: number, dark: (x: number, y: number) => boolean, mask: number) {
  let isUpward = true
  for (let right = size - 1; right > 0; right -= 2) {
    if (right === 6) right -= 1
    for (let step = 0; step < size; step += 1) {
      const y = isUpward ? size - 1 - step : step
      for (const x of [right, right - 1]) {
        if (!isForm(x, y, size, version)) yield Number(dark(x, y) !== MASKS[mask]!(x, y))
      }
    }
    isUpward = !isUpward
  }
}

function isForm(x: number, y: number, size: number, version: number): boolean {
  const [low, high] = [x < 9, x >= size - 8]
  if ((low && (y < 9 || y >= size - 8)) || (high && y < 9) || x === 6 || y === 6) return true
  if (version >= 7 && ((x < 6 && y >= size - 11) || (y < 6 && x >= size - 11))) return true
  const centres = alignments(version, size)
  const near = (at: number) => centres.find((centre) => Math.abs(centre - at) <= 2)
  const [cx, cy] = [near(x), near(y)]
  if (cx === undefined || cy === undefined) return false
  const first = centres[0]!
  const last = centres.at(-1)!
  return !((cx === first && (cy === first || cy === last)) || (cx === last && cy === first))
}

function alignments(version: number, size: number): number[] {
  if (version === 1) return []
  const count = Math.floor(version / 7) + 2
  const step = version === 32 ? 26 : Math.ceil((version * 4 + 4) / (count * 2 - 2)) * 2
  const behind = Array.from({ length: count - 1 }, (_, at) => size - 7 - at * step)
  return [6, ...behind.reverse()]
}

/** The data of the blocks, which the code interleaves. */
function dataOf(codewords: readonly number[], version: number): Uint8Array {
  const blocks = BLOCKS[version - 1]!
  const correction = CORRECTION[version - 1] ?? 30
  const length = Math.floor(codewords.length / blocks) - correction
  const longer = codewords.length % blocks
  const data: number[][] = Array.from({ length: blocks }, () => [])
  const isLong = (block: number) => block >= blocks - longer
  let at = 0
  for (let place = 0; place <= length; place += 1) {
    for (const [block, own] of data.entries()) if (place < length || isLong(block)) own.push(codewords[at++]!)
  }
  return Uint8Array.from(data.flat())
}

function textOf(data: Uint8Array, version: number): string {
  const bits = Uint8Array.from(
    [...data].flatMap((byte) => [7, 6, 5, 4, 3, 2, 1, 0].map((at) => (byte >> at) & 1)),
  )
  if (numberOf(bits, 0, 4) !== 0b0100) throw new Error('it holds no bytes')
  const width = version < 10 ? 8 : 16
  const length = numberOf(bits, 4, width)
  const bytes = Array.from({ length }, (_, at) => numberOf(bits, 4 + width + at * 8, 8))
  return new TextDecoder('utf-8', { fatal: true }).decode(Uint8Array.from(bytes))
}

function numberOf(bits: Uint8Array, from: number, length: number): number {
  return bits.subarray(from, from + length).reduce((sum, bit) => sum * 2 + bit, 0)
}
