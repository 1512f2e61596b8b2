import type { HandlerName } from '../config/authentication-handlers.ts'

/** How a caller was let in. */
export interface Identity {
  /** CouchDB's name of the handler, or `token`: by Basic, with a device token; null for nobody in particular. */
  readonly handler: HandlerName | 'token' | null
  /** The id of the device token that let him in. */
  readonly token: string | null
}

const identity = (handler: HandlerName | null): Identity => Object.freeze({ handler, token: null })

export const NOBODY = identity(null)

/** One for all requests of a kind: a request makes none. */
export const IDENTITIES: Readonly<Record<HandlerName, Identity>> = {
  cookie: identity('cookie'),
  default: identity('default'),
  proxy: identity('proxy'),
  jwt: identity('jwt'),
}
