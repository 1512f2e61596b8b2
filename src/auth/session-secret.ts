import { randomBytes } from 'node:crypto'
import type { Config } from '../config/config.ts'
import { CouchError } from '../core/errors.ts'

/** @returns the secret that signs session cookies; undefined while there is none, and so no session */
export function sessionSecret(config: Config): string | undefined {
  return config.get('chttpd_auth', 'secret') || undefined
}

/**
 * Makes what gives the secret, and makes one where there is none; two who ask at once get the same.
 * @param warn told when it cannot be kept: sessions then end with the server
 */
export function secretMaker(config: Config, warn: (message: string) => void): () => Promise<string> {
  let making: Promise<string> | undefined
  const make = async (): Promise<string> => {
    const secret = randomBytes(16).toString('hex')
    try {
      await config.set('chttpd_auth', 'secret', secret)
    } catch (error) {
      if (!(error instanceof CouchError)) throw error
      await config.set('chttpd_auth', 'secret', secret, { persist: false })
      warn(`the secret of session cookies is kept in memory only: ${error.message}`)
    }
    return sessionSecret(config) ?? secret
  }
  return async () => {
    const secret = sessionSecret(config)
    if (secret !== undefined) return secret
    making ??= make().finally(() => {
      making = undefined
    })
    return making
  }
}
