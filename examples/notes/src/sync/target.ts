/** Derives from the settings which database to sync with, or why there is none. Pure. */
import { type Address, type AddressFault, formatAddress, parseAddress } from '../../../../src/core/address.ts'
import type { Settings, SyncMode } from '../settings.ts'

/**
 * How `file:` documents are left out: with the filter of the server's design document, with a selector if the server has
 * no design documents, or not at all.
 */
export type MobileWay = 'filter' | 'selector' | 'none'

/** A database to sync with. */
export interface Target {
  readonly mode: SyncMode
  readonly address: Address
  readonly mobile: MobileWay
}

/** Why there is nothing to sync with. */
export type Idle =
  | { readonly reason: 'off' | 'unchosen' | 'signed-out' | 'no-address' | 'no-hosted-server' }
  | { readonly reason: 'address'; readonly faults: readonly AddressFault[] }

export type Choice = { readonly target: Target } | { readonly idle: Idle }

/** @param hostedServer `scheme://host:port` from the build; empty: the build names none */
export function choiceOf(settings: Settings, hostedServer: string): Choice {
  if (settings.mode === 'off') return { idle: { reason: 'off' } }
  return settings.mode === 'hosted' ? hosted(settings, hostedServer) : advanced(settings)
}

function hosted({ account, isMobile, isModeChosen }: Settings, server: string): Choice {
  if (!isModeChosen && account === null) return { idle: { reason: 'unchosen' } }
  if (server === '') return { idle: { reason: 'no-hosted-server' } }
  if (account === null || account.server !== server) {
    return { idle: { reason: 'signed-out' } }
  }
  const found = hostedAddress(server, account.database, account.name, account.token)
  if (!('address' in found)) return { idle: { reason: 'address', faults: found.faults } }
  return { target: { mode: 'hosted', address: found.address, mobile: isMobile ? 'selector' : 'none' } }
}

function advanced({ address, isMobile }: Settings): Choice {
  if (address === '') return { idle: { reason: 'no-address' } }
  const result = parseAddress(address, { mobile: isMobile })
  if (!result.ok) return { idle: { reason: 'address', faults: result.faults } }
  return { target: { mode: 'advanced', address: result.address, mobile: isMobile ? 'filter' : 'none' } }
}

/** The address of a database of the hosted server, for an account and its password or token. */
export function hostedAddress(
  server: string,
  database: string,
  username: string,
  password: string,
): { readonly address: Address } | { readonly faults: readonly AddressFault[] } {
  const place = parseAddress(`${server.replace(/\/+$/, '')}/${encodeURIComponent(database)}`)
  if (!place.ok) return { faults: place.faults }
  const result = parseAddress(formatAddress({ ...place.address, username, password }))
  return result.ok ? { address: result.address } : { faults: result.faults }
}

/** A key that is equal for the same database, whatever the credentials; it contains none. */
export function keyOf({ mode, address }: Target): string {
  return `${mode} ${address.url}`
}
