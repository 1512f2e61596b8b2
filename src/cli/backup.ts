/** `settee backup`: a verified copy of everything, made by the running server or, when none runs, here. */
import { resolve } from 'node:path'
import type { BackupDone } from '../maintenance/backup/controls.ts'
import type { BackupProgress } from '../maintenance/backup/make.ts'
import type { BackupCommand } from './backup-arguments.ts'
import { dataFolder } from './data-folder.ts'
import { oneLine, shown } from './one-line.ts'
import { withControls } from './operate.ts'
import { progressBar } from './progress-bar.ts'

/** @returns the exit code: 1 when it failed or lacks a database, which one line on the standard error explains */
export async function runBackupCommand(command: BackupCommand, env: NodeJS.ProcessEnv): Promise<number> {
  const { databases, json } = command
  const bar = progressBar(process.stderr)
  try {
    const to = command.to === undefined ? null : resolve(command.to)
    const asked = { to, databases: databases.length === 0 ? null : databases }
    const done = await withControls(dataFolder(command.data, env), env, (controls) =>
      controls.backUp(asked, (progress) => bar.show(progress.percent, doing(progress))),
    )
    bar.end()
    process.stdout.write(json ? `${JSON.stringify(done)}\n` : doneText(done))
    return told(done)
  } catch (error) {
    bar.end()
    console.error(`settee: ${oneLine((error as Error).message)}`)
    return 1
  }
}

function doing({ database, databases_done, databases_total }: BackupProgress): string {
  return database === null ? 'the rest' : `${databases_done + 1}/${databases_total} ${database}`
}

function doneText({ path, databases, bytes, new_bytes }: BackupDone): string {
  const count = databases === 1 ? '1 database' : `${databases} databases`
  return `${path}: ${count}, ${megabytes(bytes)}, of which ${megabytes(new_bytes)} are new; verified.\n`
}

function megabytes(bytes: number): string {
  return `${(bytes / 1_000_000).toFixed(1)} MB`
}

/** What is not in it. Who deleted a database meanwhile does not miss it. */
function told({ left_out }: BackupDone): number {
  for (const { name, reason } of left_out)
    console.error(`settee: The backup lacks ${shown(name)}: ${oneLine(reason)}`)
  return left_out.some(({ reason }) => reason.startsWith('damaged')) ? 1 : 0
}
