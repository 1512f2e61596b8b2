/** `settee backup`, `settee restore` and `settee adopt`. */
import { copyFile, mkdir, stat } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import type { BackupResult } from '../backup/backup-control.ts'
import { isBackupId } from '../backup/backup-format.ts'
import { pathIn, readRegular } from '../backup/foreign-files.ts'
import type { BackupProgress } from '../backup/make-backup.ts'
import {
  backupsFolder,
  checkFile,
  findSource,
  type RestoreOutcome,
  type RestoreProgress,
  type RestoreSource,
} from '../backup/restore.ts'
import { openConfig } from '../config/config.ts'
import { prepareDataFolder } from '../config/data-folder.ts'
import { reachServer } from '../control/control-socket.ts'
import { writeAtomically } from '../core/durable-files.ts'
import { oneLine, shown } from '../core/errors.ts'
import { describeDamage } from '../storage/damage.ts'
import type { BackupCommand, RestoreCommand } from './backup-arguments.ts'
import { becomeOwner, dataFolder, type FolderOptions, withControl } from './operate.ts'
import { type ProgressBar, progressBar } from './progress-bar.ts'
import { confirmOrStop, terminalPrompts } from './prompts.ts'

type Restore = Extract<RestoreCommand, { readonly name: 'restore' }>

/** @returns the exit code: 1 after a failure, which one line on standard error explains */
export async function runRestoreCommand(command: RestoreCommand, env: NodeJS.ProcessEnv): Promise<number> {
  const dataDir = dataFolder(command.data, env)
  try {
    if (command.name === 'adopt') await adopt(command, dataDir, env)
    else await restore(command, dataDir, env)
    return 0
  } catch (error) {
    console.error(`settee: ${oneLine((error as Error).message)}`)
    return 1
  }
}

async function adopt(
  { databases, json }: Extract<RestoreCommand, { readonly name: 'adopt' }>,
  dataDir: string,
  env: NodeJS.ProcessEnv,
): Promise<void> {
  const done = await withControl(dataDir, env, (controls) => controls.adopt({ databases }))
  print(json, done, [
    done.adopted.length === 0
      ? 'There is no database.'
      : `Devices will compare these databases again: ${done.adopted.join(', ')}.`,
  ])
}

async function restore(command: Restore, dataDir: string, env: NodeJS.ProcessEnv): Promise<void> {
  const { databases, as, json } = command
  const backup = isBackupId(command.backup) ? command.backup : resolve(command.backup)
  const isNew = (await stat(join(dataDir, 'server.sqlite')).catch(() => null)) === null
  if (!isNew) await becomeOwner(dataDir)
  const found = await sourceOf(backup, dataDir, env)
  if (!command.yes) await confirm(command, found)
  const withServer = command.server || (isNew && databases === null)
  if (isNew) await prepareDataFolder(dataDir)
  await becomeOwner(dataDir)
  if (withServer && (await reachServer(dataDir)) !== null) {
    throw new Error(`A server is running on ${dataDir}; stop it to restore the server's own data.`)
  }
  const options = withServer ? await serverFiles(backup, dataDir, env) : {}
  const bar = progressBar(process.stderr)
  const outcome = await withControl(
    dataDir,
    env,
    (controls) => controls.restore({ backup, databases, as }, (step) => showStep(bar, step)),
    options,
  ).finally(() => bar.end())
  print(json, { ...outcome, server: withServer }, linesOf(outcome, withServer))
}

/** The most bytes of a configuration; a server refuses longer ones. */
const MAX_CONFIG = 1024 * 1024

/**
 * Restores local.ini, and finds the backup's server.sqlite. The backup may be a single database file, without these.
 * @throws not_found; bad_request if they do not match the manifest
 */
async function serverFiles(backup: string, dataDir: string, env: NodeJS.ProcessEnv): Promise<FolderOptions> {
  const config = await openConfig({ dataDir, env, flags: {} })
  const source: RestoreSource = await findSource(backup, backupsFolder(config))
  if (source.whole === null) return {}
  const { folder, manifest } = source.whole
  const server = await pathIn(folder, manifest.server.file)
  await checkFile(server, manifest.server, () => undefined)
  if (manifest.config !== null) {
    const copy = await pathIn(folder, manifest.config.file)
    await checkFile(copy, manifest.config, () => undefined)
    await keepConfig(dataDir)
    await writeAtomically(join(dataDir, 'local.ini'), String(await readRegular(copy, MAX_CONFIG)))
  }
  return { serverFile: server }
}

async function keepConfig(dataDir: string): Promise<void> {
  const kept = join(dataDir, 'replaced')
  const stamp = new Date()
    .toISOString()
    .replace(/\.\d+Z$/, 'Z')
    .replaceAll(':', '-')
  await mkdir(kept, { recursive: true, mode: 0o700 })
  await copyFile(join(dataDir, 'local.ini'), join(kept, `local.${stamp}.ini`)).catch(
    (error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error
    },
  )
}

