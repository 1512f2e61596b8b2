import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import type { Config } from '../config/config.ts'
import { atMost } from '../core/cache.ts'
import { CouchError } from '../core/errors.ts'
import type { Account, AccountListener, Accounts } from './accounts.ts'

/** What a cookie is worth. */
type SessionState =
  /** @param renewal the value that takes its place, when it is time for that */
  | { readonly account: Account; readonly renewal: string | null }
  /** It was genuine, and its time is over. */
  | 'expired'
  /** Not of the form; the client must be told, or it sends it for ever. */
  | 'malformed'
  /** Signed with another key, of an account that is gone, or of a session that was ended. */
  | null

interface SessionOptions {
  readonly config: Config
  readonly accounts: Pick<Accounts, 'find'>
  /** Told when the secret cannot be stored. */
  warn(message: string): void
}

/** One login, with the cookies that were made for it since: each renewal is another value. */
interface Session {
  readonly name: string
  readonly cookies: string[]
}

/** Sessions whose cookies are known, and cookies of ended ones; the least recently used are forgotten first. */
const REMEMBERED = 10_000
const COOKIES_A_SESSION = 64
/** A cookie of which less than this part of its time is left is renewed. */
const RENEWED_BELOW = 0.9
/** How many logins to one account in one second get cookies that differ. */
const A_SECOND = 32

/**
 * Sessions as CouchDB has them: a signed cookie that holds everything, and a table of nothing; a new password, and so
 * a new salt, ends them. Beside that a session that was logged out stays ended, which CouchDB's cookie alone cannot
 * say: the cookies of an ended session are remembered for as long as they would have lasted. A restart forgets them.
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
   * Begins a session.
   * @param account as it was when its password was found right
   * @param now in milliseconds since 1970
   * @returns the cookie's value
   * @throws as `Config.set`, when the secret can be neither stored nor held
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

  /** Ends the session of a cookie that {@link read} took; others of the same account go on. */
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
   * @param listener told whose sessions have ended, other than by their time
   * @returns what ends the calls
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
   * Two logins to an account within a second would get the same cookie, and ending one would end both: the time of the
   * later one gets noughts in front, which CouchDB reads as well.
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

  /** In milliseconds; a second more than a cookie's own, since those are counted in whole ones. */
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

// The value of the cookie `AuthSession`, as CouchDB makes it, so that sessions outlive a move: base64url of
// `name:HEXTIME:MAC`, the MAC's bytes as they are; protocol.md 11.3.

/** A value that has the form; whether it is genuine, {@link isSealed} says. */
interface SessionText {
  /** Empty where it is no UTF-8, which no account's name is. */
  readonly name: string
  /** When it was made, in seconds since 1970; NaN where that is no number. */
  readonly time: number
  /** `name:HEXTIME`, what the MAC is of. */
  readonly signed: Buffer
  readonly mac: Buffer
}

const BASE64 = /^[A-Za-z0-9+/_-]+={0,2}$/
const HEX_TIME = /^[0-9A-Fa-f]{1,64}$/
const COLON = 0x3a

/** @returns null when the value is not of the form */
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

/** @returns whether the value was made with the key, by one of the digests; in constant time */
export function isSealed({ signed, mac }: SessionText, key: string, digests: readonly string[]): boolean {
  return digests.some((digest) => {
    const computed = createHmac(digest, key).update(signed).digest()
    return computed.length === mac.length && timingSafeEqual(computed, mac)
  })
}

/** CouchDB's names of digests (`chttpd_auth/hash_algorithms`), and Node's. */
const DIGESTS: Readonly<Record<string, string>> = {
  sha: 'sha1',
  sha224: 'sha224',
  sha256: 'sha256',
  sha384: 'sha384',
  sha512: 'sha512',
}

/** @returns the digests that a list like `sha256, sha` names, in Node's names; what it does not know is left out */
export function digestsOf(list: string): readonly string[] {
  const known = list.split(',').flatMap((name) => DIGESTS[name.trim()] ?? [])
  return known.length > 0 ? known : ['sha256', 'sha1']
}

/** @returns the secret that signs session cookies; undefined while there is none, and so no session */
export function sessionSecret(config: Config): string | undefined {
  return config.get('chttpd_auth', 'secret') || undefined
}

/**
 * Makes what gives the secret, and makes one where there is none; two who ask at once get the same.
 * @param warn told when it cannot be kept: sessions then end with the server
 */
function secretMaker(config: Config, warn: (message: string) => void): () => Promise<string> {
  let making: Promise<string> | undefined
  const make = async (): Promise<string> => {
    const secret = randomBytes(16).toString('hex')
    try {
      await config.set('chttpd_auth', 'secret', secret)
    } catch (error) {
      if (!(error instanceof CouchError)) throw error
      await config.set('chttpd_auth', 'secret', secret, { persist: false })
      warn(`the secret of session cookies is kept in memory only: ${error.message}`)
    }
    return sessionSecret(config) ?? secret
  }
  return async () => {
    const secret = sessionSecret(config)
    if (secret !== undefined) return secret
    making ??= make().finally(() => {
      making = undefined
    })
    return making
  }
}
