/** The calls of the screen: device tokens and vaults; docs/settee-api.md. */
import { ask, pathOf } from '../../api/client.ts'

export interface Position {
  readonly database: string
  /** The number of changes that the device lacks; null: not counted. */
  readonly behind: number | null
  readonly time: string
}

export interface DeviceToken {
  readonly id: string
  readonly account: string
  readonly name: string
  readonly admin: boolean
  readonly created: string
  readonly last_use: { readonly time: string; readonly client: string; readonly address: string } | null
  readonly positions: readonly Position[]
}

export interface DevicePage {
  readonly tokens: readonly DeviceToken[]
  readonly next: string | null
}

/**
 * @param whose `all`: the devices of all accounts, for server admins; else the name of an account
 * @param after the id of the last device of the page before
 */
export async function listDevices(
  whose: { readonly account: string } | 'all',
  after: string | undefined,
  signal?: AbortSignal,
): Promise<DevicePage> {
  const query = whose === 'all' ? { all: true } : { account: whose.account }
  const page = await ask<{ tokens: DeviceToken[]; next?: string | null }>('_settee/tokens', {
    query: { ...query, limit: 100, after, positions: true },
    signal,
  })
  return { tokens: page.tokens, next: page.next ?? null }
}

export async function revokeDevice(id: string): Promise<void> {
  await ask(pathOf('_settee', 'tokens', id), { method: 'DELETE' })
}

export type App = 'inkdrop' | 'livesync' | 'pouchdb'

export interface VaultOrder {
  readonly vault: string
  readonly for: App
  readonly account: string | undefined
  readonly device: string
  readonly host: string
  readonly passphrase: string | undefined
  readonly mobile_filter: boolean
  readonly renew: boolean
}

type Step = 'made' | 'there' | 'changed' | 'differs' | 'closed'

export interface Vault {
  readonly vault: string
  readonly for: App
  readonly account: string
  readonly device: string
  readonly done: {
    readonly account: Step
    readonly database: Step
    readonly security: Step
    readonly filter: Step | null
    readonly settings: readonly string[]
    readonly token: Step | null
  }
  readonly url: string
  /** null: the device has a token already. */
  readonly address: string | null
  readonly setup_uri: string | null
  readonly setup_passphrase: string | null
  readonly encryption_passphrase: string | null
  readonly notes: readonly string[]
}

export function addVault(order: VaultOrder): Promise<Vault> {
  return ask<Vault>('_settee/vaults', { json: order })
}

/** The names of the first databases that the user may use, to choose from. */
export async function databaseNames(signal: AbortSignal): Promise<readonly string[]> {
  const { databases } = await ask<{ databases: readonly { name: string }[] }>('_settee/databases', {
    query: { limit: 200 },
    signal,
  })
  return databases.map(({ name }) => name).filter((name) => !name.startsWith('_'))
}
