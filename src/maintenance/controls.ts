/**
 * What the command line may ask for, on a server that runs (over the control socket) and on the folder of one that does
 * not: each is a method that takes one argument and, where it takes its time, whom it tells how far it is. All of these
 * are plain data, so that they can travel; failures are CouchErrors.
 */
import { localOperator, type Operator, type OperatorServices } from '../auth/operator.ts'
import type { Databases } from '../threads/databases.ts'
import { type HistoryControls, localHistory } from './history-controls.ts'
import type { Rewinds } from './rewinds.ts'

/** Told now and then how far something is. */
export type OnProgress<Progress extends object> = (progress: Progress) => void

export type Controls = Operator & HistoryControls

/** All of them, by which a call that comes over the socket is known. */
export const CONTROLS: readonly (keyof Controls)[] = [
  'setPassword',
  'addAccount',
  'listAccounts',
  'deleteAccount',
  'readHistory',
  'rewindDatabase',
]

export interface ControlServices extends OperatorServices {
  readonly databases: Databases
  readonly rewinds: Rewinds
}

/** @returns what works on the configuration and databases that are open in this process */
export function localControls(services: ControlServices): Controls {
  return { ...localOperator(services), ...localHistory(services.databases, services.rewinds) }
}
