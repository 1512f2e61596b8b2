/** Quotas and suspensions that admins have set, one record for each account that differs from the defaults. */
import { type AccountListener, type Accounts, isServerAdmin } from '../auth/accounts.ts'
import type { Config } from '../config/config.ts'
import { KeyedMutex } from '../core/concurrency.ts'
import { isJsonObject } from '../core/json.ts'
import type { WatchedRecords } from '../storage/records.ts'
import { allRecords } from '../storage/records.ts'
import {
  changedOverrides,
  defaultQuota,
  type Quota,
  type QuotaChange,
  type QuotaOverrides,
  quotaWith,
  readQuota,
  shownQuota,
} from './usage.ts'

const KIND = 'tenant'

interface Tenant {
  readonly quota: QuotaOverrides
  readonly isSuspended: boolean
  /** Its deletion has begun, and continues until it is done. */
  readonly isLeaving: boolean
}

const ORDINARY: Tenant = { quota: {}, isSuspended: false, isLeaving: false }

/** A change; absent members stay as they are. */
interface TenantChange {
  readonly quota?: QuotaChange
  readonly isSuspended?: boolean
  readonly isLeaving?: boolean
}

export class Tenants {
  readonly #store: WatchedRecords
  readonly #config: Config
  readonly #mutex = new KeyedMutex()
  readonly #tenants = new Map<string, Tenant>()
  readonly #quotas = new Map<string, Quota>()
  readonly #listeners = new Set<AccountListener>()
  #defaults: Quota

  private constructor(store: WatchedRecords, config: Config) {
    this.#store = store
    this.#config = config
    this.#defaults = defaultQuota(config)
    config.onChange((section) => {
      if (section !== 'quota') return
      this.#defaults = defaultQuota(config)
      this.#quotas.clear()
    })
  }

  /** Reads the records. */
  static async open(store: WatchedRecords, config: Config): Promise<Tenants> {
    const tenants = new Tenants(store, config)
    for await (const { key, value } of allRecords(store, KIND)) tenants.#tenants.set(key, readTenant(value))
    return tenants
  }

  get defaults(): Quota {
    return this.#defaults
  }

  /** Accounts that differ from the defaults. */
  names(): string[] {
    return [...this.#tenants.keys()]
  }

  /** Whether the name is that of a server admin, who is not a tenant. */
  isAdmin(name: string): boolean {
    return this.#config.get('admins', name) !== undefined
  }

  /** The account's quota; cached, since every request needs it. */
  quotaOf(account: string): Quota {
    const { quota } = this.#tenants.get(account) ?? ORDINARY
    if (quota === ORDINARY.quota) return this.#defaults
    let whole = this.#quotas.get(account)
    if (whole === undefined) {
      whole = quotaWith(this.#defaults, quota)
      this.#quotas.set(account, whole)
    }
    return whole
  }

  overridesOf(account: string): QuotaOverrides {
    return (this.#tenants.get(account) ?? ORDINARY).quota
  }

  isSuspended(account: string): boolean {
    return (this.#tenants.get(account) ?? ORDINARY).isSuspended
  }

  isLeaving(account: string): boolean {
    return (this.#tenants.get(account) ?? ORDINARY).isLeaving
  }

  /** @returns why the account has no access, in words for its owner; null: it has */
  refusalOf(account: string): string | null {
    const tenant = this.#tenants.get(account)
    if (tenant === undefined) return null
    if (tenant.isLeaving) return 'The account is being deleted.'
    return tenant.isSuspended ? 'The account is suspended. Ask the operator of this server.' : null
  }

  /** Durable and in effect when resolved. Feeds of an account without access end. */
  change(account: string, change: TenantChange): Promise<void> {
    return this.#mutex.run(account, async () => {
      const before = this.#tenants.get(account) ?? ORDINARY
      const quota = changedOverrides(before.quota, change.quota ?? {})
      const after = { ...before, ...change, quota: Object.keys(quota).length > 0 ? quota : ORDINARY.quota }
      await this.#store.writeRecords([{ kind: KIND, key: account, value: written(after) }])
      if (isOrdinary(after)) this.#tenants.delete(account)
      else this.#tenants.set(account, after)
      this.#quotas.delete(account)
      if (after.isSuspended !== before.isSuspended || after.isLeaving !== before.isLeaving)
        this.#notify(account)
    })
  }

  /** Removes the record of a deleted account, so that a later one of its name starts with the defaults. */
  forget(account: string): Promise<void> {
    return this.#mutex.run(account, async () => {
      await this.#store.writeRecords([{ kind: KIND, key: account, value: null }])
      this.#tenants.delete(account)
      this.#quotas.delete(account)
      this.#notify(account)
    })
  }

  /** Calls the listener with suspended, reactivated and deleted accounts. @returns a function that ends the calls */
  onChange(listener: AccountListener): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  #notify(account: string): void {
    for (const listener of this.#listeners) listener(new Set([account]))
  }
}

function isOrdinary({ quota, isSuspended, isLeaving }: Tenant): boolean {
  return quota === ORDINARY.quota && !isSuspended && !isLeaving
}

function written(tenant: Tenant): string | null {
  if (isOrdinary(tenant)) return null
  const { quota, isSuspended, isLeaving } = tenant
  return JSON.stringify({ quota: shownQuota(quota), suspended: isSuspended, leaving: isLeaving })
}

function readTenant(value: string): Tenant {
  const read: unknown = JSON.parse(value)
  if (!isJsonObject(read)) throw new Error('a tenant record is damaged')
  const quota = changedOverrides({}, readQuota(read.quota ?? {}))
  return {
    quota: Object.keys(quota).length > 0 ? quota : ORDINARY.quota,
    isSuspended: read.suspended === true,
    isLeaving: read.leaving === true,
  }
}

// Accounts without access, because they are suspended or being deleted.

/**
 * Wraps accounts: an account without access gets a `refusal`. Only whoever knows its password sees it, so that others do
 * not learn who has an account. Server admins are not tenants.
 */
export function withRefusals(accounts: Accounts, tenants: Tenants): Accounts {
  return {
    find: async (name) => {
      const account = await accounts.find(name)
      const refusal = tenants.refusalOf(name)
      return account === null || refusal === null || isServerAdmin(account)
        ? account
        : { ...account, refusal }
    },
    decoy: () => accounts.decoy(),
    isSettled: () => accounts.isSettled(),
    onChange: (listener) => {
      const ends = [accounts.onChange(listener), tenants.onChange(listener)]
      return () => {
        for (const end of ends) end()
      }
    },
  }
}
