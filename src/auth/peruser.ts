/**
 * `couch_peruser`: each account of `_users` gets its own database, `userdb-` and the hex digits of its name, whose
 * admin and member it is; protocol.md 11.7, 12.2.
 *
 * A checkpoint in the catalog says how far the feed of `_users` was followed. It is written after the work is done, so a
 * crash repeats the last part, which changes nothing. Each start reads the feed from its beginning, to make databases
 * that were lost since.
 */
import type { Config } from '../config/config.ts'
import { CouchError } from '../core/errors.ts'
import { userDocId } from '../core/ids.ts'
import { type SecurityList, type SecurityObject, SYSTEM_USER } from '../core/types.ts'
import { ADMIN_ONLY } from '../documents/security.ts'
import { readRecord } from '../storage/records.ts'
import type { Duty } from '../threads/claims.ts'
import type { DatabaseHandle, Databases } from '../threads/databases.ts'
import type { DatabaseRegistry } from './policy.ts'
import { findDatabase, PLAIN_FEED, type UserChange, userChanges } from './users.ts'

const SECTION = 'couch_peruser'
/** The checkpoint's kind and key in the catalog. */
const CHECKPOINT = { kind: SECTION, key: 'checkpoint' }
const PAGE_ROWS = 500
/** Databases at once. */
const AT_ONCE = 4
/** Characters of a name in the log. */
const MAX_LOGGED = 256
/** Wait after a failed pass, in ms. */
const RETRY_MS = 5000

export interface PerUserOptions {
  readonly databases: Pick<
    Databases,
    'usersDatabase' | 'has' | 'get' | 'watchUpdates' | 'readRecords' | 'writeRecords'
  >
  /** Makes and deletes them with their owners. */
  readonly registry: Pick<DatabaseRegistry, 'create' | 'delete' | 'mayBelongTo'>
  readonly config: Config
  /** Without it no databases are made or deleted: another node does it, or they come from the primary of a standby. */
  readonly duty: Duty
  /** Work failed: for one account, or for all (null), which is tried again. */
  onFault(fault: unknown, name: string | null): void
}

/** How far `_users` has been followed, with enough to see that it is still the same feed. */
interface Checkpoint {
  readonly incarnation: number
  readonly prefix: string
  readonly token: string
}

/** @returns the prefix of the names of users' own databases */
export function perUserPrefix(config: Pick<Config, 'get'>): string {
  return config.get(SECTION, 'database_prefix') || 'userdb-'
}

export class PerUserDatabases {
  readonly #options: PerUserOptions
  readonly #ends: (() => void)[] = []
  /** The database that is followed. */
  #followed: DatabaseHandle | null = null
  #unwatch: () => void = () => {}
  /** Where the next page begins. */
  #since = 0
  /** Up to here only missing databases are made, since the rest was done before. */
  #doneBefore = 0
  #isAsked = false
  #running: Promise<void> | null = null
  #retry: NodeJS.Timeout | undefined
  #isClosed = false

  constructor(options: PerUserOptions) {
    this.#options = options
  }

  /** Follows the configuration and, if it is enabled, `_users`. */
  start(): void {
    const { config, databases, duty } = this.#options
    this.#ends.push(
      config.onChange((section, key) => {
        if (section === SECTION || key === 'authentication_db') this.#restart()
      }),
      // `_users` may be deleted and created again.
      databases.watchUpdates(() => {
        this.#checkFollowed().catch(() => undefined)
      }),
      duty.onChange(() => this.#restart()),
    )
    this.#restart()
  }

  /** Stops; resolves when started work is done. */
  async close(): Promise<void> {
    this.#isClosed = true
    for (const end of this.#ends) end()
    this.#unwatch()
    clearTimeout(this.#retry)
    await this.#running
  }

  get #isOn(): boolean {
    const { config, duty } = this.#options
    return !this.#isClosed && duty.isHeld && config.boolean(SECTION, 'enable')
  }

  get #prefix(): string {
    return perUserPrefix(this.#options.config)
  }

  async #users(): Promise<DatabaseHandle | null> {
    const { databases } = this.#options
    return this.#isOn ? findDatabase(databases, databases.usersDatabase) : null
  }

  /** @throws unavailable while `_users` is being restored, which another update follows */
  async #checkFollowed(): Promise<void> {
    const users = await this.#users()
    if (this.#followed !== users) this.#restart()
  }

