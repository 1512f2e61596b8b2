/** `settee export --all`: every database as a couchbackup file. */
import { chown, mkdir, readdir, stat } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { CouchError, oneLine } from '../core/errors.ts'
import type { ExportAllCommand } from './backup-arguments.ts'
import { dataFolder, withControl } from './operate.ts'
import { type Controls, exportFile } from './transfer-command.ts'

interface Counts {
  exported: number
  /** Those that could not be exported, or not all of them. */
  failed: number
}

/** @returns the exit code: 1 if a database could not be exported, or lacks what is damaged */
export async function runExportAllCommand(
  command: ExportAllCommand,
  env: NodeJS.ProcessEnv,
): Promise<number> {
  const dataDir = dataFolder(command.data, env)
  const to = resolve(command.to)
  try {
    await prepareFolder(to, dataDir)
    const { exported, failed } = await withControl(dataDir, env, (controls) =>
      exportAll(controls, dataDir, to),
    )
    console.error(`Exported ${exported === 1 ? '1 database' : `${exported} databases`} to ${to}.`)
    return failed > 0 ? 1 : 0
  } catch (error) {
    console.error(`settee: ${oneLine((error as Error).message)}`)
    return 1
  }
}

/**
 * Makes the folder for the account that owns the data folder, to which root switches later.
 * @throws Error in one line if it is not new or empty; the file system's error
 */
async function prepareFolder(to: string, dataDir: string): Promise<void> {
  await mkdir(to, { recursive: true, mode: 0o700 })
  if ((await readdir(to)).length > 0) throw new Error(`${to} is not empty.`)
  const owner = await stat(dataDir).catch(() => null)
  if (owner !== null && process.getuid?.() === 0) await chown(to, owner.uid, owner.gid)
}

async function exportAll(controls: Controls, dataDir: string, to: string): Promise<Counts> {
  const counts: Counts = { exported: 0, failed: 0 }
  for (let after: string | null = null; ; ) {
    const names = await controls.listDatabases({ after })
    const last = names.at(-1)
    if (last === undefined) return counts
    for (const name of names) await exportOne(controls, dataDir, to, name, counts)
    after = last
  }
}

/** A database that was deleted meanwhile is left out. */
async function exportOne(
  controls: Controls,
  dataDir: string,
  to: string,
  name: string,
  counts: Counts,
): Promise<void> {
  try {
    const file = join(to, `${encodeURIComponent(name)}.json.gz`)
    const { gaps } = await exportFile(name, file, (work) => work(controls, dataDir))
    counts.exported += 1
    if (gaps === null) return
    console.error(`settee: ${oneLine(`${name}: ${gaps}`)}`)
    counts.failed += 1
  } catch (error) {
    if (error instanceof CouchError && error.code === 'no_database') return
    console.error(`settee: ${oneLine(`${name}: ${(error as Error).message}`)}`)
    counts.failed += 1
  }
}
