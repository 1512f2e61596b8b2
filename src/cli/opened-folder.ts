import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { environmentAdmin } from '../auth/admins.ts'
import { localOperator } from '../auth/operator.ts'
import { tokensWithoutServer } from '../auth/token-maker.ts'
import { tokenLimitsOf } from '../auth/token-record.ts'
import { Backups } from '../backup/backups.ts'
import { replacedFiles } from '../backup/copy-place.ts'
import { backupsFolder, localRestoreControl } from '../backup/restore.ts'
import { serverCopies, startedFromCopy } from '../backup/server-copies.ts'
import { SpaceCures } from '../backup/space-cures.ts'
import { type Config, openConfig } from '../config/config.ts'
import { bodyFilesOf, freeSpaceFloor, settingsOf } from '../config/settings.ts'
import { SharedSettings } from '../config/shared-settings.ts'
import { storeLocation } from '../config/store-location.ts'
import { setteeVersion } from '../config/version.ts'
import { type ControlCommands, localControlCommands } from '../control/control-commands.ts'
import { defaultFloor, type Settings } from '../core/types.ts'
import { Repairs } from '../healing/repairs.ts'
import { Moves } from '../move/moves.ts'
import { SealingKey } from '../replication/documents/sealing-key.ts'
import { Scrub } from '../scrub/scrub.ts'
import { Standby } from '../standby/standby.ts'
import { StandbyRecords } from '../standby/standby-records.ts'
import { diskSizeNow } from '../storage/free-space.ts'
import { lockFolder } from '../storage/open-engine.ts'
import { Claims, claimsOfOne } from '../threads/claims.ts'
import { openServerDatabases } from '../threads/open-databases.ts'
import { Rewinds } from '../time-machine/rewinds.ts'
import { localVaultControl } from '../vaults/vaults.ts'

/** A data folder on which control commands run without a server. */
export interface OpenFolder {
  readonly controls: ControlCommands
  close(): Promise<void>
}

/**
 * Opens a data folder as a server would, without its background work.
 * @param dataDir absolute
 * @param serverFile the path of a copy of server.sqlite that replaces the one in the folder
 * @throws Error with a one-line message
 */
export async function openFolder(
  dataDir: string,
  env: NodeJS.ProcessEnv,
  serverFile: string | undefined,
): Promise<OpenFolder> {
  const config = await openConfig({ dataDir, env, flags: {} })
  const { location, threads } = await storeLocation(config, dataDir)
  const unlock = location.kind === 'files' ? () => undefined : await lockFolder(dataDir).catch(notInUse)
  const databases = await openServerDatabases({
    location,
    threads,
    settings: withoutAutomaticWork(settingsOf(config)),
    maxOpen: config.integer('couchdb', 'max_dbs_open'),
    serverFile,
    serverCopies: () => serverCopies(dataDir, backupsFolder(config)),
    onServerCopy: (copy) => console.error(`settee: ${startedFromCopy(copy)}`),
    // A call to a dead thread fails, and the command reports that.
    onFault: () => undefined,
    onCompactionFault: () => undefined,
  }).catch((error: Error) => {
    unlock()
    return notInUse(error)
  })
  // On a store, a command is one more node.
  const stopSharing = databases.sharedWriters
    ? await config.share(new SharedSettings(databases), false, () => undefined)
    : () => undefined
  // Without the key, an import of `_replicator` would be refused.
  const sealingKey = await SealingKey.open(databases, () => undefined)
  const applySettings = () =>
    databases.setSettings(withoutAutomaticWork(settingsOf(config, sealingKey.value)))
  applySettings()
  // A move changes limits that its own writes are checked against.
  config.onChange(applySettings)
  const tokens = tokensWithoutServer(databases, () => tokenLimitsOf(config))
  const revokeTokens = (account: string) => tokens.revokeAll(account)
  const tmpDir = join(dataDir, 'tmp')
  await mkdir(tmpDir, { recursive: true, mode: 0o700 })
  const ending = new AbortController()
  const restorer = localRestoreControl(databases, () => backupsFolder(config))
  const backups = new Backups({ config, databases, dataDir, version: setteeVersion(), logger: SILENT })
  const claims = databases.sharedWriters ? new Claims({ records: databases, onFault }) : claimsOfOne()
  const rewinds = new Rewinds(databases, claims)
  const records = await StandbyRecords.open(databases)
  const standby = new Standby({ records, databases, config, logger: SILENT })
  const space = () => {
    const { free, total } = diskSizeNow(dataDir)
    return { free, floor: freeSpaceFloor(config) ?? defaultFloor(total) }
  }
  const files = bodyFilesOf(config, space, tmpDir)
  const repairs = new Repairs({ databases, places: [backups, replacedFiles(dataDir)], files, logger: SILENT })
  const scrub = new Scrub({ config, databases, repairs, claims, logger: SILENT })
  const moves = new Moves({ config, databases, dataDir, files, claims })
  const cures = new SpaceCures({ dataDir, config, databases, backups })
  const services = {
    standby,
    restorer,
    backups,
    cures,
    scrub,
    repairs,
    rewinds,
    moves,
    tmpDir,
    ending: ending.signal,
  }
  const operator = localOperator({ config, databases, env, revokeTokens })
  const vaultServices = {
    config,
    databases,
    tokenMaker: tokens.maker,
    createDatabase: (name: string) => databases.create(name),
    adminNames: () => adminNames(config, env),
    listening: () => null,
    ownerOf: async () => undefined,
  }
  const vaults = localVaultControl(vaultServices, operator)
  return {
    controls: localControlCommands({ databases, operator, vaults, ...services }),
    close: async () => {
      await standby.close()
      await backups.close()
      await Promise.all([scrub.close(), repairs.close()])
      await claims.close()
      stopSharing()
      await databases.close()
      unlock()
    },
  }
}

/** Includes the admin that the environment creates when the server starts. */
async function adminNames(config: Config, env: NodeJS.ProcessEnv): Promise<string[]> {
  const given = await environmentAdmin(env)
  const names = new Set(Object.keys(config.section('admins')))
  if (given !== null) names.add(given.user)
  return [...names].sort()
}

/** Settings without automatic compactions, because a command starts no background work. */
function withoutAutomaticWork(settings: Settings): Settings {
  const { rules } = settings
  return { ...settings, rules: { ...rules, compaction: { ...rules.compaction, isAutomatic: false } } }
}

/** A command prints its own messages. */
const SILENT = { info: () => undefined, warn: () => undefined, error: () => undefined }

/** @throws Error with advice if the folder is in use */
function notInUse(error: Error): never {
  throw new Error(`${error.message}.${error.message.includes('in use') ? UNREACHABLE : ''}`, { cause: error })
}

/** The command reports what it could not do. */
const onFault = () => undefined

const UNREACHABLE =
  ' Its control socket does not answer. Try again once it has started; if its log says that it has no control socket, stop it first.'
