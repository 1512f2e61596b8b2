import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import type { Config } from '../config/config.ts'
import { atMost } from '../core/cache.ts'
import { CouchError } from '../core/errors.ts'
import type { Account, AccountListener, Accounts } from './accounts.ts'

/** The result of checking a cookie. */
type SessionState =
  /** @param renewal a new cookie if this one is due; null: it is not */
  | { readonly account: Account; readonly renewal: string | null }
  /** It was valid, but has expired. */
  | 'expired'
  /** Malformed. The client must learn that, or it sends the cookie for ever. */
  | 'malformed'
  /** Signed with another key, or of a deleted account or an ended session. */
  | null

interface SessionOptions {
  readonly config: Config
  readonly accounts: Pick<Accounts, 'find'>
  /** Called if the secret cannot be stored. */
  warn(message: string): void
}

/** One login with its cookies: each renewal is another one. */
interface Session {
  readonly name: string
  readonly cookies: string[]
}

/** Cookies of sessions, and as many of ended sessions; the least recently used are forgotten first. */
const REMEMBERED = 10_000
const COOKIES_A_SESSION = 64
/** A cookie is renewed when less than this part of its time is left. */
const RENEWED_BELOW = 0.9
/** Logins to one account within one second that get different cookies. */
const A_SECOND = 32

/**
 * Sessions as in CouchDB: a signed cookie holds everything, and a new password (so a new salt) ends them. In addition, a
 * session stays ended after a logout, which CouchDB's cookie cannot express: the cookies of an ended session are
 * remembered until they expire. A restart forgets them.
 */
export class Sessions {
  readonly #config: Config
  readonly #accounts: Pick<Accounts, 'find'>
  readonly #secret: () => Promise<string>
  /** Both by the MAC of a cookie. */
  readonly #live: LRUCache<string, Session>
  readonly #ended: LRUCache<string, true>
  readonly #listeners = new Set<AccountListener>()

  constructor({ config, accounts, warn }: SessionOptions) {
    this.#config = config
    this.#accounts = accounts
    this.#secret = secretMaker(config, warn)
    this.#live = new LRUCache({ ...atMost(REMEMBERED), ttl: 1 })
    this.#ended = new LRUCache({ ...atMost(REMEMBERED), ttl: 1 })
  }

  /**
   * Starts a session.
   * @param account as it was when its password was verified
   * @param now in milliseconds since 1970
   * @returns the cookie's value
   * @throws as `Config.set`, if the secret can be kept neither on disk nor in memory
   */
  async open(account: Account, now: number): Promise<string> {
    return this.#make(account, await this.#secret(), now, { name: account.name, cookies: [] })
  }

  /**
   * @param value of the cookie
   * @param now in milliseconds since 1970
   * @throws unavailable
   */
  async read(value: string, now: number): Promise<SessionState> {
    const text = parseSession(value)
    if (text === null) return 'malformed'
    const secret = sessionSecret(this.#config)
    const account = secret === undefined || text.name === '' ? null : await this.#accounts.find(text.name)
    if (secret === undefined || account === null) return null
    if (!isSealed(text, secret + account.salt, this.#digests) || this.#ended.has(keyOf(text))) return null
    const left = text.time + this.#seconds - Math.floor(now / 1000)
    if (Number.isNaN(left)) return null
    if (left <= 0) return 'expired'
    const isDue = left < this.#seconds * RENEWED_BELOW
    return { account, renewal: isDue ? this.#renew(text, account, secret, now) : null }
  }

  /** Ends the session of a cookie that {@link read} accepted; other sessions of the account continue. */
  end(value: string): void {
    const text = parseSession(value)
    if (text === null) return
    const session = this.#live.get(keyOf(text))
    const ttl = this.#lifetime
    for (const cookie of [keyOf(text), ...(session?.cookies ?? [])]) this.#ended.set(cookie, true, { ttl })
    const names = new Set([text.name])
    for (const listener of this.#listeners) listener(names)
  }

  /**
   * @param listener called with the accounts whose sessions were ended, but not for expired sessions
   * @returns a function that ends the calls
   */
  onChange(listener: AccountListener): () => void {
    this.#listeners.add(listener)
    const forget = this.#config.onChange((section, key) => {
      if (key === 'secret' && section === 'chttpd_auth') listener('all')
    })
    return () => {
      forget()
      this.#listeners.delete(listener)
    }
  }

  #renew(text: SessionText, account: Account, secret: string, now: number): string {
    let session = this.#live.get(keyOf(text))
    if (session === undefined) {
      session = { name: account.name, cookies: [] }
      this.#remember(text, session)
    }
    return this.#make(account, secret, now, session)
  }

  /**
   * Two logins to an account within a second would get the same cookie, and ending one would end both. So the time of
   * the later one gets leading zeros, which CouchDB reads as well.
   */
  #make(account: Account, secret: string, now: number, session: Session): string {
    const [digest = 'sha256'] = this.#digests
    let hexTime = Math.floor(now / 1000)
      .toString(16)
      .toUpperCase()
    for (let tries = 0; ; tries++) {
      const value = sealSession(account.name, hexTime, secret + account.salt, digest)
      const text = parseSession(value)!
      const owner = this.#live.get(keyOf(text))
      if (owner === session) return value
      if ((owner === undefined && !this.#ended.has(keyOf(text))) || tries === A_SECOND) {
        this.#remember(text, session)
        return value
      }
      hexTime = `0${hexTime}`
    }
  }

  #remember(text: SessionText, session: Session): void {
    const key = keyOf(text)
    session.cookies.push(key)
    if (session.cookies.length > COOKIES_A_SESSION) session.cookies.shift()
    this.#live.set(key, session, { ttl: this.#lifetime })
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

function keyOf({ mac }: SessionText): string {
  return mac.toString('base64')
}

// The value of the cookie `AuthSession` as in CouchDB, so that sessions survive a move: base64url of
// `name:HEXTIME:MAC`, with the bytes of the MAC; protocol.md 11.3.

/** A well-formed value; {@link isSealed} says whether it is valid. */
interface SessionText {
  /** Empty if it is not UTF-8; no account has an empty name. */
  readonly name: string
  /** When it was made, in seconds since 1970; NaN if that is not a number. */
  readonly time: number
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
