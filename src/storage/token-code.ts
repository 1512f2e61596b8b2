/**
 * The codes of sequence tokens: HalfSipHash-2-4, a keyed hash for short texts (https://github.com/veorq/SipHash). Each row of a feed
 * has a token, and a hash of SHA-256 took half as long as all else of the row.
 */
import { hash } from 'node:crypto'

/** A key of 64 bits. */
export type CodeKey = readonly [number, number]

/** The key of the codes of one epoch. @param secret of the database */
export function codeKey(secret: string, epoch: string): CodeKey {
  const bytes = hash('sha256', `${secret} ${epoch}`, 'buffer')
  return [bytes.readInt32LE(0), bytes.readInt32LE(4)]
}

export const CODE_LENGTH = 5
const DIGITS = Buffer.from('ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_')

/** @param seq from 0 to 2^53 - 1 @returns 30 bits of its hash, in base64url */
export function codeOf(key: CodeKey, seq: number): string {
  const bits = halfSipHash(key, seq | 0, (seq / 2 ** 32) | 0)
  // One call: texts of one or two digits put together took longer than the hash.
  return String.fromCharCode(
    digit(bits >>> 26),
    digit(bits >>> 20),
    digit(bits >>> 14),
    digit(bits >>> 8),
    digit(bits >>> 2),
  )
}

function digit(bits: number): number {
  return DIGITS[bits & 63] as number
}

/** The length of what is hashed, in bytes, in the highest byte of a word. */
const LENGTH = 8 << 24

/** The hash of eight bytes, all as words of 32 bits, the lower first. One loop: functions took three times as long. */
export function halfSipHash(key: CodeKey, low: number, high: number): number {
  let a = key[0]
  let b = key[1]
  let c = key[0] ^ 0x6c796765
  let d = key[1] ^ 0x74656462
  for (let round = 0; round < 10; round++) {
    switch (round) {
      case 0:
        d ^= low
        break
      case 2:
        a ^= low
        d ^= high
        break
      case 4:
        a ^= high
        d ^= LENGTH
        break
      case 6:
        a ^= LENGTH
        c ^= 0xff
    }
    a = (a + b) | 0
    b = ((b << 5) | (b >>> 27)) ^ a
    a = (a << 16) | (a >>> 16)
    c = (c + d) | 0
    d = ((d << 8) | (d >>> 24)) ^ c
    a = (a + d) | 0
    d = ((d << 7) | (d >>> 25)) ^ a
    c = (c + b) | 0
    b = ((b << 13) | (b >>> 19)) ^ c
    c = (c << 16) | (c >>> 16)
  }
  return b ^ d
}
