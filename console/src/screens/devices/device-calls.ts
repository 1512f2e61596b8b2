/** The calls of the screen: device tokens, accounts and vaults; docs/settee-api.md. */
import { ask, pathOf } from '../../api/client.ts'
import { Failure } from '../../api/failure.ts'

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
  const query = whose === 'all' ? { all: true, limit: 100, after } : { account: whose.account }
  const page = await ask<{ tokens: DeviceToken[]; next?: string | null }>('_settee/tokens', {
    query: { ...query, positions: true },
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

// Accounts, as documents of `_users` and keys of the section `admins`.

export interface Account {
  readonly name: string
  readonly isAdmin: boolean
  readonly roles: readonly string[]
  /** Whether it can sign in with a password; else only its devices can. */
  readonly hasPassword: boolean
}

export interface AccountPage {
  readonly accounts: readonly Account[]
  /** The id of the document with which the next page begins; null: this is the last one. */
  readonly next: string | null
}

const ID = 'org.couchdb.user:'
const PAGE = 50

interface UserDocument {
  readonly name?: unknown
  readonly roles?: unknown
  readonly derived_key?: unknown
  readonly password_sha?: unknown
}

/** Server admins come first, on the first page. @param start the id with which the page begins */
export async function listAccounts(start: string | undefined, signal?: AbortSignal): Promise<AccountPage> {
  const query = {
    startkey: JSON.stringify(start ?? ID),
    endkey: JSON.stringify('org.couchdb.user;'),
    include_docs: true,
    limit: PAGE + 1,
  }
  const [{ rows }, admins] = await Promise.all([
    ask<{ rows: readonly { id: string; doc: UserDocument }[] }>('_users/_all_docs', { query, signal }),
    start === undefined ? adminNames(signal) : [],
  ])
  const users = rows.slice(0, PAGE).map(({ id, doc }) => accountOf(id.slice(ID.length), doc))
  return {
    accounts: [...admins.map((name) => ({ name, isAdmin: true, roles: [], hasPassword: true })), ...users],
    next: rows[PAGE]?.id ?? null,
  }
}

async function adminNames(signal?: AbortSignal): Promise<readonly string[]> {
  const admins = await ask<Record<string, string>>('_node/_local/_config/admins', { signal })
  return Object.keys(admins).sort()
}

function accountOf(name: string, { roles, derived_key, password_sha }: UserDocument): Account {
  return {
    name,
    isAdmin: false,
    roles: Array.isArray(roles) ? roles.filter((role): role is string => typeof role === 'string') : [],
    hasPassword: derived_key !== undefined || password_sha !== undefined,
  }
}

function userPath(name: string): string {
  return pathOf('_users', `${ID}${name}`)
}

/** @throws Failure with 409 if there is one of this name */
export async function createAccount(name: string, password: string): Promise<void> {
  const json = { name, password, roles: [], type: 'user' }
  await ask(userPath(name), { method: 'PUT', json })
}

export async function changePassword({ name, isAdmin }: Pick<Account, 'name' | 'isAdmin'>, password: string) {
  if (isAdmin) {
    await ask(pathOf('_node', '_local', '_config', 'admins', name), { method: 'PUT', json: password })
    return
  }
  const document = await ask<object>(userPath(name))
  await ask(userPath(name), { method: 'PUT', json: { ...document, password } })
}

/** An account that is gone already is no failure. */
export async function deleteAccount({ name, isAdmin }: Pick<Account, 'name' | 'isAdmin'>): Promise<void> {
  try {
    if (isAdmin) {
      await ask(pathOf('_node', '_local', '_config', 'admins', name), { method: 'DELETE' })
      return
    }
    const { _rev } = await ask<{ _rev: string }>(userPath(name))
    await ask(userPath(name), { method: 'DELETE', query: { rev: _rev } })
  } catch (error) {
    if (!(error instanceof Failure) || error.status !== 404) throw error
  }
}
