/** Quotas and suspensions that admins have set, one record for each account that differs from the defaults. */
import { type AccountListener, type Accounts, isServerAdmin } from '../auth/accounts.ts'
import type { Config } from '../config/config.ts'
import { CouchError } from '../core/errors.ts'
import { jsonObjectIn } from '../core/json.ts'
import { Listeners } from '../core/listeners.ts'
import { RecordCache } from '../storage/record-cache.ts'
import { allRecords, type RecordWrite, readRecord, type WatchedRecords } from '../storage/records.ts'
import {
  changedOverrides,
  defaultQuota,
  type Quota,
  type QuotaChange,
  type QuotaOverrides,
  quotaWith,
  readQuota,
  shownQuota,
} from './quota.ts'

const KIND = 'tenant'
/** Accounts whose deletion has begun; the key is their name. */
const BEING_DELETED = 'tenant_leaving'
/** Tenants that are remembered: a few megabytes. */
const MAX_REMEMBERED = 20_000
/** Characters of a name that is remembered. */
const MAX_NAME = 256
/** How often a change is tried while others change the same record. */
const MAX_TRIES = 50

interface Tenant {
  readonly quota: QuotaOverrides
  readonly isSuspended: boolean
  /** Its deletion has begun, and continues until it is done. */
  readonly isBeingDeleted: boolean
}

const ORDINARY: Tenant = { quota: {}, isSuspended: false, isBeingDeleted: false }

/** A change; absent members stay as they are. */
interface TenantChange {
  readonly quota?: QuotaChange
  readonly isSuspended?: boolean
  readonly isBeingDeleted?: boolean
}

/** What the record of an account says, or the lack of one. */
export interface TenantState extends Omit<Tenant, 'quota'> {
  readonly quota: Quota
  readonly overrides: QuotaOverrides
}

export class Tenants {
  readonly #records: WatchedRecords
  readonly #config: Config
  readonly #tenants: RecordCache<Tenant>
  /** The complete quotas by their overrides, until the defaults change. */
  #quotas = new WeakMap<QuotaOverrides, Quota>()
  readonly #listeners = new Listeners<Parameters<AccountListener>>()
  readonly #ends: readonly (() => void)[]
  #defaults: Quota

