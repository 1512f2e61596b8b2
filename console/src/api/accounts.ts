/** Accounts of single mode, as documents of `_users` and keys of the section `admins`. */
import { ask, pathOf } from './client.ts'
import { Failure } from './failure.ts'

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
