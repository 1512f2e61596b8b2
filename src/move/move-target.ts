/** The database here that a move fills: whether it may be touched, and what it has besides documents. */
import { CouchError } from '../core/errors.ts'
import { type SecurityObject, SYSTEM_USER } from '../core/types.ts'
import type { RemoteDatabase, RemoteDatabaseInfo } from '../replication/remote/remote-database.ts'
import type { DatabaseHandle, Databases } from '../threads/databases.ts'
import type { MoveRecords } from './move-records.ts'
import { repeated } from './old-server.ts'

export interface TargetOptions {
  readonly databases: Databases
  readonly records: MoveRecords
  /** What identifies the old server: its uuid, or its address without one. */
  readonly oldServer: string
  /** Whether to add to a database that was not made by this move. */
  readonly isMerged: boolean
  readonly signal: AbortSignal
}

/** No database has this end, so it counts as used until its move is done. */
const USED = ''

/** @returns whether somebody else has written to the database here @throws conflict */
export async function prepareTarget(
  old: RemoteDatabase,
  target: string,
  info: RemoteDatabaseInfo,
  { databases, records, oldServer, isMerged, signal }: TargetOptions,
): Promise<boolean> {
  const isUsers = target === databases.usersDatabase
  if (!(await databases.has(target))) {
    await databases.create(target, { partitioned: info.isPartitioned }).catch((error: unknown) => {
      // couch_peruser makes databases, too.
      if (!(error instanceof CouchError && error.code === 'file_exists')) throw error
    })
  }
  const here = await databases.get(target)
  const record = await records.read(target)
  const { doc_count, doc_del_count } = await here.info(SYSTEM_USER)
  const isForeign = record === null ? doc_count + doc_del_count > 0 : record.oldServer !== oldServer
  if (isForeign && !isMerged && !isUsers) {
    throw new CouchError(
      'conflict',
      `The database ${target} exists here, and has not come from ${old.endpoint.shown}. Add --merge to add to it.`,
    )
  }
  const isNumbered = typeof info.updateSeq === 'number'
  if (isNumbered && record !== null && record.numbersOf !== null && record.numbersOf !== oldServer) {
    throw new CouchError(
      'conflict',
      `The sequences of ${old.endpoint.shown} are plain numbers, and so were those of another server from which ` +
        `${target} has come. Move one of them into a database of another name, and replicate.`,
    )
  }
  // A device that comes before the copy is complete must not take a number of the old server for one of this database.
  await here.rememberTokens([{ token: '0', seq: 0 }])
  const wasUsed = isForeign || (record?.isDone === true && record.end !== (await endOf(here)))
  const numbersOf = isNumbered ? oldServer : (record?.numbersOf ?? null)
  // Until the move is done, changes in a database that nobody has used are its own.
  const end = wasUsed ? USED : await endOf(here)
  await records.write(target, { oldServer, isDone: wasUsed, end, numbersOf })
  const limit = wasUsed ? null : await repeated(signal, () => old.revsLimit(signal))
  if (limit !== null && limit > 0) await here.setRevsLimit(SYSTEM_USER, limit)
  return wasUsed
}

export async function endOf(here: DatabaseHandle): Promise<string> {
  return (await here.info(SYSTEM_USER)).update_seq
}

/** Before the documents, so that nobody reads what the old server would not have shown. */
export async function copySecurity(
  old: RemoteDatabase,
  here: DatabaseHandle,
  { usersDatabase }: Databases,
  signal: AbortSignal,
): Promise<void> {
  if (here.name === usersDatabase) return
  const security = await repeated(signal, () => old.security(signal))
  if (security !== null) await here.setSecurity(SYSTEM_USER, security as SecurityObject)
}