  constructor(records: WatchedRecords, config: Config) {
    this.#records = records
    this.#config = config
    this.#defaults = defaultQuota(config)
    this.#tenants = new RecordCache({ records, kind: KIND, max: MAX_REMEMBERED, parse: readTenant })
    this.#ends = [
      config.onChange((section) => {
        if (section !== 'quota') return
        this.#defaults = defaultQuota(config)
        this.#quotas = new WeakMap()
      }),
      // Feeds of an account that another node has suspended end, too.
      records.watchCatalog((change) => {
        if (change.type === 'any') this.#listeners.tell('all')
        else if (change.type === 'records' && change.kind === KIND) this.#listeners.tell(new Set(change.keys))
      }),
    ]
  }

  get defaults(): Quota {
    return this.#defaults
  }

  /** Whether the name is that of a server admin, who is not a tenant. */
  isAdmin(name: string): boolean {
    return this.#config.get('admins', name) !== undefined
  }

  /** The account's quota; remembered, since every request needs it. */
  quotaOf(account: string): Quota | Promise<Quota> {
    const tenant = this.#tenantOf(account)
    return tenant instanceof Promise ? tenant.then((read) => this.#quotaOf(read)) : this.#quotaOf(tenant)
  }

  /** Whatever a client calls itself, only names of an ordinary length are remembered. */
  #tenantOf(account: string): Tenant | Promise<Tenant> {
    if (account.length <= MAX_NAME) return this.#tenants.get(account)
    return readRecord(this.#records, KIND, account).then(readTenant)
  }

  #quotaOf({ quota }: Tenant): Quota {
    if (quota === ORDINARY.quota) return this.#defaults
    let whole = this.#quotas.get(quota)
    if (whole === undefined) {
      whole = quotaWith(this.#defaults, quota)
      this.#quotas.set(quota, whole)
    }
    return whole
  }

  /** All that is known of an account. */
  async stateOf(account: string): Promise<TenantState> {
    const tenant = await this.#tenantOf(account)
    return { ...tenant, quota: this.#quotaOf(tenant), overrides: tenant.quota }
  }

  /** Whether the account differs from the defaults. */
  async isKnown(account: string): Promise<boolean> {
    return (await this.#tenantOf(account)) !== ORDINARY
  }

  /** A page of the accounts that differ from the defaults, in byte order. */
  async names(prefix: string, after: string, limit: number): Promise<string[]> {
    return (await this.#records.listRecords(KIND, { prefix, after }, limit)).map(({ key }) => key)
  }

  /** @returns why the account has no access, in words for its owner; null: it has */
  refusalOf(account: string): string | null | Promise<string | null> {
    const tenant = this.#tenantOf(account)
    return tenant instanceof Promise ? tenant.then(refusalIn) : refusalIn(tenant)
  }

  /**
   * Checks that an account has access, for work that begins with a write of records.
   * @returns the write that lets the others fail if the account loses access meanwhile
   * @throws forbidden
   */
  async guard(account: string): Promise<RecordWrite> {
    const text = await readRecord(this.#records, KIND, account)
    const refusal = refusalIn(readTenant(text))
    if (refusal !== null) throw new CouchError('forbidden', refusal)
    return { kind: KIND, key: account, value: text, expected: text }
  }

  /** Durable and in effect when resolved, on other nodes within about a second. Feeds of an account without access end. */
  change(account: string, change: TenantChange): Promise<void> {
    return this.#write(account, (before) => {
      const quota = changedOverrides(before.quota, change.quota ?? {})
      return { ...before, ...change, quota: Object.keys(quota).length > 0 ? quota : ORDINARY.quota }
    })
  }

  /** Removes the record of a deleted account, so that a later one of its name starts with the defaults. */
  forget(account: string): Promise<void> {
    return this.#write(account, () => ORDINARY)
  }

  /** @throws unavailable if others change the same record all the time */
  async #write(account: string, next: (before: Tenant) => Tenant): Promise<void> {
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const text = await readRecord(this.#records, KIND, account)
      const after = next(readTenant(text))
      const isDone = await this.#records.writeRecords([
        { kind: KIND, key: account, value: written(after), expected: text },
        { kind: BEING_DELETED, key: account, value: after.isBeingDeleted ? '' : null },
      ])
      if (isDone) return
    }
    throw new CouchError('unavailable')
  }

  /** Accounts whose deletion has begun and is not done. */
  async *beingDeleted(): AsyncGenerator<string> {
    for await (const { key } of allRecords(this.#records, BEING_DELETED)) yield key
  }

  /** Calls the listener with suspended, reactivated and deleted accounts. @returns a function that ends the calls */
  onChange(listener: AccountListener): () => void {
    return this.#listeners.add(listener)
  }

  close(): void {
    this.#tenants.close()
    for (const end of this.#ends) end()
  }
}

function refusalIn(tenant: Tenant): string | null {
  if (tenant.isBeingDeleted) return 'The account is being deleted.'
  return tenant.isSuspended ? 'The account is suspended. Ask the operator of this server.' : null
}

function isOrdinary({ quota, isSuspended, isBeingDeleted }: Tenant): boolean {
  return quota === ORDINARY.quota && !isSuspended && !isBeingDeleted
}

function written(tenant: Tenant): string | null {
  if (isOrdinary(tenant)) return null
  const { quota, isSuspended, isBeingDeleted } = tenant
  return JSON.stringify({ quota: shownQuota(quota), suspended: isSuspended, leaving: isBeingDeleted })
}

/**
 * @param value of a record; null: there is none
 * @returns a suspended tenant for a damaged record, which may have said so; the operator can end that
 */
function readTenant(value: string | null): Tenant {
  if (value === null) return ORDINARY
  const read = jsonObjectIn(value)
  if (read === null) return { ...ORDINARY, isSuspended: true }
  const quota = changedOverrides({}, readQuota(read.quota ?? {}))
  return {
    quota: Object.keys(quota).length > 0 ? quota : ORDINARY.quota,
    isSuspended: read.suspended === true,
    isBeingDeleted: read.leaving === true,
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
      const refusal = await tenants.refusalOf(name)
      return account === null || refusal === null || isServerAdmin(account)
        ? account
        : { ...account, refusal }
    },
    decoy: () => accounts.decoy(),
    isUpToDate: () => accounts.isUpToDate(),
    onChange: (listener) => {
      const ends = [accounts.onChange(listener), tenants.onChange(listener)]
      return () => {
        for (const end of ends) end()
      }
    },
  }
}
