/**
 * The codes of sequence tokens: HalfSipHash-2-4, a keyed hash for short texts (https://github.com/veorq/SipHash). Each row of a feed
 * has a token, and a hash of SHA-256 took half as long as all else of the row.
 */
import { hash } from 'node:crypto'

const DIGITS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'

/** A key of 64 bits. */
export type CodeKey = readonly [number, number]

/** The key of the codes of one epoch. @param secret of the database */
export function codeKey(secret: string, epoch: string): CodeKey {
  const bytes = hash('sha256', `${secret} ${epoch}`, 'buffer')
  return [bytes.readInt32LE(0), bytes.readInt32LE(4)]
}

/** @param seq from 0 to 2^53 - 1 @returns 36 bits of its hash, as 6 characters of base64url */
export function codeOf(key: CodeKey, seq: number): string {
  const [first, second] = halfSipHash(key, seq | 0, (seq / 2 ** 32) | 0)
  return (
    digit(first) +
    digit(first >>> 6) +
    digit(first >>> 12) +
    digit(first >>> 18) +
    digit(first >>> 24) +
    digit(second)
  )
}

function digit(bits: number): string {
  return DIGITS[bits & 63] as string
}

/** The length of what is hashed, in bytes, in the highest byte of a word. */
const LENGTH = 8 << 24

/** The hash of eight bytes, all as words of 32 bits, the lower first. One loop: functions took three times as long. */
export function halfSipHash([k0, k1]: CodeKey, low: number, high: number): [number, number] {
  let a = k0
  let b = k1 ^ 0xee
  let c = k0 ^ 0x6c796765
  let d = k1 ^ 0x74656462
  let first = 0
  for (let round = 0; round < 14; round++) {
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
        c ^= 0xee
        break
      case 10:
        first = b ^ d
        b ^= 0xdd
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
  return [first, b ^ d]
}
