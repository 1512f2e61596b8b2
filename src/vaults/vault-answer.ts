/** Makes a planned vault, and tells of it: what was done, the new secrets, and what will keep a device from syncing. */
import { type Address, parseAddress } from '../core/address.ts'
import { shown } from '../core/errors.ts'
import { inTurn, type LiveSyncSetup, setupOf } from './livesync-setup.ts'
import { isThisMachine, type VaultControl, type VaultOutcome, type VaultState } from './vault-control.ts'
import { type App, type VaultPlan, type VaultWish, withCredentials } from './vault-plan.ts'

/** The current state of a vault, with its new secrets. */
export interface VaultReport {
  readonly wish: Pick<VaultWish, 'vault' | 'app' | 'host'>
  readonly account: string
  /** null: the address has the account's password. */
  readonly device: string | null
  readonly state: VaultState
  readonly outcome: VaultOutcome
  /** null: the device already has a token, which cannot be shown again. */
  readonly address: Address | null
  /** The address without credentials. */
  readonly url: string
  readonly setup: LiveSyncSetup | null
}

/**
 * Creates the missing parts of a vault.
 * @throws as `VaultControl.addVault`; unavailable, before anything is made, when too many Setup URIs wait
 */
export function makeVault(plan: VaultPlan, controls: VaultControl): Promise<VaultReport> {
  const make = () => makeParts(plan, controls)
  // A turn for the whole: a refusal after the token was made would lose the token's secret.
  return plan.encryption === null ? make() : inTurn(plan.order.account, make)
}

async function makeParts(
  { wish, order, place, encryption }: VaultPlan,
  controls: VaultControl,
): Promise<VaultReport> {
  const { account, device } = order
  const outcome = await controls.addVault(order)
  const secret = order.password ?? outcome.secret
  const address = secret === null ? null : withCredentials(place, account, secret)
  const setup = address === null || encryption === null ? null : await setupOf(address, encryption)
  const state = await controls.readVault(order)
  return { wish, account, device, state, outcome, address, url: place.url, setup }
}

/** @param hostHint how to give another address of the server */
export function vaultAnswer(report: VaultReport, hostHint: string): object {
  const { wish, account, device, outcome, address, url, setup } = report
  const { secret: _, faults: __, ...steps } = outcome
  const { vault, app } = wish
  return {
    vault,
    for: app,
    account,
    device,
    done: steps,
    url,
    address: address?.text ?? null,
    setup_uri: setup?.uri ?? null,
    setup_passphrase: setup?.passphrase ?? null,
    encryption_passphrase: setup?.newEncryption ?? null,
    notes: notesOf(report, hostHint),
  }
}

function seemsUsedByAnotherApp(app: App, { documents, hasLiveSync }: VaultState): boolean {
  if (app === 'inkdrop') return hasLiveSync
  return app === 'livesync' && !hasLiveSync && (documents ?? 0) > 0
}

/**
 * Notes about problems that will keep a device from syncing.
 * @param hostHint how to give another address of the server
 */
export function notesOf({ wish, state, outcome, url }: VaultReport, hostHint: string): string[] {
  const notes: string[] = []
  const place = parseAddress(url, { mobile: wish.app !== 'pouchdb' })
  if (isThisMachine(new URL(url).hostname)) {
    notes.push(
      `This address works only on this machine. For other devices, give the address of the server as they see it: ${hostHint}`,
    )
  } else if (!place.ok) {
    for (const { reason, mend } of place.faults) notes.push(`${reason} ${mend}`)
  }
  if (new URL(url).hostname.startsWith('[')) {
    notes.push('PouchDB and apps built on it cannot use IPv6 addresses: use a host name.')
  }
  if (state.admins.length === 0 && !state.isHosted) {
    notes.push(
      'There is no server admin, so anyone who can reach the server may do anything. To create one: settee setup',
    )
  }
  if (seemsUsedByAnotherApp(wish.app, state)) {
    notes.push(
      'Another app seems to use this database, and two apps in one database conflict. Choose another name.',
    )
  }
  if (outcome.filter === 'differs') {
    notes.push(
      'The filter sync of _design/mobile is not the one that leaves out pictures; it was left unchanged.',
    )
  }
  if (outcome.faults.length > 0) {
    notes.push(
      `LiveSync's server check will complain about ${outcome.faults.join(', ')}: ` +
        (state.isHosted
          ? 'in hosted mode a server admin has to set them (docs/livesync.md).'
          : 'run the same command again once there is a server admin.'),
    )
  }
  if (state.listening === null)
    notes.push(`No server is running on ${shown(state.folder)}. To start it: settee serve`)
  return notes
}
