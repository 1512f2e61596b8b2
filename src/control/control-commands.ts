/**
 * What the command line may ask for, on a server that runs (over the control socket) and on the folder of one that does
 * not: each is a method that takes one argument and, where it takes its time, whom it tells how far it is, and what says
 * that whoever asked does not wait any more (a command that is broken off). Arguments and what is told are plain data, so
 * that they can travel; failures are CouchErrors.
 */
import { localOperator, type Operator, type OperatorServices } from '../auth/operator.ts'
import { SYSTEM_USER } from '../auth/users-feed.ts'
import { type BackupControl, localBackupControl } from '../backup/backup-control.ts'
import type { Backups } from '../backup/backups.ts'
import type { RestoreControl } from '../backup/restore.ts'
import { localTransferControl, type TransferControl, type TransferServices } from '../backup/transfers.ts'
import { asCouchError, CouchError } from '../core/errors.ts'
import type { DatabaseSize } from '../documents/database.ts'
import type { Databases } from '../threads/databases.ts'
import type { Rewinds } from '../time-machine/rewinds.ts'
import { localTimeMachineControl, type TimeMachineControl } from '../time-machine/time-machine-control.ts'
import type { VaultControl, VaultServices } from '../vaults/vault-control.ts'
import { localVaultControl } from '../vaults/vaults.ts'

export type ControlCommands = Operator &
  SizeControl &
  TransferControl &
  RestoreControl &
  BackupControl &
  TimeMachineControl &
  VaultControl

/** All of them, by which a call that comes over the socket is known. */
export const CONTROL_COMMANDS: readonly (keyof ControlCommands)[] = [
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

interface ControlServices extends OperatorServices, TransferServices, VaultServices {
  readonly restorer: RestoreControl
  readonly backups: Backups
  readonly rewinds: Rewinds
}

/** @returns what works on the configuration and databases that are open in this process */
export function localControlCommands(services: ControlServices): ControlCommands {
  const operator = localOperator(services)
  return {
    ...operator,
    ...localSizeControl(services.databases),
    ...localTransferControl(services),
    ...services.restorer,
    ...localBackupControl(services.backups),
    ...localTimeMachineControl(services.databases, services.rewinds),
    ...localVaultControl(services, operator),
  }
}

// Where the bytes of databases are, for the command line.

export interface SizeRow {
  readonly database: string
  /** null: it could not be read, which `fault` explains. */
  readonly size: DatabaseSize | null
  readonly fault: string | null
}

/** Arguments and answers are plain data, so that they can travel (control-server.ts). */
interface SizeControl {
  /**
   * Looks into all databases, one after the other, in the order of their names; or into one.
   * @throws no_database for one that is named and not there
   */
  listSizes(asked: { readonly database: string | null }): Promise<readonly SizeRow[]>
}

/** @returns what works on the databases that are open in this process */
function localSizeControl(databases: Pick<Databases, 'names' | 'get'>): SizeControl {
  return {
    listSizes: async ({ database }) => {
      if (database !== null) databases.get(database)
      const rows: SizeRow[] = []
      for (const name of database === null ? databases.names() : [database]) {
        const row = await rowOf(databases, name)
        if (row !== null) rows.push(row)
      }
      return rows
    },
  }
}

/** null: it was deleted meanwhile. */
async function rowOf(databases: Pick<Databases, 'get'>, database: string): Promise<SizeRow | null> {
  try {
    return { database, size: await databases.get(database).size(SYSTEM_USER), fault: null }
  } catch (error) {
    if (error instanceof CouchError && error.code === 'no_database') return null
    return { database, size: null, fault: asCouchError(error).message }
  }
}