/**
 * Finds the backup before the user is asked to confirm.
 * @returns null for an id that is not found here; the running server may find it
 * @throws not_found, bad_request for a path
 */
async function sourceOf(
  backup: string,
  dataDir: string,
  env: NodeJS.ProcessEnv,
): Promise<RestoreSource | null> {
  if (!isBackupId(backup)) return findSource(backup, dataDir)
  const hasFolder = (await stat(dataDir).catch(() => null)) !== null
  if (!hasFolder) return null
  // The user may be restoring a configuration that cannot be read.
  const config = await openConfig({ dataDir, env, flags: {} }).catch(() => null)
  return config === null ? null : findSource(backup, backupsFolder(config)).catch(() => null)
}

/** The maximum number of names in a question. */
const MAX_NAMES = 10

async function confirm({ backup, databases, as }: Restore, found: RestoreSource | null): Promise<void> {
  const prompts = await terminalPrompts()
  if (prompts === null) throw new Error('Cannot ask, because this is not a terminal: add --yes to restore.')
  const names = databases ?? found?.copies.map(({ name }) => name) ?? []
  const more = names.length > MAX_NAMES ? ` and ${names.length - MAX_NAMES} more` : ''
  const what = names.length === 0 ? 'all its databases' : names.slice(0, MAX_NAMES).join(', ') + more
  const target = as === null ? '' : ` as ${as}`
  const made = found?.whole?.manifest.begun_at
  const when = made === undefined ? '' : `, made at ${new Date(made).toString().replace(/ \(.*\)$/, '')}`
  await confirmOrStop(prompts, `Restore ${shown(what)}${target} from the backup ${shown(backup)}${when}?`)
}

const STEPS = { check: 'checking', prepare: 'preparing', replace: 'replacing' } as const

function showStep(bar: ProgressBar, { step, database, done, total }: RestoreProgress): void {
  bar.show(total === 0 ? 100 : (100 * done) / total, `${STEPS[step]} ${database}`)
}

function linesOf({ backup, restored, untouched }: RestoreOutcome, withServer: boolean): string[] {
  const lines = restored.map(({ database, doc_count: documents, kept }) => {
    const before = kept === null ? 'a new database' : `the replaced file is kept in ${kept}`
    return `Restored ${database} from ${backup}: ${documents === 1 ? '1 document' : `${documents} documents`}; ${before}.`
  })
  if (withServer) lines.push("Restored the server's own data and local.ini too.")
  if (untouched.length > 0) lines.push(`Not in the backup, so left unchanged: ${untouched.join(', ')}.`)
  return lines
}

function print(json: boolean, outcome: object, lines: readonly string[]): void {
  process.stdout.write(json ? `${JSON.stringify(outcome)}\n` : `${lines.join('\n')}\n`)
}

/** @returns the exit code: 1 if the backup failed or lacks a damaged database; lines on standard error explain this */
export async function runBackupCommand(command: BackupCommand, env: NodeJS.ProcessEnv): Promise<number> {
  const { databases, json } = command
  const bar = progressBar(process.stderr)
  try {
    const to = command.to === undefined ? null : resolve(command.to)
    const request = { to, databases: databases.length === 0 ? null : databases }
    const done = await withControl(dataFolder(command.data, env), env, (controls) =>
      controls.backUp(request, (progress) => bar.show(progress.percent, stepOf(progress))),
    )
    bar.end()
    process.stdout.write(json ? `${JSON.stringify(done)}\n` : doneText(done))
    return printMissing(done)
  } catch (error) {
    bar.end()
    console.error(`settee: ${oneLine((error as Error).message)}`)
    return 1
  }
}

function stepOf({ database, databases_done, databases_total }: BackupProgress): string {
  return database === null ? 'server data' : `${databases_done + 1}/${databases_total} ${database}`
}

function doneText({ path, databases, bytes, new_bytes }: BackupResult): string {
  const count = databases === 1 ? '1 database' : `${databases} databases`
  return `${path}: ${count}, ${megabytes(bytes)} (${megabytes(new_bytes)} new), verified.\n`
}

function megabytes(bytes: number): string {
  return `${(bytes / 1_000_000).toFixed(1)} MB`
}

/**
 * Prints what the backup lacks.
 * @returns the exit code: 1 if something is damaged, 0 if databases were only deleted
 */
function printMissing({ left_out, damaged }: BackupResult): number {
  for (const { name, reason } of left_out)
    console.error(`settee: The backup does not contain ${shown(name)}: ${oneLine(reason)}`)
  for (const database of damaged)
    console.error(
      `settee: Damaged in ${shown(database.name)}, and in its backup: ${describeDamage(database)}`,
    )
  return damaged.length > 0 || left_out.some(({ reason }) => reason.startsWith('damaged')) ? 1 : 0
}
