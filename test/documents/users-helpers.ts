/** The database `_users` over the engine in memory, as a database thread serves it. */
import { USERS_DATABASE, userDocId } from '../../src/core/ids.ts'
import {
  DEFAULT_LIMITS,
  DEFAULT_RULES,
  type Rules,
  type UserCtx,
  type UsersRules,
} from '../../src/core/types.ts'
import type { Database } from '../../src/documents/database.ts'
import { usersDatabase } from '../../src/documents/users-database.ts'
import { compileRegex } from '../../src/query/regex.ts'
import type { Sandbox } from '../../src/sandbox/messages.ts'
import type { DatabaseStore } from '../../src/storage/engine.ts'
import type { StorageEngine } from '../../src/storage/storage-engine.ts'
import { servedUsers } from '../../src/threads/served.ts'
import { localSandbox } from '../helpers/local-sandbox.ts'
import { memoryEngine } from '../helpers/memory-engine.ts'
import { ADMIN, body, type Json, parse, text } from './helpers.ts'

/** Everybody is a member, as on a server with open registration. */
export const OPEN = { members: { names: [], roles: [] }, admins: { names: [], roles: ['keepers'] } }

/** An admin of `_users` who is not a server admin. */
export const KEEPER: UserCtx = { name: 'kim', roles: ['keepers'] }

export interface Users {
  readonly database: Database
  readonly store: DatabaseStore
  /** The rules of the configuration, which a test may change. */
  readonly rules: { hashing: Rules['hashing']; users: UsersRules }
  putUser(name: string, doc?: Record<string, unknown>): Promise<string>
  getUser(name: string, as?: UserCtx): Promise<Json>
  bulk(user: UserCtx, request: unknown): Promise<Json>
}

/** @param isOpen whether everybody is a member; otherwise the security object of a new server */
export async function openUsers(
  isOpen = true,
  engine: StorageEngine = memoryEngine(),
  sandbox: Sandbox = localSandbox(),
): Promise<Users> {
  const { incarnation } = await (await engine.openCatalog()).create(USERS_DATABASE)
  const users = await serve(engine, incarnation, sandbox)
  if (isOpen) await users.database.setSecurity(ADMIN, OPEN)
  return users
}

/** The same database, opened again. */
export async function reopenUsers(engine: StorageEngine): Promise<Users> {
  return serve(engine, 1, localSandbox())
}

async function serve(engine: StorageEngine, incarnation: number, sandbox: Sandbox): Promise<Users> {
  const store = await engine.openDatabase(USERS_DATABASE)
  const rules: Users['rules'] = {
    hashing: { iterations: 10, prf: 'sha256' },
    users: { database: USERS_DATABASE, publicFields: [], securityEditable: true, passwordRules: [] },
  }
  const opened = await usersDatabase(store, {
    name: USERS_DATABASE,
    limits: () => DEFAULT_LIMITS,
    rules: () => ({ ...DEFAULT_RULES, ...rules }),
    onSecured: () => {},
    sandbox,
    incarnation,
    startCompaction: async () => void store.compact(),
    compilePattern: compileRegex,
  })
  const database = servedUsers(opened, () => opened.security())
  return {
    database,
    store,
    rules,
    putUser: async (name, doc = {}) => {
      const whole = { name, type: 'user', roles: [], ...doc }
      return (await database.put(ADMIN, userDocId(name), body(whole), {})).rev
    },
    getUser: async (name, as = ADMIN) => parse((await database.open(as, userDocId(name), {})).json),
    bulk: async (user, request) => JSON.parse(await text(database.bulkDocs(user, body(request)))),
  }
}
