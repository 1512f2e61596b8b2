/** `settee check`: reads databases, and lists what is damaged. */
import type { ControlCommands } from '../control/control-commands.ts'
import { oneLine, shown } from '../core/errors.ts'
import type { GiveUpReport, LostLeaf } from '../documents/give-up.ts'
import type { RememberedDamage, RememberedPart } from '../scrub/damage-records.ts'
import type { CheckOutcome, ScrubProgress } from '../scrub/scrub.ts'
import { describePart } from '../storage/damage.ts'
import type { CheckCommand } from './backup-arguments.ts'
import { dataFolder, withControl } from './operate.ts'
import { progressBar } from './progress-bar.ts'
import { confirmOrStop, terminalPrompts } from './prompts.ts'

/** @returns the exit code: 1 if something is damaged, or the check failed */
export async function runCheckCommand(command: CheckCommand, env: NodeJS.ProcessEnv): Promise<number> {
  try {
    return await withControl(dataFolder(command.data, env), env, async (controls) => {
      const { giveUp } = command
      const [database] = command.databases
      if (giveUp !== null && database !== undefined)
        await giveUpAfterQuestion(controls, command, database, giveUp)
      return check(controls, command)
    })
  } catch (error) {
    console.error(`settee: ${oneLine((error as Error).message)}`)
    return 1
  }
}

async function check(
  controls: ControlCommands,
  { databases: names, repair, json }: CheckCommand,
): Promise<number> {
  const bar = progressBar(process.stderr)
  try {
    const databases = names.length === 0 ? null : names
    const found = await controls.checkDatabases({ databases, repair }, (progress) =>
      bar.show(progress.percent, stepOf(progress)),
    )
    bar.end()
    process.stdout.write(json ? `${JSON.stringify(found)}\n` : foundText(found))
    return found.damaged.length > 0 || found.server !== null ? 1 : 0
  } finally {
    bar.end()
  }
}

async function giveUpAfterQuestion(
  controls: ControlCommands,
  { yes }: CheckCommand,
  database: string,
  id: string,
): Promise<void> {
  const report = await controls.giveUp({ database, id, dryRun: true })
  process.stderr.write(lossText(report))
  if (!yes) {
    const prompts = await terminalPrompts()
    if (prompts === null)
      throw new Error('Cannot ask, because this is not a terminal: add --yes to give it up.')
    await confirmOrStop(prompts, 'Give this up? A device that still has it may send it again later.')
  }
  await controls.giveUp({ database, id, dryRun: false })
}

/** What giving up loses, and what is there afterwards. */
export function lossText({ id, leaves, superseded, rev, deleted }: GiveUpReport): string {
  const lines = leaves.map((leaf) => `  revision ${shown(leaf.rev)}: ${lossOf(leaf)}\n`)
  const old = superseded.map((each) => `  revision ${shown(each)}: an earlier version\n`)
  const end =
    rev === null
      ? 'Nothing is left of the document.\n'
      : `The document is ${deleted ? 'deleted' : 'there'} with revision ${shown(rev)}.\n`
  return `What is lost of the document ${shown(id)}:\n${[...lines, ...old].join('')}${end}`
}

function lossOf({ lost, attachments, after }: LostLeaf): string {
  const names = attachments.map(shown).join(', ')
  const files = names === '' ? '' : ` and its attachments ${names}`
  if (lost === 'history') return 'the names of its earlier revisions'
  if (lost === 'tombstone') return 'what the deletion had as its text; it stays deleted'
  if (lost === 'attachments')
    return `its attachments ${names}; its text stays, as revision ${shown(after ?? '')}`
  if (lost === 'revision') return `all of it${files}`
  return `its text${files}; the version before it is there, revision ${shown(after ?? '')}`
}

function stepOf({ database, databases_done, databases_total }: ScrubProgress): string {
  return `${databases_done + 1}/${databases_total} ${database ?? ''}`
}

/** A line for each part that was repaired or is damaged, and one that sums up. */
export function foundText({ checked, damaged, repaired, server }: CheckOutcome): string {
  const mended = repaired.map(
    ({ database, part, copy }) => `${shown(database)}: repaired ${describePart(part)}, from ${copy}\n`,
  )
  const own =
    server === null ? '' : `server.sqlite: ${server}. Restart settee: it then starts from the newest copy.\n`
  return mended.join('') + own + damageText(checked, damaged)
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
