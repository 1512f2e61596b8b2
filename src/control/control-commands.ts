/**
 * The commands that the command line can run on a running server, over the control socket, or on the folder of a
 * stopped server. Each is a method with one argument. A long command also takes a progress callback and a signal that
 * aborts when the caller has disconnected. Arguments, progress and results are plain data, so that the socket can carry
 * them; failures are CouchErrors.
 */

import type { Operator } from '../auth/operator.ts'
import { type BackupControl, localBackupControl } from '../backup/backup-control.ts'
import type { Backups } from '../backup/backups.ts'
import type { RestoreControl } from '../backup/restore.ts'
import type { SpaceControl, SpaceCures } from '../backup/space-cures.ts'
import { localTransferControl, type TransferControl, type TransferServices } from '../backup/transfers.ts'
import { asCouchError, CouchError } from '../core/errors.ts'
import { SYSTEM_USER } from '../core/types.ts'
import type { DatabaseSize } from '../documents/database.ts'
import type { Repairs } from '../healing/repairs.ts'
import { localMoveControl, type MoveControl, type Moves } from '../move/moves.ts'
import type { Scrub } from '../scrub/scrub.ts'
import { type CheckControl, localCheckControl } from '../scrub/scrub-control.ts'
import type { Standby } from '../standby/standby.ts'
import { localStandbyControl, type StandbyControl, withoutChanges } from '../standby/standby-control.ts'
import type { Databases } from '../threads/databases.ts'
import type { Rewinds } from '../time-machine/rewinds.ts'
import { localTimeMachineControl, type TimeMachineControl } from '../time-machine/time-machine-control.ts'
import type { VaultControl } from '../vaults/vault-control.ts'

export type ControlCommands = Operator &
  SizeControl &
  SpaceControl &
  TransferControl &
  RestoreControl &
  BackupControl &
  CheckControl &
  TimeMachineControl &
  VaultControl &
  MoveControl &
  StandbyControl

/** The names of all commands. Calls over the socket are checked against this list. */
export const CONTROL_COMMANDS: readonly (keyof ControlCommands)[] = [
  'setPassword',
  'addAccount',
  'listAccounts',
  'deleteAccount',
  'listSizes',
  'readSpace',
  'freeSpace',
  'listDatabases',
  'exportDatabase',
  'importDatabase',
  'restore',
  'adopt',
  'backUp',
  'checkDatabases',
  'giveUp',
  'readHistory',
  'readVersion',
  'rewindDatabase',
  'readVault',
  'addVault',
  'planMove',
  'move',
  'follow',
  'promote',
  'readStandby',
]

/** Those that change what a standby copies of its primary. */
const CHANGING: readonly (keyof ControlCommands)[] = [
  'setPassword',
  'addAccount',
  'deleteAccount',
  'importDatabase',
  'restore',
  'adopt',
  'rewindDatabase',
  'giveUp',
  'addVault',
  'move',
]

interface ControlServices extends TransferServices {
  readonly operator: Operator
  readonly vaults: VaultControl
  readonly moves: Moves
  readonly restorer: RestoreControl
  readonly backups: Backups
  readonly cures: SpaceCures
  readonly scrub: Scrub
  readonly repairs: Repairs
  readonly rewinds: Rewinds
  readonly standby: Standby
}

/** @returns the commands, on the configuration and databases that are open in this process */
export function localControlCommands(services: ControlServices): ControlCommands {
  const commands: ControlCommands = {
    ...services.operator,
    ...localSizeControl(services.databases),
    readSpace: (request) => services.cures.readSpace(request),
    freeSpace: (request) => services.cures.freeSpace(request),
    ...localTransferControl(services),
    ...services.restorer,
    ...localBackupControl(services.backups),
    ...localCheckControl(services),
    ...localTimeMachineControl(services.databases, services.rewinds),
    ...services.vaults,
    ...localMoveControl(services.moves),
    ...localStandbyControl(services.standby),
  }
  return withoutChanges(commands, CHANGING, services.standby)
}

export interface SizeRow {
  readonly database: string
  /** null: the database could not be read; see `fault`. */
  readonly size: DatabaseSize | null
  readonly fault: string | null
}

interface SizeControl {
  /**
   * Measures one database, or all databases one at a time, in the order of their names.
   * @throws no_database if the named database does not exist
   */
  listSizes(request: { readonly database: string | null }): Promise<readonly SizeRow[]>
}

function localSizeControl(databases: Pick<Databases, 'allNames' | 'get'>): SizeControl {
  return {
    listSizes: async ({ database }) => {
      if (database !== null) await databases.get(database)
      const rows: SizeRow[] = []
      for await (const name of database === null ? databases.allNames() : [database]) {
        const row = await rowOf(databases, name)
        if (row !== null) rows.push(row)
      }
      return rows
    },
  }
}

/** @returns null if the database was deleted in the meantime */
async function rowOf(databases: Pick<Databases, 'get'>, database: string): Promise<SizeRow | null> {
  try {
    return { database, size: await (await databases.get(database)).size(SYSTEM_USER), fault: null }
  } catch (error) {
    if (error instanceof CouchError && error.code === 'no_database') return null
    return { database, size: null, fault: asCouchError(error).message }
  }
}
