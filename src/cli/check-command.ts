/** `settee check`: reads databases, and lists what is damaged. */
import { oneLine, shown } from '../core/errors.ts'
import type { RememberedDamage, RememberedPart } from '../scrub/damage-records.ts'
import type { CheckOutcome, ScrubProgress } from '../scrub/scrub.ts'
import { describePart } from '../storage/damage.ts'
import type { CheckCommand } from './backup-arguments.ts'
import { dataFolder, withControl } from './operate.ts'
import { progressBar } from './progress-bar.ts'

/** @returns the exit code: 1 if something is damaged, or the check failed */
export async function runCheckCommand(command: CheckCommand, env: NodeJS.ProcessEnv): Promise<number> {
  const bar = progressBar(process.stderr)
  try {
    const databases = command.databases.length === 0 ? null : command.databases
    const found = await withControl(dataFolder(command.data, env), env, (controls) =>
      controls.checkDatabases({ databases, repair: command.repair }, (progress) =>
        bar.show(progress.percent, stepOf(progress)),
      ),
    )
    bar.end()
    process.stdout.write(command.json ? `${JSON.stringify(found)}\n` : foundText(found))
    return found.damaged.length > 0 ? 1 : 0
  } catch (error) {
    bar.end()
    console.error(`settee: ${oneLine((error as Error).message)}`)
    return 1
  }
}

function stepOf({ database, databases_done, databases_total }: ScrubProgress): string {
  return `${databases_done + 1}/${databases_total} ${database ?? ''}`
}

/** A line for each part that was repaired or is damaged, and one that sums up. */
export function foundText({ checked, damaged, repaired }: CheckOutcome): string {
  const mended = repaired.map(
    ({ database, part, copy }) => `${shown(database)}: repaired ${describePart(part)}, from ${copy}\n`,
  )
  return mended.join('') + damageText(checked, damaged)
}

function damageText(checked: number, damaged: readonly RememberedDamage[]): string {
  const count = checked === 1 ? '1 database' : `${checked} databases`
  if (damaged.length === 0) return `Checked ${count}: nothing is damaged.\n`
  const parts = damaged.reduce((sum, each) => sum + each.count, 0)
  const sum = `Checked ${count}: ${parts === 1 ? '1 part is' : `${parts} parts are`} damaged.\n`
  return damaged.flatMap(linesOf).join('') + sum
}

/** Where a good copy of a part is, or may be. */
function whereOf(part: RememberedPart): string {
  if (part.copy !== null) return `; a good copy is in ${part.copy} (--repair)`
  const isPushed = part.kind === 'document' || part.kind === 'revision' || part.kind === 'attachment'
  return isPushed ? '; no backup has a good copy, a device may' : ''
}

function linesOf({ database, count, parts }: RememberedDamage): string[] {
  const lines = parts.map((part) => {
    const since = new Date(part.since).toISOString()
    return `${shown(database)}: ${describePart(part)}, since ${since}${whereOf(part)}\n`
  })
  const more = count - parts.length
  return more > 0 ? [...lines, `${shown(database)}: ${more} more\n`] : lines
}
