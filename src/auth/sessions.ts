import { LRUCache } from 'lru-cache'
import type { Config } from '../config/config.ts'
import { atMost } from '../core/cache-room.ts'
import type { Account, AccountListener, Accounts } from './accounts.ts'
import { digestsOf, isSealed, parseSession, type SessionText, sealSession } from './session-cookie.ts'
import { secretMaker, sessionSecret } from './session-secret.ts'

/** What a cookie is worth. */
export type SessionState =
  /** @param renewal the value that takes its place, when it is time for that */
  | { readonly account: Account; readonly renewal: string | null }
  /** It was genuine, and its time is over. */
  | 'expired'
  /** Not of the form; the client must be told, or it sends it for ever. */
  | 'malformed'
  /** Signed with another key, of an account that is gone, or of a session that was ended. */
  | null

export interface SessionOptions {
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
