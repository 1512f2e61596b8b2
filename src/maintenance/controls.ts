/**
 * What the command line may ask for, on a server that runs (over the control socket) and on the folder of one that does
 * not: each is a method that takes one argument and, where it takes its time, whom it tells how far it is, and what says
 * that whoever asked does not wait any more (a command that is broken off). Arguments and what is told are plain data, so
 * that they can travel; failures are CouchErrors.
 */

import { localOperator, type Operator, type OperatorServices } from '../auth/operator.ts'
import type { Backups } from './backup/backups.ts'
import { type Keeper, localKeeper } from './backup/controls.ts'
import { type HistoryControls, localHistory } from './history-controls.ts'
import type { Restorer } from './restore.ts'
import type { Rewinds } from './rewinds.ts'
import { localSizes, type SizeControls } from './sizes.ts'
import { localTransfers, type TransferServices, type Transfers } from './transfers.ts'
import type { VaultControls, VaultServices } from './vault-controls.ts'
import { localVaults } from './vaults.ts'

export type Controls = Operator &
  SizeControls &
  Transfers &
  Restorer &
  Keeper &
  HistoryControls &
  VaultControls

/** All of them, by which a call that comes over the socket is known. */
export const CONTROLS: readonly (keyof Controls)[] = [
  'setPassword',
  'addAccount',
  'listAccounts',
  'deleteAccount',
  'listSizes',
  'exportDatabase',
  'importDatabase',
  'restore',
  'adopt',
  'backUp',
  'readHistory',
  'readVersion',
  'rewindDatabase',
  'readVault',
  'addVault',
]

export interface ControlServices extends OperatorServices, TransferServices, VaultServices {
  readonly restorer: Restorer
  readonly backups: Backups
  readonly rewinds: Rewinds
}

/** @returns what works on the configuration and databases that are open in this process */
export function localControls(services: ControlServices): Controls {
  const operator = localOperator(services)
  return {
    ...operator,
    ...localSizes(services.databases),
    ...localTransfers(services),
    ...services.restorer,
    ...localKeeper(services.backups),
    ...localHistory(services.databases, services.rewinds),
    ...localVaults(services, operator),
  }
}
