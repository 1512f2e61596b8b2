/** `_users` as a database thread serves it: what is about more than single documents is for admins; protocol.md 11.4. */
import type { SecurityObject, UserCtx } from '../core/types.ts'
import { requireDatabaseAdmin, requireServerAdmin } from '../documents/security.ts'
import { METHODS, type ServedDatabase } from './wire.ts'

/** Who may call a method; `itself`: it has rules of its own (documents/users-database.ts), or shows nothing of users. */
type Callers = 'itself' | 'admins' | 'server admins'

/** A method that nobody has thought about would not compile. */
const CALLERS: Readonly<Record<keyof ServedDatabase, Callers>> = {
  info: 'itself',
  size: 'itself',
  security: 'itself',
  storedBefore: 'itself',
  exportLines: 'server admins',
  setSecurity: 'itself',
  revsLimit: 'itself',
  setRevsLimit: 'admins',
  compact: 'itself',
  purge: 'server admins',
  purgedInfos: 'admins',
  purgedInfosLimit: 'server admins',
  setPurgedInfosLimit: 'server admins',
  history: 'admins',
  overwritten: 'admins',
  version: 'admins',
  rewind: 'admins',
  open: 'itself',
  openRevs: 'itself',
  openParts: 'itself',
  openRevsMixed: 'itself',
  put: 'itself',
  post: 'itself',
  postForm: 'itself',
  remove: 'itself',
  copy: 'itself',
  bulkDocs: 'itself',
  bulkGet: 'itself',
  bulkGetMixed: 'itself',
  revsDiff: 'admins',
  missingRevs: 'admins',
  allDocs: 'server admins',
  allDocsQueries: 'server admins',
  openAttachment: 'itself',
  // Of what openAttachment has found.
  readAttachment: 'itself',
  putAttachment: 'itself',
  removeAttachment: 'itself',
  view: 'admins',
  viewQueries: 'admins',
  viewInfo: 'admins',
  find: 'server admins',
  explain: 'server admins',
  indexes: 'admins',
  changes: 'server admins',
  readFilterBody: 'itself',
}

type Call = (user: UserCtx, ...args: readonly unknown[]) => Promise<unknown>
type Stream = (user: UserCtx, ...args: readonly unknown[]) => AsyncIterable<Uint8Array>

/**
 * Keeps methods of `_users` for admins.
 * @param database all or some of the methods
 * @param security reads the security object as it stands
 */
export function servedUsers<Some extends Partial<ServedDatabase>>(
  database: Some,
  security: () => Promise<SecurityObject | null>,
): Some {
  const check = async (callers: Callers, user: UserCtx) => {
    if (callers === 'server admins') requireServerAdmin(user)
    else requireDatabaseAdmin(user, await security())
  }
  const guarded = Object.entries(CALLERS).flatMap(([name, callers]) => {
    const method = database[name as keyof ServedDatabase]
    if (method === undefined || callers === 'itself') return []
    const guard = (user: UserCtx) => check(callers, user)
    const isStream = METHODS[name as keyof ServedDatabase] === 'stream'
    return [[name, isStream ? guardedStream(method as Stream, guard) : guardedCall(method as Call, guard)]]
  })
  return { ...database, ...(Object.fromEntries(guarded) as Partial<Some>) }
}

function guardedCall(call: Call, guard: (user: UserCtx) => Promise<void>): Call {
  return async (user, ...args) => {
    await guard(user)
    return call(user, ...args)
  }
}

function guardedStream(stream: Stream, guard: (user: UserCtx) => Promise<void>): Stream {
  return async function* (user, ...args) {
    await guard(user)
    yield* stream(user, ...args)
  }
}
