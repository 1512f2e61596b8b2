import { createHmac, hash, randomBytes, randomInt, timingSafeEqual } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import type { Config } from '../config/config.ts'
import { atMost } from '../core/cache.ts'
import { asCouchError, CouchError } from '../core/errors.ts'
import type { WatchedRecords } from '../storage/records.ts'
import type { Account, AccountListener, Accounts } from './accounts.ts'
import { EndedSessions } from './ended-sessions.ts'

/** A cookie that counts. */
interface LiveSession {
  readonly account: Account
  /** A new cookie if this one is due; null: it is not. */
  readonly renewal: string | null
  /** When it expires, in milliseconds since 1970. */
  readonly until: number
  /** Whether its session is known to be open. */
  isOpen(): boolean
}

/** The result of checking a cookie. */
type SessionState =
  | LiveSession
  /** It was valid, but has expired. */
  | 'expired'
  /** Malformed. The client must learn that, or it sends the cookie for ever. */
  | 'malformed'
  /** Signed with another key, or of a deleted account or an ended session. */
  | null

interface SessionOptions {
  readonly config: Config
  readonly accounts: Pick<Accounts, 'find'>
  /** The records of the sessions that were ended. */
  readonly records: WatchedRecords
  /** Called if the secret cannot be stored, or records have a fault. */
  warn(message: string): void
}

/** Sessions that this node knows; the least recently renewed are forgotten first. */
const REMEMBERED = 10_000
/** A cookie is renewed when less than this part of its time is left. */
const RENEWED_BELOW = 0.9
/** Leading zeros that the time of a cookie may have. */
const ZEROS = 32
/** The times of a session's cookies differ by a multiple of this number of seconds, or less for short sessions. */
const MAX_STEP = 32
/** Seconds by which the clocks of nodes may differ, so that cookies that another one is renewing are ended as well. */
const SKEW = 5

/**
 * Sessions as in CouchDB: a signed cookie holds everything, and a new password (so a new salt) ends them. In addition, a
 * session stays ended after a logout, on all nodes and after a restart, which CouchDB's cookie cannot express
 * (docs/decisions/0012). All cookies of a session have one key: the account, the number of zeros before the time, and the
 * remainder of the time. A login takes a key that no session of the account has, as far as this node knows.
 */
export class Sessions {
  readonly #config: Config
  readonly #accounts: Pick<Accounts, 'find'>
  readonly #secret: () => Promise<string>
  readonly #live: LRUCache<string, true>
  readonly #ended: EndedSessions

  constructor({ config, accounts, records, warn }: SessionOptions) {
    this.#config = config
    this.#accounts = accounts
    this.#secret = secretMaker(config, warn)
    this.#live = new LRUCache({ ...atMost(REMEMBERED), ttl: 1 })
    const onFault = (fault: unknown) => warn(`ended sessions: ${asCouchError(fault).message}`)
    this.#ended = new EndedSessions({ records, onFault })
  }

