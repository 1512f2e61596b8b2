/** Who uses the console, and what kind of server it is. */
import { computed, signal } from '@preact/signals'
import { ask, pathOf } from './client.ts'
import { asFailure, type Failure } from './failure.ts'
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
  | { readonly kind: 'open' }
  | { readonly kind: 'anonymous' }
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
    // At once, since each takes a second on a slow network.
    const [welcome, { userCtx }, isHosted] = await Promise.all([
      ask<Welcome>(''),
      ask<SessionAnswer>('_session', { isLogin: true }),
      readIsHosted(),
    ])
    session.value = stateOf(userCtx, welcome, isHosted)
  } catch (error) {
    const failure = asFailure(error)
    session.value = failure.status === 401 ? { kind: 'anonymous' } : { kind: 'unreachable', failure }
  }
}

function stateOf(
  { name, roles }: SessionAnswer['userCtx'],
  { vendor, version, uuid }: Welcome,
  isHosted: boolean,
): SessionState {
  const isAdmin = roles.includes('_admin')
  if (name === null && !isAdmin) {
    forgetSession()
    return { kind: 'anonymous' }
  }
  if (name === null) return { kind: 'open' }
  beginSession(() => void readSession())
  const server = { version: vendor.version, couchVersion: version, uuid, isHosted }
  return { kind: 'signed in', user: { name, roles, isAdmin }, server }
}

/** An admin may read the mode; a tenant has an account of settee's own, which single mode does not know. */
async function readIsHosted(): Promise<boolean> {
  const none = () => null
  const [mode, account] = await Promise.all([
    ask<string>('_node/_local/_config/settee/mode', { isLogin: true }).catch(none),
    ask('_settee/account', { isLogin: true }).catch(none),
  ])
  return mode === 'hosted' || account !== null
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
