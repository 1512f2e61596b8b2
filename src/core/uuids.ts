/** New ids as section `[uuids]` configures them and CouchDB 3.5 makes them (couch_uuids; protocol.md 15). */
import { randomBytes, randomInt } from 'node:crypto'
import { newUuid } from './ids.ts'

export const UUID_ALGORITHMS = ['uuid_v7', 'uuid_v4', 'random', 'sequential', 'utc_random', 'utc_id'] as const
export const UUID_FORMATS = ['base_16', 'base_36', 'rfc9562'] as const

/** The configuration of new ids. */
export interface UuidRules {
  readonly algorithm: (typeof UUID_ALGORITHMS)[number]
  /** For versions 4 and 7 only; the other algorithms have one format. */
  readonly format: (typeof UUID_FORMATS)[number]
  /** What `utc_id` appends to the time. */
  readonly utcIdSuffix: string
}

export const DEFAULT_UUID_RULES: UuidRules = { algorithm: 'uuid_v7', format: 'base_16', utcIdSuffix: '' }

/** Digits of the number at the end of a `sequential` id, and the number that leads to a new random prefix. */
const SEQUENCE_DIGITS = 6
const MAX_SEQUENCE = 0xfff000
const MAX_STEP = 0xffd
const TIME_DIGITS = 14

/**
 * Returns a generator of ids.
 * @param rules read for each id
 * @param lane two generators for one database need different lanes: `utc_id` consists of the time in microseconds, and
 *   each lane uses every second value
 * @param now the time in microseconds since 1970
 */
export function uuidMaker(
  rules: () => UuidRules,
  lane: 0 | 1,
  now: () => number = microseconds,
): () => string {
  const sequence = new Sequence()
  let last = 0
  const time = (): string => {
    const current = Math.floor(now() / 2) * 2 + lane
    last = current > last ? current : last + 2
    return last.toString(16).padStart(TIME_DIGITS, '0')
  }
  return () => {
    const { algorithm, format, utcIdSuffix } = rules()
    switch (algorithm) {
      case 'random':
        return randomBytes(16).toString('hex')
      case 'sequential':
        return sequence.next()
      case 'utc_random':
        return time() + randomBytes(9).toString('hex')
      case 'utc_id':
        return time() + utcIdSuffix
      case 'uuid_v4':
        return formatted(uuidV4(), format)
      default:
        return formatted(newUuid(), format)
    }
  }
}

function microseconds(): number {
  return Math.floor((performance.timeOrigin + performance.now()) * 1000)
}

/** A random prefix of 26 hex digits, and a number that grows by random steps. */
class Sequence {
  #prefix = ''
  #number = MAX_SEQUENCE

  next(): string {
    if (this.#number >= MAX_SEQUENCE) {
      this.#prefix = randomBytes(13).toString('hex')
      this.#number = 0
    }
    this.#number += randomInt(1, MAX_STEP + 1)
    return this.#prefix + this.#number.toString(16).padStart(SEQUENCE_DIGITS, '0')
  }
}

/** RFC 9562 5.4, as 32 hex digits. */
function uuidV4(): string {
  const bytes = randomBytes(16)
  bytes[6] = 0x40 | ((bytes[6] as number) & 0x0f)
  bytes[8] = 0x80 | ((bytes[8] as number) & 0x3f)
  return bytes.toString('hex')
}

function formatted(hex: string, format: UuidRules['format']): string {
  if (format === 'base_16') return hex
  if (format === 'base_36') return BigInt(`0x${hex}`).toString(36).padStart(25, '0')
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-')
}