  #restart(): void {
    this.#followed = null
    this.#unwatch()
    this.#unwatch = () => {}
    this.#wake()
  }

  #wake(): void {
    if (!this.#isOn) return
    this.#isAsked = true
    this.#running ??= this.#run().finally(() => {
      this.#running = null
    })
  }

  /** Runs passes while there is anything new. Never rejects. */
  async #run(): Promise<void> {
    clearTimeout(this.#retry)
    while (this.#isAsked && this.#isOn) {
      this.#isAsked = false
      try {
        await this.#pass()
      } catch (fault) {
        if (!this.#isOn) return
        this.#options.onFault(fault, null)
        this.#retry = setTimeout(() => this.#wake(), RETRY_MS).unref()
        return
      }
    }
  }

  /** Applies the feed up to its end. */
  async #pass(): Promise<void> {
    const users = await this.#users()
    if (users === null) return
    if (users !== this.#followed) await this.#follow(users)
    for (let atTip = false; !atTip && this.#isOn && users === this.#followed; ) {
      const page = await users.changes(SYSTEM_USER, {
        options: PLAIN_FEED,
        since: this.#since,
        limit: PAGE_ROWS,
      })
      if (!(await this.#apply(users, userChanges(page.bytes)))) return
      if (page.lastSeq > this.#doneBefore) await this.#save(users, page.lastToken)
      this.#since = page.lastSeq
      atTip = page.atTip
    }
  }

  async #follow(users: DatabaseHandle): Promise<void> {
    this.#unwatch()
    this.#unwatch = users.watch((event) => {
      // Also when its thread has died (`closed`), since the last commits may not have been reported.
      if (event.type !== 'secured') this.#wake()
    })
    this.#followed = users
    this.#since = 0
    this.#doneBefore = await this.#readCheckpoint(users)
  }

  /** @returns the sequence number up to which the feed was followed before; 0 for another feed */
  async #readCheckpoint(users: DatabaseHandle): Promise<number> {
    const stored = await readRecord(this.#options.databases, CHECKPOINT.kind, CHECKPOINT.key)
    const found = stored === null ? null : (JSON.parse(stored) as Checkpoint)
    if (found?.incarnation !== users.incarnation || found.prefix !== this.#prefix) return 0
    const page = await users.changes(SYSTEM_USER, { options: PLAIN_FEED, since: found.token, limit: 0 })
    return page.lastSeq
  }

  async #save({ incarnation }: DatabaseHandle, token: string): Promise<void> {
    const checkpoint: Checkpoint = { incarnation, prefix: this.#prefix, token }
    await this.#options.databases.writeRecords([{ ...CHECKPOINT, value: JSON.stringify(checkpoint) }])
  }

  /** @returns false if it was stopped before the end */
  async #apply(users: DatabaseHandle, changes: readonly UserChange[]): Promise<boolean> {
    for (let at = 0; at < changes.length; at += AT_ONCE) {
      if (!this.#isOn) return false
      const group = changes.slice(at, at + AT_ONCE)
      await Promise.all(group.map((change) => this.#applyOne(users, change)))
    }
    return true
  }

  async #applyOne(users: DatabaseHandle, { seq, name, deleted }: UserChange): Promise<void> {
    const database = this.#prefix + Buffer.from(name).toString('hex')
    const isThere = await this.#options.databases.has(database)
    if (seq <= this.#doneBefore && (isThere || deleted)) return
    if (!isThere && deleted) return
    try {
      // A tenant may have made it while couch_peruser was off, or had another prefix.
      if (isThere && !(await this.#options.registry.mayBelongTo(database, name))) throw foreign(database)
      if (!deleted) await this.#provide(database, name)
      else if (await isGone(users, name)) await this.#withdraw(database, name)
    } catch (fault) {
      if (!(fault instanceof CouchError) || fault.status >= 500) throw fault
      // A name too long for a database would hold up all others for ever.
      this.#options.onFault(fault, name.slice(0, MAX_LOGGED))
    }
  }

  async #provide(database: string, name: string): Promise<void> {
    const { databases, registry } = this.#options
    await registry.create(database, name === '' ? null : name).catch(ignoring('file_exists'))
    const handle = await databases.get(database)
    const before = (await handle.security()) ?? ADMIN_ONLY
    if (isIn(before.admins, name) && isIn(before.members, name)) return
    await handle.setSecurity(SYSTEM_USER, {
      ...before,
      admins: withName(before.admins, name),
      members: withName(before.members, name),
    })
  }

  /** After the deletion of an account: deletes its database, or withdraws the account's rights to it. */
  async #withdraw(database: string, name: string): Promise<void> {
    const { databases, registry, config } = this.#options
    if (config.boolean(SECTION, 'delete_dbs')) {
      await registry.delete(database).catch(ignoring('no_database'))
      return
    }
    const handle = await databases.get(database)
    const before = await handle.security()
    if (before === null || !(isIn(before.admins, name) || isIn(before.members, name))) return
    await handle.setSecurity(SYSTEM_USER, withoutName(before, name))
  }
}

function foreign(database: string): CouchError {
  return new CouchError('forbidden', `The database ${database} belongs to another account.`)
}

function ignoring(code: CouchError['code']): (error: unknown) => void {
  return (error) => {
    if (!(error instanceof CouchError) || error.code !== code) throw error
  }
}

/** Whether an account is still deleted: it may have been created again since the feed was read. */
async function isGone(users: DatabaseHandle, name: string): Promise<boolean> {
  const opened = users.open(SYSTEM_USER, userDocId(name), {})
  return opened.then(
    () => false,
    (error: unknown) => {
      if (error instanceof CouchError && error.status === 404) return true
      throw error
    },
  )
}

function isIn(list: SecurityList | undefined, name: string): boolean {
  return list?.names?.includes(name) ?? false
}

function withName(list: SecurityList | undefined, name: string): SecurityList {
  return isIn(list, name) ? (list as SecurityList) : { ...list, names: [...(list?.names ?? []), name] }
}

function withoutName(security: SecurityObject, name: string): SecurityObject {
  const rest = (list: SecurityList | undefined): SecurityList => {
    const names = (list?.names ?? []).filter((other) => other !== name)
    const { roles = [] } = list ?? {}
    // With both lists empty, the database would be open to everybody.
    return { ...list, names, roles: names.length === 0 && roles.length === 0 ? ['_admin'] : roles }
  }
  return { ...security, admins: rest(security.admins), members: rest(security.members) }
}