  /**
   * Starts a session.
   * @param account as it was when its password was verified
   * @param now in milliseconds since 1970
   * @returns the cookie's value
   * @throws as `Config.set`, if the secret can be kept neither on disk nor in memory; as `readRecords`
   */
  async open(account: Account, now: number): Promise<string> {
    const secret = await this.#secret()
    const time = Math.floor(now / 1000)
    const first = randomInt(ZEROS)
    for (let tries = 1; ; tries++) {
      const zeros = (first + tries) % ZEROS
      const key = this.#keyOf({ name: account.name, time, zeros })
      // Marked before anything is awaited, so that another login does not take it.
      const isFree = !this.#live.has(key)
      if (isFree) this.#live.set(key, true, { ttl: this.#lifetime })
      if (tries === ZEROS || (isFree && (await this.#ended.of(key)).until < time)) {
        return this.#seal(account, { time, zeros }, secret)
      }
    }
  }

  /**
   * @param value of the cookie
   * @param now in milliseconds since 1970
   * @throws unavailable; as `readRecords`
   */
  async read(value: string, now: number): Promise<SessionState> {
    const text = parseSession(value)
    if (text === null) return 'malformed'
    const secret = sessionSecret(this.#config)
    const account = secret === undefined || text.name === '' ? null : await this.#accounts.find(text.name)
    if (secret === undefined || account === null) return null
    if (!isSealed(text, secret + account.salt, this.#digests) || Number.isNaN(text.time)) return null
    const key = this.#keyOf(text)
    const ended = this.#ended.of(key)
    if (text.time <= (ended instanceof Promise ? await ended : ended).until) return null
    const since = Math.floor(now / 1000) - text.time
    const left = this.#seconds - since
    if (left <= 0) return 'expired'
    const until = (text.time + this.#seconds) * 1000
    const isOpen = () => this.#ended.isOpen(key, text.time)
    if (left >= this.#seconds * RENEWED_BELOW) return { account, renewal: null, until, isOpen }
    this.#live.set(key, true, { ttl: this.#lifetime })
    const time = text.time + since - (since % this.#step)
    return { account, renewal: this.#seal(account, { time, zeros: text.zeros }, secret), until, isOpen }
  }

  /**
   * Ends the session of a cookie that {@link read} accepted; other sessions of the account continue.
   * @param now in milliseconds since 1970
   * @throws as `writeRecords`; the session then goes on
   */
  async end(value: string, now: number): Promise<void> {
    const text = parseSession(value)
    if (text === null) return
    const seconds = Math.floor(now / 1000)
    const until = Math.max(seconds, text.time) + SKEW
    const end = { name: text.name, until, expires: until + this.#seconds }
    await this.#ended.end(this.#keyOf(text), end, seconds)
  }

  /**
   * @param listener called with the accounts whose sessions were ended, but not for expired sessions
   * @returns a function that ends the calls
   */
  onChange(listener: AccountListener): () => void {
    const stops = [
      this.#ended.onChange(listener),
      this.#config.onChange((section, key) => {
        if (key === 'secret' && section === 'chttpd_auth') listener('all')
      }),
    ]
    return () => {
      for (const stop of stops) stop()
    }
  }

  /** Call it before the databases are closed. */
  close(): Promise<void> {
    return this.#ended.close()
  }

  #seal(account: Account, { time, zeros }: Pick<SessionText, 'time' | 'zeros'>, secret: string): string {
    const [digest = 'sha256'] = this.#digests
    const hexTime = '0'.repeat(zeros) + time.toString(16).toUpperCase()
    return sealSession(account.name, hexTime, secret + account.salt, digest)
  }

  /** The same for all cookies of a session, as long as `timeout` does not change to or from less than 320 s. */
  #keyOf({ name, time, zeros }: Pick<SessionText, 'name' | 'time' | 'zeros'>): string {
    return hash('sha256', `${zeros} ${time % this.#step} ${name}`, 'base64url')
  }

  /** A power of two, at most a tenth of a cookie's time: a renewal is never due at once. */
  get #step(): number {
    const most = Math.min(MAX_STEP, this.#seconds * (1 - RENEWED_BELOW))
    return most < 1 ? 1 : 2 ** Math.floor(Math.log2(most))
  }

  get #seconds(): number {
    return this.#config.integer('chttpd_auth', 'timeout')
  }

  /** In milliseconds; 1 s more than a cookie's own time, which counts whole seconds. */
  get #lifetime(): number {
    return (this.#seconds + 1) * 1000
  }

  get #digests(): readonly string[] {
    return digestsOf(this.#config.get('chttpd_auth', 'hash_algorithms') ?? '')
  }
}

// The value of the cookie `AuthSession` as in CouchDB, so that sessions survive a move: base64url of
// `name:HEXTIME:MAC`, with the bytes of the MAC; protocol.md 11.3.

/** A well-formed value; {@link isSealed} says whether it is valid. */
interface SessionText {
  /** Empty if it is not UTF-8; no account has an empty name. */
  readonly name: string
  /** When it was made, in seconds since 1970; NaN if that is not a number. */
  readonly time: number
  /** Digits 0 before it. */
  readonly zeros: number
  /** `name:HEXTIME`, the text that the MAC signs. */
  readonly signed: Buffer
  readonly mac: Buffer
}

const BASE64 = /^[A-Za-z0-9+/_-]+={0,2}$/
const HEX_TIME = /^[0-9A-Fa-f]{1,64}$/
const COLON = 0x3a

/** @returns null if the value is malformed */
export function parseSession(value: string): SessionText | null {
  if (!BASE64.test(value)) return null
  const bytes = Buffer.from(value, 'base64')
  const nameEnd = bytes.indexOf(COLON)
  const timeEnd = nameEnd === -1 ? -1 : bytes.indexOf(COLON, nameEnd + 1)
  if (timeEnd === -1) return null
  const time = bytes.toString('latin1', nameEnd + 1, timeEnd)
  return {
    name: utf8(bytes.subarray(0, nameEnd)),
    time: HEX_TIME.test(time) ? Number.parseInt(time, 16) : Number.NaN,
    zeros: time.search(/[^0]|$/),
    signed: bytes.subarray(0, timeEnd),
    mac: bytes.subarray(timeEnd + 1),
  }
}

function utf8(bytes: Buffer): string {
  const text = bytes.toString()
  return text.includes('\ufffd') ? '' : text
}

/**
 * @param hexTime upper-case hex of seconds since 1970
 * @param key the server's secret and the account's salt
 * @param digest in Node's name
 */
export function sealSession(name: string, hexTime: string, key: string, digest: string): string {
  const signed = Buffer.from(`${name}:${hexTime}`)
  const mac = createHmac(digest, key).update(signed).digest()
  return Buffer.concat([signed, Buffer.from(':'), mac]).toString('base64url')
}

/** @returns whether the value was signed with the key and one of the digests; in constant time */
export function isSealed({ signed, mac }: SessionText, key: string, digests: readonly string[]): boolean {
  return digests.some((digest) => {
    const computed = createHmac(digest, key).update(signed).digest()
    return computed.length === mac.length && timingSafeEqual(computed, mac)
  })
}

/** CouchDB's names of digests (`chttpd_auth/hash_algorithms`) with Node's. */
const DIGESTS: Readonly<Record<string, string>> = {
  sha: 'sha1',
  sha224: 'sha224',
  sha256: 'sha256',
  sha384: 'sha384',
  sha512: 'sha512',
}

/** @returns the digests that a list like `sha256, sha` names, in Node's names; unknown ones are left out */
export function digestsOf(list: string): readonly string[] {
  const known = list.split(',').flatMap((name) => DIGESTS[name.trim()] ?? [])
  return known.length > 0 ? known : ['sha256', 'sha1']
}

/** @returns the secret that signs session cookies; undefined while there is none, so that there are no sessions */
export function sessionSecret(config: Config): string | undefined {
  return config.get('chttpd_auth', 'secret') || undefined
}

/**
 * Reads the secret, and makes one if there is none. Calls at the same time, on any node, get the same one.
 * @param warn called if the secret cannot be stored, so that sessions end with the server
 */
function secretMaker(config: Config, warn: (message: string) => void): () => Promise<string> {
  const write = (secret: string, persist: boolean) =>
    config.set('chttpd_auth', 'secret', secret, { ifUnset: true, persist })
  return async () => {
    const known = sessionSecret(config)
    if (known !== undefined) return known
    const secret = randomBytes(16).toString('hex')
    try {
      await write(secret, true)
    } catch (error) {
      if (!(error instanceof CouchError)) throw error
      await write(secret, false)
      warn(`the secret of session cookies is kept in memory only: ${error.message}`)
    }
    return sessionSecret(config) ?? secret
  }
}
