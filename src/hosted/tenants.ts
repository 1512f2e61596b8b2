/** What an admin has decided of accounts: their quotas, and whether they are suspended. A record an account that differs. */
import { type AccountListener, type Accounts, isServerAdmin } from '../auth/accounts.ts'
import type { Config } from '../config/config.ts'
import { KeyedMutex } from '../core/concurrency.ts'
import { isJsonObject } from '../core/json.ts'
import type { RecordStore } from './owners.ts'
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
  /** Its deletion has begun, and is gone on with until it is done. */
  readonly isLeaving: boolean
}

const ORDINARY: Tenant = { quota: {}, isSuspended: false, isLeaving: false }

/** What is to be changed; what is absent stays. */
interface TenantChange {
  readonly quota?: QuotaChange
  readonly isSuspended?: boolean
  readonly isLeaving?: boolean
}

export class Tenants {
  readonly #store: RecordStore
  readonly #config: Config
  readonly #mutex = new KeyedMutex()
  readonly #tenants = new Map<string, Tenant>()
  readonly #quotas = new Map<string, Quota>()
  readonly #listeners = new Set<AccountListener>()
  #defaults: Quota

  private constructor(store: RecordStore, config: Config) {
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
  static async open(store: RecordStore, config: Config): Promise<Tenants> {
    const tenants = new Tenants(store, config)
    for (const { key, value } of await store.readRecords(KIND)) tenants.#tenants.set(key, readTenant(value))
    return tenants
  }

  get defaults(): Quota {
    return this.#defaults
  }

  /** Accounts that differ from others in any way. */
  names(): string[] {
    return [...this.#tenants.keys()]
  }

  /** Whether the name is a server admin's of the configuration, who is no tenant. */
  isAdmin(name: string): boolean {
    return this.#config.get('admins', name) !== undefined
  }

  /** What the account may have; kept, since it is asked for with every request. */
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

  /** @returns why the account is let in nowhere, in words for whoever has its password; null: it is */
  refusalOf(account: string): string | null {
    const tenant = this.#tenants.get(account)
    if (tenant === undefined) return null
    if (tenant.isLeaving) return 'The account is being deleted.'
    return tenant.isSuspended ? 'The account is suspended. Ask the operator of this server.' : null
  }

  /** Durable when resolved, and then in effect; feeds of an account that is let in no more end. */
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

  /** The account is gone: a later one of its name begins anew. */
  forget(account: string): Promise<void> {
    return this.#mutex.run(account, async () => {
      await this.#store.writeRecords([{ kind: KIND, key: account, value: null }])
      this.#tenants.delete(account)
      this.#quotas.delete(account)
      this.#notify(account)
    })
  }

  /** Told whose accounts were suspended, let in again, or deleted. @returns what ends the calls */
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

// Accounts as hosted mode has them: some are suspended, or about to be deleted, and are let in nowhere.

/**
 * Wraps accounts. One that is not to be let in is found with its `refusal`, which only whoever has its password is
 * told: others shall not learn who has an account. Server admins are no tenants.
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
    onChange: (listener) => {
      const ends = [accounts.onChange(listener), tenants.onChange(listener)]
      return () => {
        for (const end of ends) end()
      }
    },
  }
}
