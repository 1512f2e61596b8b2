/** Who uses the console, and what kind of server it is. */
import { computed, signal } from '@preact/signals'
import { ask, pathOf } from './client.ts'
import { Failure } from './failure.ts'
import { answerRenewal, beginSession, endSession, forgetSession } from './session-end.ts'

export interface User {
  readonly name: string
  readonly roles: readonly string[]
  readonly isAdmin: boolean
}

export interface ServerFacts {
  /** settee's own version. */
  readonly version: string
  /** The version of CouchDB that it follows. */
  readonly couchVersion: string
  readonly uuid: string
  readonly isHosted: boolean
}

/**
 * `loading`; `unreachable`: the server did not answer; `open`: there is no admin, so everybody is one; `anonymous`: nobody
 * has signed in; `signed in`.
 */
export type SessionState =
  | { readonly kind: 'loading' }
  | { readonly kind: 'unreachable'; readonly failure: Failure }
  | { readonly kind: 'open'; readonly server: ServerFacts }
  | { readonly kind: 'anonymous'; readonly version: string }
  | { readonly kind: 'signed in'; readonly user: User; readonly server: ServerFacts }

export const session = signal<SessionState>({ kind: 'loading' })

/** The signed-in user; null while there is none. */
export const user = computed<User | null>(() =>
  session.value.kind === 'signed in' ? session.value.user : null,
)

/** Facts of the server for signed-in users; null while there is none. */
export const server = computed<ServerFacts | null>(() =>
  session.value.kind === 'signed in' ? session.value.server : null,
)

interface SessionAnswer {
  readonly userCtx: { readonly name: string | null; readonly roles: readonly string[] }
}

interface Welcome {
  readonly version: string
  readonly uuid: string
  readonly vendor: { readonly version: string }
}

/** Asks the server who the user is. It never throws; the result is in {@link session}. */
export async function readSession(): Promise<void> {
  try {
    const welcome = await ask<Welcome>('')
    const { userCtx } = await ask<SessionAnswer>('_session', { isLogin: true })
    session.value = await stateOf(userCtx, welcome)
  } catch (error) {
    if (!(error instanceof Failure)) throw error
    session.value =
      error.status === 401 ? { kind: 'anonymous', version: '' } : { kind: 'unreachable', failure: error }
  }
}

async function stateOf({ name, roles }: SessionAnswer['userCtx'], welcome: Welcome): Promise<SessionState> {
  const isAdmin = roles.includes('_admin')
  if (name === null && !isAdmin) {
    forgetSession()
    return { kind: 'anonymous', version: welcome.vendor.version }
  }
  if (name !== null) beginSession(() => void readSession())
  const facts = {
    version: welcome.vendor.version,
    couchVersion: welcome.version,
    uuid: welcome.uuid,
    isHosted: await readIsHosted(isAdmin),
  }
  return name === null
    ? { kind: 'open', server: facts }
    : { kind: 'signed in', user: { name, roles, isAdmin }, server: facts }
}

/** Only a server in hosted mode tells an account about itself. */
async function readIsHosted(isAdmin: boolean): Promise<boolean> {
  if (isAdmin) return (await ask<string>('_node/_local/_config/settee/mode')) === 'hosted'
  try {
    await ask('_settee/account')
    return true
  } catch (error) {
    if (error instanceof Failure && error.status === 404) return false
    throw error
  }
}

/** Signs in with a name and a password. @throws Failure with 401 for wrong ones */
export async function signIn(name: string, password: string): Promise<void> {
  await ask('_session', { json: { name, password }, isLogin: true })
  await readSession()
}

/** Signs in again over the open page. @throws Failure with 401 for a wrong password */
export async function signInAgain(name: string, password: string): Promise<void> {
  await ask('_session', { json: { name, password }, isLogin: true })
  answerRenewal(true)
}

/** Signs out; the page begins anew. */
export async function signOut(): Promise<void> {
  await ask('_session', { method: 'DELETE', isLogin: true })
  endSession()
}

/** Makes the first admin of a server without one, and signs in. @throws Failure */
export async function makeFirstAdmin(name: string, password: string): Promise<void> {
  await ask(pathOf('_node', '_local', '_config', 'admins', name), {
    method: 'PUT',
    json: password,
    isLogin: true,
  })
  await signIn(name, password)
}
