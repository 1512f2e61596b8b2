/**
 * What the server allows its accounts, beyond the rights that a database's security object gives: which databases are
 * theirs, what they may store, how much they may ask. The default allows everything. Hosted mode has its own policy
 * (hosted/hosted.ts).
 *
 * A policy stays on the HTTP thread. Database threads get the parts that concern them as plain data: a
 * {@link DocumentPolicy} with the settings, and an {@link Allowance} with each write.
 */
import type { UpdatesView } from '../changes/db-updates.ts'
import type { Config } from '../config/config.ts'
import { documentPolicy } from '../config/settings.ts'
import type { Allowance, DocumentPolicy, SecurityObject, UserCtx } from '../core/types.ts'
import type { DatabaseProperties, NameRange } from '../storage/catalog.ts'
import type { Databases } from '../threads/databases.ts'
import type { Accounts } from './accounts.ts'

/** A value where it is known at once, otherwise a promise: every request asks, and most need not wait. */
type Awaitable<T> = T | Promise<T>

export interface Policy {
  /** The policy that database threads apply to documents. */
  readonly documents: DocumentPolicy
  /** Databases with their owners. */
  readonly databases: DatabaseRegistry
  /** null: requests and feeds are not limited. */
  readonly limits: RequestLimits | null
  /**
   * Whether a token or a proxy can only name an account of this server, with no roles but those of the account. Else it
   * may name anybody.
   */
  readonly accountsOnly: boolean
  /** Adds the policy's refusals to accounts. */
  accounts(accounts: Accounts): Accounts
  /** @returns why an account has no access at all, in words for its owner; null: it has */
  refusalOf(account: string): Awaitable<string | null>
  /** @returns the account of a user who sees and makes only databases of their own; null: the user is no tenant */
  tenantOf(user: UserCtx): string | null
  ownerOf(database: string): Awaitable<string | undefined>
  /** A page of the databases that an account owns, in byte order. */
  databasesOf(
    account: string,
    range: Pick<NameRange, 'prefix' | 'after'>,
    limit: number,
  ): Promise<readonly string[]>
  /** @returns the part of `_db_updates` that an account sees; undefined: all of it */
  updatesOf(account: string): UpdatesView | undefined
  /**
   * Makes a database as a user asks for it, with its first security object.
   * @param owner an account that the user names as its owner
   * @throws as {@link Databases.create}; forbidden and not_found for the owner, forbidden for the name and beyond a quota
   */
  createDatabase(
    name: string,
    user: UserCtx,
    owner: string | undefined,
    properties?: DatabaseProperties,
  ): Promise<void>
  /** @returns how many replications a user may have at once; undefined: the limit of all users counts */
  maxReplications(user: UserCtx): Awaitable<number | undefined>
  /** @returns bytes of JSON in one document of an account; undefined: as the configuration says */
  maxDocumentSize(account: string): Awaitable<number | undefined>
  /** @returns what may still be written to a database; undefined: any amount */
  allowance(database: string): Awaitable<Allowance | undefined>
  /**
   * Runs a write to a database whose owner has an allowance, after writes that could use it up.
   * @param length of the request's body, in bytes
   * @throws as `work`
   */
  write<T>(database: string, length: number, kind: WriteKind, work: () => Promise<T>): Promise<T>
}

/** What a write stores: one document, a list of them, or an index. */
export type WriteKind = 'document' | 'list' | 'index'

/** The calls that make, delete and restore databases, and keep their owners. */
export interface DatabaseRegistry
  extends Pick<Databases, 'has' | 'allNames' | 'delete' | 'prepareRestore' | 'treatAsRestored'> {
  /**
   * @param owner null: nobody owns it
   * @throws as {@link Databases.create}
   */
  create(name: string, owner: string | null): Promise<void>
  /** Whether a database may become that of an account: it is, or nobody owns it. */
  mayBelongTo(name: string, account: string): Awaitable<boolean>
}

/** Limits of requests per second, and of feeds that are open at once. */
export interface RequestLimits {
  /**
   * @param account null: nobody has logged in, and the network of the address counts
   * @returns the limiter of an account, and how many requests per second it lets through
   */
  limiterOf(
    account: string | null,
    address: string,
  ): Awaitable<{ readonly limiter: RequestLimiter; readonly rate: number }>
  /** How many feeds an account may have open. */
  maxFeeds(account: string | null): Awaitable<number>
  /**
   * Waits until the account may open another feed.
   * @param end called when the feed must end for another
   * @param signal aborted when the client has gone
   * @returns null: too many feeds wait already, or the client has gone
   */
  openFeed(
    account: string | null,
    address: string,
    end: () => void,
    signal: AbortSignal,
  ): Promise<FeedSlot | null>
}

export interface RequestLimiter {
  /**
   * Starts a request now, starts it later, or refuses it.
   * @param rate requests per second, as the quota is now
   */
  enter(request: LimitedRequest, rate: number): void
  /** The client of a waiting request has gone. */
  cancel(request: LimitedRequest): void
  /** A request that was started has ended. */
  leave(): void
}

/** A request, as a limiter sees it. */
export interface LimitedRequest {
  /** It goes before others, and is not refused however long it would wait. */
  readonly hasPriority: boolean
  start(): void
  /** @param seconds after which a new try makes sense; null: too many wait that have priority */
  refuse(seconds: number | null): void
}

/** One of the feeds that an account may have open. */
export interface FeedSlot {
  /** The feed has ended. */
  release(): void
}

/** CouchDB's `everyone`. The server reads `{}` as: for server admins only (documents/security.ts). */
const EVERYONE: SecurityObject = { admins: { names: [], roles: [] }, members: { names: [], roles: [] } }

/** @returns the policy that allows everything that rights allow; databases are open as `couchdb/default_security` says */
export function defaultPolicy(config: Config, databases: Databases): Policy {
  return {
    documents: documentPolicy(config),
    databases: withoutOwners(databases),
    limits: null,
    accountsOnly: false,
    accounts: (accounts) => accounts,
    refusalOf: () => null,
    tenantOf: () => null,
    ownerOf: () => undefined,
    databasesOf: async () => [],
    updatesOf: () => undefined,
    createDatabase: async (name, user, _owner, properties) => {
      await databases.create(name, properties)
      // Databases of the server stay closed.
      if (config.get('couchdb', 'default_security') === 'admin_only' || name.startsWith('_')) return
      if (name === databases.usersDatabase) return
      await (await databases.get(name)).setSecurity(user, EVERYONE)
    },
    maxReplications: () => undefined,
    maxDocumentSize: () => undefined,
    allowance: () => undefined,
    write: (_database, _length, _kind, work) => work(),
  }
}

/** The calls of a server whose databases have no owners. */
export function withoutOwners(databases: Databases): DatabaseRegistry {
  return {
    has: (name) => databases.has(name),
    allNames: (range) => databases.allNames(range),
    create: (name) => databases.create(name),
    mayBelongTo: () => true,
    delete: (name) => databases.delete(name),
    prepareRestore: (name, copy) => databases.prepareRestore(name, copy),
    treatAsRestored: (name) => databases.treatAsRestored(name),
  }
}
