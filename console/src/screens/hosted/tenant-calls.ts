/** The calls of the screen: accounts in hosted mode; docs/settee-api.md. */
import { ask, pathOf } from '../../api/client.ts'

export const QUOTAS = [
  'bytes',
  'documents',
  'databases',
  'indexes',
  'document_size',
  'requests',
  'feeds',
  'replications',
] as const

export type QuotaName = (typeof QUOTAS)[number]
export type Limit = number | 'infinity'
export type Quota = Readonly<Record<QuotaName, Limit>>

/** The quotas whose use is measured. */
export const MEASURED = ['bytes', 'documents', 'databases', 'indexes', 'feeds'] as const
export type Usage = Readonly<Record<(typeof MEASURED)[number], number>>

export interface TenantRow {
  readonly name: string
  readonly suspended: boolean
  readonly deleting?: true
  readonly quota: Quota
  readonly usage: Usage
}

export interface Tenant extends TenantRow {
  readonly roles: readonly string[]
  /** The quotas that differ from the configured ones. */
  readonly overrides: Partial<Quota>
  readonly databases: readonly { readonly name: string; readonly bytes: number; readonly documents: number }[]
}

export interface TenantPage {
  readonly accounts: readonly TenantRow[]
  readonly next: string | null
}

const PATH = '_settee/accounts'

export function listTenants(
  prefix: string,
  after: string | undefined,
  signal?: AbortSignal,
): Promise<TenantPage> {
  const query = { limit: 50, after, prefix: prefix === '' ? undefined : prefix }
  return ask<TenantPage>(PATH, { query, signal })
}

export function readTenant(name: string, signal: AbortSignal): Promise<Tenant> {
  return ask<Tenant>(pathOf('_settee', 'accounts', name), { signal })
}

export async function createTenant(name: string, password: string): Promise<void> {
  await ask(PATH, { json: { name, password } })
}

interface TenantChange {
  readonly suspended?: boolean
  /** null restores the configured limit. */
  readonly quota?: Partial<Record<QuotaName, Limit | null>>
}

export async function changeTenant(name: string, change: TenantChange): Promise<void> {
  await ask(pathOf('_settee', 'accounts', name), { method: 'PUT', json: change })
}

/** @returns the backups that may still have the account's data */
export async function deleteTenant(name: string): Promise<readonly string[]> {
  const { kept } = await ask<{ kept: readonly { backup: string }[] }>(pathOf('_settee', 'accounts', name), {
    method: 'DELETE',
  })
  return kept.map(({ backup }) => backup)
}

/** @param owner null: nobody */
export async function setOwner(database: string, owner: string | null): Promise<void> {
  await ask(pathOf('_settee', 'owners', database), { method: 'PUT', json: { owner } })
}

export async function readOwner(database: string): Promise<string | null> {
  return (await ask<{ owner: string | null }>(pathOf('_settee', 'owners', database))).owner
}
